"""Tenants: when an operator ended one, whose rows are deleted since then."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "tenants",
        sa.Column(
            "ending_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When an operator ended it; its rows are deleted since then",
        ),
    )


def downgrade() -> None:
    op.drop_column("tenants", "ending_at")
