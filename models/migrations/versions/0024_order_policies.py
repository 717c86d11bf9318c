"""Work orders: policies of tenants, and secrets of keys."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "work_order_policies",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("policy_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False, comment="The document's own name of it"),
        sa.Column("document", JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_work_order_policies__tenant_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("tenant_id", "policy_id", "number", name=op.f("pk_work_order_policies")),
        sa.UniqueConstraint(
            "tenant_id", "policy_id", "version", name=op.f("uq_work_order_policies__tenant_id_policy_id_version")
        ),
        comment="One version of a tenant's policy of work orders. Immutable; the one with the greatest number applies.",
    )
    op.create_table(
        "work_order_secrets",
        sa.Column("id", sa.Text(collation="C"), nullable=False),
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False, comment="Id of the master key that encrypts it"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column(
            "expires_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="End of its use, since a newer one replaces it",
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_work_order_secrets__tenant_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_work_order_secrets")),
        comment="A tenant's secret of the keys of work orders, encrypted with a key that is not in the database.",
    )
    op.create_index(op.f("ix_work_order_secrets__tenant_id_id"), "work_order_secrets", ["tenant_id", "id"])


def downgrade() -> None:
    op.drop_table("work_order_secrets")
    op.drop_table("work_order_policies")
