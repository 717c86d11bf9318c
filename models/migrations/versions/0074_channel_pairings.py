"""People who may write to channels by a code that an operator confirmed."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

protect = part("models.rights.row_security").protect
audit = part("models.rights.audit").audit

revision = "0074"
down_revision = "0073"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "channel_pairings",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column(
            "sender",
            sa.Text(),
            nullable=False,
            comment="The person's id in the channel, which the channel has verified",
        ),
        sa.Column("name", sa.Text(), nullable=False, comment="What the person calls itself there"),
        sa.Column("code_hash", sa.LargeBinary(), nullable=False, comment="SHA-256 of the code that confirms it"),
        sa.Column("code_expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "paired_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When it was confirmed; null while it is only asked for",
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_channel_pairings__tenant_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_channel_pairings")),
        comment="A person who asks to write to a channel, or may.",
    )
    op.create_index(
        op.f("ix_channel_pairings__tenant_id_channel_sender"),
        "channel_pairings",
        ["tenant_id", "channel", "sender"],
        unique=True,
    )
    op.create_index(op.f("ix_channel_pairings__tenant_id_id"), "channel_pairings", ["tenant_id", "id"])
    for statement in (*protect("channel_pairings"), *audit({"channel_pairings"})):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.drop_table("channel_pairings")
