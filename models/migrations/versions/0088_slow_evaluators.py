"""Which evaluations a worker judges now. A column without a default: locks the table for a moment."""

import sqlalchemy as sa
from alembic import op

revision = "0088"
down_revision = "0087"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "evaluations",
        sa.Column(
            "judging_until",
            sa.DateTime(timezone=True),
            comment="Until when a worker has claimed what takes time to judge",
        ),
    )


def downgrade() -> None:
    op.drop_column("evaluations", "judging_until")
