"""Feedback on runs, and a kind of delivery for it."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

audit = part("models.rights.audit").audit
changes = part("models.changes")
protect = part("models.rights.row_security").protect

revision = "0079"
down_revision = "0078"
branch_labels = None
depends_on = None

_ID = sa.Text(collation="C")
_CHECK = "ck_deliveries__kind"
_KINDS = (
    "'notification', 'file', 'note', 'question', 'approval', 'run_completed', 'work_order_completed', "
    "'work_order_review', 'audit_recorded', 'task_changed', 'test'"
)


def upgrade() -> None:
    op.create_table(
        "feedback",
        sa.Column("id", _ID, nullable=False),
        sa.Column("tenant_id", _ID, nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("step", sa.Integer(), nullable=True, comment="Index of the step that it is about; null is the run"),
        sa.Column("thread_id", _ID, nullable=False),
        sa.Column("agent_id", _ID, nullable=False),
        sa.Column("agent_version", sa.Integer(), nullable=True, comment="That the run used"),
        sa.Column("name", sa.Text(), nullable=False, comment="What was judged, such as rating or helpfulness"),
        sa.Column("score", sa.Float(), nullable=True, comment="From -1 to 1"),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("comment", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False, comment="person, user or code"),
        sa.Column(
            "author",
            sa.Text(),
            server_default=sa.text("''"),
            nullable=False,
            comment="The person or program, as the client names it; empty is the key itself",
        ),
        sa.Column("key_id", _ID, nullable=False, comment="The key of the request, or the person of its session"),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("source IN ('person', 'user', 'code')", name=op.f("ck_feedback__source")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_feedback__run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feedback")),
        comment="A score, a label or a comment on a run or on one step of it: one of each name by each author.",
    )
    op.create_index(
        "uq_feedback__of_author",
        "feedback",
        ["run_id", "name", "key_id", "author", "step"],
        unique=True,
        postgresql_nulls_not_distinct=True,
    )
    op.create_index(op.f("ix_feedback__tenant_id_id"), "feedback", ["tenant_id", "id"])
    op.create_index(op.f("ix_feedback__tenant_id_agent_id_id"), "feedback", ["tenant_id", "agent_id", "id"])
    for statement in (*protect("feedback"), *audit({"feedback"}), *changes.record_changes({"feedback"})):
        op.get_bind().exec_driver_sql(statement)
    _replace(f"{_KINDS}, 'feedback_given'")


def downgrade() -> None:
    op.execute("UPDATE api_keys SET scopes = array_remove(scopes, 'feedback') WHERE 'feedback' = ANY(scopes)")
    op.execute("DELETE FROM deliveries WHERE kind = 'feedback_given'")
    _replace(_KINDS)
    for statement in changes.forget_changes({"feedback"}):
        op.get_bind().exec_driver_sql(statement)
    op.drop_table("feedback")


def _replace(kinds: str) -> None:
    op.drop_constraint(op.f(_CHECK), "deliveries", type_="check")
    # Each row fulfils it already: no scan while the table is locked.
    op.execute(f"ALTER TABLE deliveries ADD CONSTRAINT {_CHECK} CHECK (kind IN ({kinds})) NOT VALID")
    op.execute(f"ALTER TABLE deliveries VALIDATE CONSTRAINT {_CHECK}")
