"""What a turn reserves of budgets that it shares with others, before each model call."""

import sqlalchemy as sa
from alembic import op

revision = "0058"
down_revision = "0057"
branch_labels = None
depends_on = None


def upgrade() -> None:
    usd = "For open model calls, and what was used since the last commit"
    op.add_column("turns", sa.Column("reserved_usd", sa.Numeric(18, 8), comment=usd))
    op.add_column("turns", sa.Column("reserved_tokens", sa.BigInteger()))
    fence = "Of the claim that reserved; else it is void"
    op.add_column("turns", sa.Column("reserved_fence", sa.BigInteger(), comment=fence))


def downgrade() -> None:
    for column in ("reserved_fence", "reserved_tokens", "reserved_usd"):
        op.drop_column("turns", column)
