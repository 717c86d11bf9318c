"""Orchestrations: calls that a person allowed for all of a tree's agents."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "orchestrations",
        sa.Column(
            "allowed_calls",
            JSONB(),
            server_default=sa.text("'[]'"),
            nullable=False,
            comment="Tools, and shell commands, that a person allowed for all of its agents",
        ),
    )


def downgrade() -> None:
    op.drop_column("orchestrations", "allowed_calls")
