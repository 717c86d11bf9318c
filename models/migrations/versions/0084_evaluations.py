"""Evaluations and their trials, and runs that belong to one."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from nova_workers.base.release import part

audit = part("models.rights.audit").audit
protect = part("models.rights.row_security").protect

revision = "0084"
down_revision = "0083"
branch_labels = None
depends_on = None

_ID = sa.Text(collation="C")
_SOURCES = "'api', 'trigger', 'task', 'agent', 'channel', 'work_order'"
_CHECKS = {"runs": "source", "threads": "origin"}


def upgrade() -> None:
    op.create_table(
        "evaluations",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("agent_id", _ID, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, comment="The candidate"),
        sa.Column("against", sa.Integer(), nullable=True, comment="The version that it is compared with"),
        sa.Column("dataset", sa.Text(), nullable=False, comment="Its name"),
        sa.Column("dataset_version", sa.Integer(), nullable=False),
        sa.Column("split", sa.Text(), nullable=True),
        sa.Column("tags", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("repeats", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("evaluators", postgresql.JSONB(), nullable=False, comment="contracts.evaluators.Evaluator"),
        sa.Column("tools", postgresql.JSONB(), nullable=False, comment="contracts.http.evaluations.ToolReplay"),
        sa.Column("budget_usd", sa.Numeric(18, 8), nullable=True, comment="Null is no limit"),
        sa.Column("threshold", sa.Float(), nullable=True, comment="The part of verdicts that must be passed"),
        sa.Column(
            "estimate_usd",
            sa.Numeric(18, 8),
            nullable=True,
            comment="From earlier runs of the agent; null if their cost is not known",
        ),
        sa.Column("status", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("why", sa.Text(), nullable=True, comment="Why it was stopped"),
        sa.Column(
            "trials", sa.Integer(), server_default=sa.text("0"), nullable=False, comment="How many it has in all"
        ),
        sa.Column("result", postgresql.JSONB(), nullable=True, comment="contracts.http.evaluations.EvaluationResult"),
        sa.Column("created_by", _ID, nullable=False, comment="The key of the request, or the person of its session"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("status IN ('running', 'done', 'stopped', 'canceled')", name=op.f("ck_evaluations__status")),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_evaluations__tenant_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluations")),
        comment="A version of an agent, and perhaps another one, that answer the examples of a dataset.",
    )
    op.create_index(op.f("ix_evaluations__tenant_id_id"), "evaluations", ["tenant_id", "id"])
    op.create_index("ix_evaluations__open", "evaluations", ["id"], postgresql_where=sa.text("status = 'running'"))
    op.create_table(
        "evaluation_trials",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("evaluation_id", _ID, nullable=False),
        sa.Column("example_id", _ID, nullable=False, comment="Deleted with it, and so with the thread of the example"),
        sa.Column("key", sa.Text(), nullable=False, comment="Of the example"),
        sa.Column("arm", sa.Text(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("run_id", _ID, nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True, comment="How the run ended"),
        sa.Column(
            "answer", sa.Text(), nullable=True, comment="Its beginning; the run is deleted with its ephemeral thread"
        ),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column(
            "calls",
            postgresql.JSONB(),
            server_default=sa.text("'[]'"),
            nullable=False,
            comment="Tool calls: tool and arguments",
        ),
        sa.Column(
            "verdicts",
            postgresql.JSONB(),
            server_default=sa.text("'[]'"),
            nullable=False,
            comment="One for each evaluator: status, score, reason",
        ),
        sa.Column("cost_usd", sa.Numeric(18, 8), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("steps", sa.Integer(), nullable=True),
        sa.CheckConstraint("arm IN ('candidate', 'baseline')", name=op.f("ck_evaluation_trials__arm")),
        sa.CheckConstraint("state IN ('pending', 'running', 'done')", name=op.f("ck_evaluation_trials__state")),
        sa.ForeignKeyConstraint(
            ["evaluation_id"],
            ["evaluations.id"],
            name=op.f("fk_evaluation_trials__evaluation_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["example_id"],
            ["dataset_examples.id"],
            name=op.f("fk_evaluation_trials__example_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluation_trials")),
        comment="One answer to one example: the run that gives it, and the verdicts.",
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index(
        op.f("ix_evaluation_trials__evaluation_id_state_id"), "evaluation_trials", ["evaluation_id", "state", "id"]
    )
    op.create_index(op.f("ix_evaluation_trials__example_id"), "evaluation_trials", ["example_id"])
    op.create_index(
        "ix_evaluation_trials__run",
        "evaluation_trials",
        ["run_id"],
        unique=True,
        postgresql_where=sa.text("run_id IS NOT NULL"),
    )
    for table in ("evaluations", "evaluation_trials"):
        for statement in protect(table):
            op.get_bind().exec_driver_sql(statement)
    for statement in audit({"evaluations"}):
        op.get_bind().exec_driver_sql(statement)
    _replace(f"{_SOURCES}, 'evaluation'")


def downgrade() -> None:
    op.execute("DELETE FROM threads WHERE origin = 'evaluation'")
    _replace(_SOURCES)
    op.drop_table("evaluation_trials")
    op.drop_table("evaluations")


def _replace(sources: str) -> None:
    for table, column in _CHECKS.items():
        op.drop_constraint(op.f(f"ck_{table}__{column}"), table, type_="check")
        # Each row fulfils it already. The next migration validates it, without a lock that stops readers or writers.
        op.execute(f"ALTER TABLE {table} ADD CONSTRAINT ck_{table}__{column} CHECK ({column} IN ({sources})) NOT VALID")
