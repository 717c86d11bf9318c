"""Which budget refused the call of a run, so that its trigger skips what that budget affords no more."""

import sqlalchemy as sa
from alembic import op

revision = "0060"
down_revision = "0059"
branch_labels = None
depends_on = None


def upgrade() -> None:
    kinds = "ceiling, tenant, agent, trigger or orchestration: the budget that refused it, with budget_exceeded"
    op.add_column("runs", sa.Column("refused_by", sa.Text(), comment=kinds))


def downgrade() -> None:
    op.drop_column("runs", "refused_by")
