"""Turns: which blocks of the conversation the model provider refused."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "turns",
        sa.Column(
            "refused_blocks", postgresql.JSONB(), nullable=True, comment="Notes for refused blocks, by fingerprint"
        ),
    )


def downgrade() -> None:
    op.drop_column("turns", "refused_blocks")
