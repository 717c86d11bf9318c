"""The index of runs that wait without doorbells for a worker with the code that they need."""

from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index


revision = "0071"
down_revision = "0070"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index(
        "ix_runs__parked",
        "runs",
        ["rang_at"],
        where="status = 'queued' AND rang_at = 'infinity' AND hold IS NULL",
    )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.drop_index("ix_runs__parked", "runs", postgresql_concurrently=True, if_exists=True)
