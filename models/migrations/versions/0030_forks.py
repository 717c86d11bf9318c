"""An index for the forks of a thread."""

from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index


revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index(
        "ix_threads__forks",
        "threads",
        ["tenant_id", "forked_from_thread_id", "id"],
        where="forked_from_thread_id IS NOT NULL AND deleted_at IS NULL",
    )


def downgrade() -> None:
    op.drop_index("ix_threads__forks", "threads")
