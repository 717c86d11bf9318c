"""Leases of clients."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False, comment="Describes the process, for people"),
        sa.Column("fence", sa.BigInteger(), nullable=False, comment="Grows with each acquisition"),
        sa.Column("state", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_leases__tenant_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("tenant_id", "name", name=op.f("pk_leases")),
        comment="A time-limited right of one process of a client, and what the next holder continues from.",
    )


def downgrade() -> None:
    op.drop_table("leases")
