"""Which version of its agent a run is to use."""

import sqlalchemy as sa
from alembic import op

revision = "0082"
down_revision = "0081"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Nullable, without a default: the table is locked for an instant, and not rewritten.
    op.add_column(
        "runs",
        sa.Column("asked_version", sa.Integer(), nullable=True, comment="The version that the claim is to use"),
    )


def downgrade() -> None:
    op.drop_column("runs", "asked_version")
