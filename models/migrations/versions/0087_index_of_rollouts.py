"""The index of the turns of each version in a rollout."""

from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index

revision = "0087"
down_revision = "0086"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index("ix_turns__rollout", "turns", ["rollout_id", "agent_version", "id"], where="rollout_id IS NOT NULL")


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.drop_index("ix_turns__rollout", "turns", postgresql_concurrently=True, if_exists=True)
