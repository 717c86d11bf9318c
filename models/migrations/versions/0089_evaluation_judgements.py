"""Judgements of evaluations: questions to models that judge answers. A new table only: locks nothing that is in use."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

protect = part("models.rights.row_security").protect

revision = "0089"
down_revision = "0088"
branch_labels = None
depends_on = None

_ID = sa.Text(collation="C")
_TABLE = "evaluation_judgements"


def upgrade() -> None:
    op.create_table(
        _TABLE,
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("evaluation_id", _ID, nullable=False),
        sa.Column("trial_id", _ID, nullable=True, comment="The answer; of a pair that of the candidate"),
        sa.Column("other_trial_id", _ID, nullable=True, comment="The answer of the baseline, in a pair"),
        sa.Column(
            "example_id",
            _ID,
            nullable=True,
            comment="The example whose own answer, which people rated, is judged instead",
        ),
        sa.Column(
            "human_score",
            sa.Float(),
            nullable=True,
            comment="The mean of people's scores of that answer, from -1 to 1",
        ),
        sa.Column("evaluator", sa.Integer(), nullable=False, comment="The place of the judge among the evaluators"),
        sa.Column(
            "is_swapped",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="Whether the answer of the baseline comes first",
        ),
        sa.Column("state", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("run_id", _ID, nullable=True, comment="Of the judge"),
        sa.Column(
            "judge_version", sa.Integer(), nullable=True, comment="The version of the reserved agent that judges"
        ),
        sa.Column("score", sa.Float(), nullable=True, comment="From 0 to 1; null is not judged"),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("cost_usd", sa.Numeric(18, 8), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('pending', 'running', 'done')", name=op.f("ck_evaluation_judgements__state")),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluations.id"],
            name=op.f("fk_evaluation_judgements__evaluation_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["trial_id"],
            ["evaluation_trials.id"],
            name=op.f("fk_evaluation_judgements__trial_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["example_id"],
            ["dataset_examples.id"],
            name=op.f("fk_evaluation_judgements__example_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluation_judgements")),
        comment="One question to a model that judges, and its opinion: of an answer, or of those of both versions.",
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index(op.f("ix_evaluation_judgements__evaluation_id_state_id"), _TABLE, ["evaluation_id", "state", "id"])
    op.create_index(op.f("ix_evaluation_judgements__example_id"), _TABLE, ["example_id"])
    op.create_index(op.f("ix_evaluation_judgements__trial_id"), _TABLE, ["trial_id"])
    op.create_index(
        op.f("ix_evaluation_judgements__tenant_id_judge_version_finished_at"),
        _TABLE,
        ["tenant_id", "judge_version", "finished_at"],
    )
    for statement in protect(_TABLE):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    op.drop_table(_TABLE)
