"""When and from where a key was last used."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "api_keys",
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True, comment="Written at most once a minute"),
    )
    op.add_column(
        "api_keys", sa.Column("last_used_address", sa.Text(), nullable=True, comment="Of the client that used it then")
    )


def downgrade() -> None:
    op.drop_column("api_keys", "last_used_address")
    op.drop_column("api_keys", "last_used_at")
