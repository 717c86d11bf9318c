"""Judgements of models: a model's own opinion of models, asked once a day, and its usage, which belongs to no run."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_USAGE = {
    "run_id": ("Null for a compaction", "Null for a compaction and for a judgement", True),
    "turn_id": (None, "Null for a judgement of models, which belongs to no run", False),
    "thread_id": (None, "Null for a judgement", False),
    "agent_id": (None, "Null for a judgement", False),
}
"""Columns of `usage`: the comment before and now, and whether it was nullable before."""
_COMMENTS = (
    "Tokens and cost: one row per run, written when it ends, and one per compaction.",
    "Tokens and cost: one row per run, written when it ends, one per compaction, and one per judgement of models.",
)


def upgrade() -> None:
    op.create_table(
        "model_judgements",
        sa.Column("tenant_id", sa.Text(collation="C"), nullable=False),
        sa.Column("judge", sa.Text(), nullable=False, comment="The id of the model that was asked last"),
        sa.Column("status", sa.Text(), nullable=False, comment="Of the last question"),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("error", sa.Text(), nullable=True, comment="Why the last question had no valid answer"),
        sa.Column(
            "scores",
            JSONB(),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="Of the last valid answer: by model and category, 0 to 1",
        ),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=True, comment="When `scores` were given"),
        sa.Column("judged_by", sa.Text(), nullable=True, comment="The model that gave `scores`"),
        sa.CheckConstraint("status IN ('asking', 'succeeded', 'failed')", name=op.f("ck_model_judgements__status")),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_model_judgements__tenant_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_model_judgements")),
        comment=(
            "What a tenant's judge, a model, was asked last about models, and what it last answered. At most once a day."
        ),
    )
    for column, (before, now, _) in _USAGE.items():
        op.alter_column("usage", column, nullable=True, comment=now, existing_comment=before)
    op.create_table_comment("usage", _COMMENTS[1], existing_comment=_COMMENTS[0])


def downgrade() -> None:
    op.execute("DELETE FROM usage WHERE turn_id IS NULL")
    for column, (before, now, nullable) in _USAGE.items():
        op.alter_column("usage", column, nullable=nullable, comment=before, existing_comment=now)
    op.create_table_comment("usage", _COMMENTS[0], existing_comment=_COMMENTS[1])
    op.drop_table("model_judgements")
