"""A pause of the fleet may hold deliveries as well: that of a restored fleet does."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "switches",
        sa.Column(
            "holds_deliveries",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Of the fleet's pause: nothing is sent outside either, as after a restore",
        ),
    )


def downgrade() -> None:
    op.drop_column("switches", "holds_deliveries")
