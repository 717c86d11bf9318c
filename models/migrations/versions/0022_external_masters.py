"""Orchestrations whose master is a program outside of the fleet."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "orchestrations",
        sa.Column(
            "is_external",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Its master is a program outside of the fleet, which acts over HTTP",
        ),
    )
    op.add_column(
        "orchestrations",
        sa.Column(
            "master_seen_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Latest request of an external master",
        ),
    )
    op.add_column(
        "orchestrations",
        sa.Column(
            "master_waits",
            JSONB(),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="By call, what an external master waits for: contracts.waits.AwaitMessages",
        ),
    )


def downgrade() -> None:
    op.drop_column("orchestrations", "master_waits")
    op.drop_column("orchestrations", "master_seen_at")
    op.drop_column("orchestrations", "is_external")
