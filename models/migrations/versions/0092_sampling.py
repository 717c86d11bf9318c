"""Samplings of live runs, and a kind of delivery for drifts of their scores."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from nova_workers.base.release import part

audit = part("models.rights.audit").audit
protect = part("models.rights.row_security").protect

revision = "0092"
down_revision = "0091"
branch_labels = None
depends_on = None

_ID = sa.Text(collation="C")
_CHECK = "ck_deliveries__kind"
_KINDS = (
    "'notification', 'file', 'note', 'question', 'approval', 'run_completed', 'work_order_completed', "
    "'work_order_review', 'audit_recorded', 'feedback_given', 'rollout_changed', 'task_changed', 'test'"
)


def upgrade() -> None:
    op.create_table(
        "samplings",
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("agent_id", _ID, nullable=False),
        sa.Column(
            "share", sa.Integer(), nullable=False, comment="Of the runs that succeed, in hundredths of a percent"
        ),
        sa.Column(
            "judge",
            postgresql.JSONB(),
            nullable=False,
            comment="contracts.evaluators.Judge; its budget is that of a day",
        ),
        sa.Column(
            "looked_until",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="The end of the last run that was looked at",
        ),
        sa.Column("looked_id", sa.Text(), server_default=sa.text("''"), nullable=False, comment="The id of that run"),
        sa.Column(
            "reference_from",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="The scores after it are compared with the first of them",
        ),
        sa.Column(
            "windows",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="How many windows were compared with this reference",
        ),
        sa.Column("drift", postgresql.JSONB(), nullable=True, comment="contracts.http.sampling.Drift: the last one"),
        sa.Column("created_by", _ID, nullable=False, comment="The key of the request, or the person of its session"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenants.id"], name=op.f("fk_samplings__tenant_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("tenant_id", "agent_id", name=op.f("pk_samplings")),
        comment="Which share of the live runs of an agent a model judges, and by what.",
    )
    op.create_table(
        "run_samples",
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("agent_id", _ID, nullable=False),
        sa.Column("agent_version", sa.Integer(), nullable=True, comment="That the run used"),
        sa.Column("thread_id", _ID, nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("judge_run_id", _ID, nullable=True),
        sa.Column("score", sa.Float(), nullable=True, comment="From 0 to 1; null is not judged"),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("cost_usd", sa.Numeric(18, 8), nullable=True),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("state IN ('pending', 'running', 'done')", name=op.f("ck_run_samples__state")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_samples__run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_run_samples")),
        comment="A live run that was chosen to be judged, and its score. Deleted with the run.",
    )
    op.create_index(
        "ix_run_samples__open",
        "run_samples",
        ["tenant_id", "agent_id", "run_id"],
        postgresql_where=sa.text("state <> 'done'"),
    )
    op.create_index(
        op.f("ix_run_samples__tenant_id_agent_id_judged_at"), "run_samples", ["tenant_id", "agent_id", "judged_at"]
    )
    for statement in (*protect("samplings"), *protect("run_samples"), *audit({"samplings"})):
        op.get_bind().exec_driver_sql(statement)
    _replace(f"{_KINDS}, 'score_drifted'")


def downgrade() -> None:
    op.execute("DELETE FROM deliveries WHERE kind = 'score_drifted'")
    _replace(_KINDS)
    op.drop_table("run_samples")
    op.drop_table("samplings")


def _replace(kinds: str) -> None:
    op.drop_constraint(op.f(_CHECK), "deliveries", type_="check")
    # Each row fulfils it already: no scan while the table is locked.
    op.execute(f"ALTER TABLE deliveries ADD CONSTRAINT {_CHECK} CHECK (kind IN ({kinds})) NOT VALID")
    op.execute(f"ALTER TABLE deliveries VALIDATE CONSTRAINT {_CHECK}")
