"""Messages: when a turn started and what caused it, beside its query."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "messages",
        sa.Column(
            "context",
            postgresql.JSONB(),
            nullable=True,
            comment="Of a query: contracts.event_context.EventContext",
        ),
    )


def downgrade() -> None:
    op.drop_column("messages", "context")
