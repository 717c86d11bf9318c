"""Work orders: model calls whose worker crashed count for the caps of their order."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_CALLS = ("Model calls", "Model calls, without those that are lost")


def upgrade() -> None:
    op.add_column(
        "work_order_parts",
        sa.Column(
            "lost_tokens",
            sa.BigInteger(),
            server_default=sa.text("0"),
            nullable=False,
            comment="At worst, of calls whose worker crashed; they count for the caps of the order",
        ),
    )
    op.add_column(
        "work_order_parts",
        sa.Column("lost_usd", sa.Numeric(precision=18, scale=8), server_default=sa.text("0"), nullable=False),
    )
    op.alter_column("work_order_parts", "calls", comment=_CALLS[1], existing_comment=_CALLS[0])


def downgrade() -> None:
    op.alter_column("work_order_parts", "calls", comment=_CALLS[0], existing_comment=_CALLS[1])
    op.drop_column("work_order_parts", "lost_usd")
    op.drop_column("work_order_parts", "lost_tokens")
