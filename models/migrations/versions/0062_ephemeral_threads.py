"""Ephemeral threads: in no list or search, without a title, purged a day after their last use."""

import sqlalchemy as sa
from alembic import op

revision = "0062"
down_revision = "0061"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "threads",
        sa.Column(
            "ephemeral",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="In no list or search, without a title, purged a day after its last use",
        ),
    )


def downgrade() -> None:
    op.drop_column("threads", "ephemeral")
