"""How much of a reservation is for open calls: for nothing else of it may a call of another run wait."""

import sqlalchemy as sa
from alembic import op

revision = "0059"
down_revision = "0058"
branch_labels = None
depends_on = None


def upgrade() -> None:
    usd = "Of reserved_usd: for open model calls; void without it"
    op.add_column("turns", sa.Column("open_usd", sa.Numeric(18, 8), comment=usd))
    op.add_column("turns", sa.Column("open_tokens", sa.BigInteger()))


def downgrade() -> None:
    for column in ("open_tokens", "open_usd"):
        op.drop_column("turns", column)
