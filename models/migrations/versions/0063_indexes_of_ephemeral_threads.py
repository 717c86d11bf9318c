"""The indexes of lists without ephemeral threads, in place of those of lists with them, and of their purge.

The previous release lists by the same indexes; it sorts what it finds while both releases run.
"""

from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index

revision = "0063"
down_revision = "0062"
branch_labels = None
depends_on = None

_KEPT = "deleted_at IS NULL"
_LISTED = {
    "ix_threads__listed": ["tenant_id", "ephemeral", "id"],
    "ix_threads__listed_of_agent": ["tenant_id", "agent_id", "ephemeral", "id"],
}
_BEFORE = {
    "ix_threads__tenant_id_id": ["tenant_id", "id"],
    "ix_threads__tenant_id_agent_id_id": ["tenant_id", "agent_id", "id"],
}


def upgrade() -> None:
    for name, columns in _LISTED.items():
        create_index(name, "threads", columns, where=_KEPT)
    create_index("ix_threads__ephemeral", "threads", ["created_at"], where="ephemeral AND purge_at IS NULL")
    _drop(*_BEFORE)


def downgrade() -> None:
    for name, columns in _BEFORE.items():
        create_index(name, "threads", columns, where=_KEPT)
    _drop(*_LISTED, "ix_threads__ephemeral")


def _drop(*names: str) -> None:
    with op.get_context().autocommit_block():
        for name in names:
            op.drop_index(name, "threads", postgresql_concurrently=True, if_exists=True)
