"""Leases: why their holder pauses, as inbound channels report it, and when a person asked it to try now."""

import sqlalchemy as sa
from alembic import op

revision = "0094"
down_revision = "0093"
branch_labels = None
depends_on = None


def upgrade() -> None:
    time = sa.DateTime(timezone=True)
    op.add_column("leases", sa.Column("error", sa.Text(), comment="Why the holder pauses; null: it works"))
    op.add_column("leases", sa.Column("failing_since", time, comment="When it began to fail"))
    op.add_column("leases", sa.Column("next_try_at", time, comment="When the pause ends"))
    op.add_column("leases", sa.Column("retry_requested_at", time, comment="When a person asked for a try at once"))


def downgrade() -> None:
    for column in ("error", "failing_since", "next_try_at", "retry_requested_at"):
        op.drop_column("leases", column)
