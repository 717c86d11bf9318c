"""A number of each claim of an effect or a delivery, which fences late writes: attempts give their numbers back."""

import sqlalchemy as sa
from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None

_TABLES = ("effects", "deliveries")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("claims", sa.Integer(), nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "claims")
