"""Messages: what the turn has used by the end of each step, for the replay of `usage` events."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_WORDS = "Of a step's last message: what the turn has used by then"


def upgrade() -> None:
    op.add_column("messages", sa.Column("used", postgresql.JSONB(), nullable=True, comment=_WORDS))


def downgrade() -> None:
    op.drop_column("messages", "used")
