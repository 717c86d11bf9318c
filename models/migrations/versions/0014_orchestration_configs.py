"""Configuration of orchestrations, in versions."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "orchestration_configs",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False, comment="YAML as its author wrote it"),
        sa.Column(
            "models_text",
            sa.Text(),
            server_default=sa.text("''"),
            nullable=False,
            comment="The models.yaml beside it",
        ),
        sa.Column(
            "created_by",
            sa.Text(),
            server_default=sa.text("'person'"),
            nullable=False,
            comment="person or discovery",
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_orchestration_configs__tenant_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("tenant_id", "version", name=op.f("pk_orchestration_configs")),
        comment="One version of a tenant's configuration of orchestrations. Immutable; the newest one applies.",
    )


def downgrade() -> None:
    op.drop_table("orchestration_configs")
