"""Rollouts of versions of agents, and a kind of delivery for them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from nova_workers.base.release import part

audit = part("models.rights.audit").audit
protect = part("models.rights.row_security").protect

revision = "0086"
down_revision = "0085"
branch_labels = None
depends_on = None

_ID = sa.Text(collation="C")
_CHECK = "ck_deliveries__kind"
_KINDS = (
    "'notification', 'file', 'note', 'question', 'approval', 'run_completed', 'work_order_completed', "
    "'work_order_review', 'audit_recorded', 'feedback_given', 'task_changed', 'test'"
)


def upgrade() -> None:
    op.create_table(
        "rollouts",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("agent_id", _ID, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False, comment="The candidate"),
        sa.Column("baseline_version", sa.Integer(), nullable=False, comment="The version that is current meanwhile"),
        sa.Column("status", sa.Text(), server_default=sa.text("'running'"), nullable=False),
        sa.Column("steps", postgresql.JSONB(), nullable=False, comment="contracts.http.rollouts.RolloutStep"),
        sa.Column(
            "step",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Index of the step that it is at; a change of it is guarded by it",
        ),
        sa.Column(
            "share",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Of this step, in hundredths of a percent of the threads",
        ),
        sa.Column(
            "step_ends_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Null: it stays until a person advances it",
        ),
        sa.Column(
            "min_runs",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="Ended runs of the candidate before a step may end by itself",
        ),
        sa.Column("guardrails", postgresql.JSONB(), nullable=False, comment="contracts.http.rollouts.RolloutGuardrail"),
        sa.Column(
            "looks",
            postgresql.JSONB(),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="Of each guardrail, the last look that was judged",
        ),
        sa.Column(
            "run_metadata",
            postgresql.JSONB(),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="Only runs with this metadata",
        ),
        sa.Column("key_id", _ID, nullable=True, comment="Only threads that this API key began"),
        sa.Column(
            "breach",
            postgresql.JSONB(),
            nullable=True,
            comment="contracts.http.rollouts.RolloutBreach: why it stopped itself",
        ),
        sa.Column("reason", sa.Text(), nullable=True, comment="Why it ended"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("promoted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("status IN ('running', 'waiting', 'promoted', 'stopped')", name=op.f("ck_rollouts__status")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenants.id"], name=op.f("fk_rollouts__tenant_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollouts")),
        comment=(
            "A candidate version of an agent, which executes a growing share of the runs beside the current version."
        ),
    )
    op.create_index(
        "uq_rollouts__open",
        "rollouts",
        ["tenant_id", "agent_id"],
        unique=True,
        postgresql_where=sa.text("status IN ('running', 'waiting')"),
    )
    op.create_index(op.f("ix_rollouts__tenant_id_agent_id_id"), "rollouts", ["tenant_id", "agent_id", "id"])
    for statement in (*protect("rollouts"), *audit({"rollouts"})):
        op.get_bind().exec_driver_sql(statement)
    # Nullable, without a default: each table is locked for an instant, and not rewritten.
    op.add_column(
        "threads", sa.Column("rollout_id", _ID, nullable=True, comment="The latest rollout whose candidate it used")
    )
    op.add_column(
        "turns",
        sa.Column("rollout_id", _ID, nullable=True, comment="The rollout in which it took part, with either version"),
    )
    _replace(f"{_KINDS}, 'rollout_changed'")


def downgrade() -> None:
    op.execute("DELETE FROM deliveries WHERE kind = 'rollout_changed'")
    _replace(_KINDS)
    op.drop_column("turns", "rollout_id")
    op.drop_column("threads", "rollout_id")
    op.drop_table("rollouts")


def _replace(kinds: str) -> None:
    op.drop_constraint(op.f(_CHECK), "deliveries", type_="check")
    # Each row fulfils it already: no scan while the table is locked.
    op.execute(f"ALTER TABLE deliveries ADD CONSTRAINT {_CHECK} CHECK (kind IN ({kinds})) NOT VALID")
    op.execute(f"ALTER TABLE deliveries VALIDATE CONSTRAINT {_CHECK}")
