"""The index of an agent's ended runs by status and end, for its list by the last change."""

from alembic import op

from nova_workers.base.release import part

create_index = part("models.migrations.concurrently").create_index


revision = "0069"
down_revision = "0068"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_index(
        "ix_runs__ended_of_agent",
        "runs",
        ["tenant_id", "agent_id", "status", "finished_at", "id"],
        where="finished_at IS NOT NULL",
    )


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.drop_index("ix_runs__ended_of_agent", "runs", postgresql_concurrently=True, if_exists=True)
