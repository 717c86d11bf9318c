"""Rankings of models, learned from the runs of orchestrations."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_rankings",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False, comment="As usage names it"),
        sa.Column(
            "samples",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Ended runs; those that failed for reasons of the fleet are left out",
        ),
        sa.Column("success_rate", sa.Float(), nullable=False),
        sa.Column("mean_cost_usd", sa.Numeric(18, 8), nullable=True, comment="Of a run; null if no cost is known"),
        sa.Column("mean_duration_ms", sa.Float(), nullable=True, comment="Of a run"),
        sa.Column(
            "score",
            sa.Float(),
            nullable=False,
            comment="0 to 1: success, with cost and time in relation to the best of the category",
        ),
        sa.Column("refreshed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "category IN ('architecture', 'complex-reasoning', 'coding', 'code-review', 'planning', 'tool-use', "
            "'exploration', 'simple-tasks', 'general', 'agentic', 'search', 'documentation')",
            name=op.f("ck_model_rankings__category"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_model_rankings__tenant_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("tenant_id", "category", "model", name=op.f("pk_model_rankings")),
        comment=(
            "How a model did in a kind of work, in agents of a tenant's orchestrations. Recomputed daily from their runs."
        ),
    )


def downgrade() -> None:
    op.drop_table("model_rankings")
