"""Threads: what began them, the key that did, and whether people pinned or archived them."""

import sqlalchemy as sa
from alembic import op

from nova_workers.base.release import part

changes = part("models.changes")
rights = part("models.rights.audit")

revision = "0077"
down_revision = "0076"
branch_labels = None
depends_on = None

_MARKS = "pinned, archived, "
_MARKS_DIFFER = " OR OLD.pinned IS DISTINCT FROM NEW.pinned OR OLD.archived IS DISTINCT FROM NEW.archived"
_ORIGINS = "'api', 'trigger', 'task', 'agent', 'channel', 'work_order'"


def upgrade() -> None:
    # Without a rewrite: the values of rows that exist are defaults.
    op.add_column(
        "threads", sa.Column("origin", sa.Text(), server_default="api", nullable=False, comment="What began it")
    )
    op.add_column(
        "threads",
        sa.Column(
            "created_by",
            sa.Text(collation="C"),
            nullable=True,
            comment="The API key whose request began it; null for other origins",
        ),
    )
    for name, comment in (
        ("pinned", "Lists for people have it first"),
        ("archived", "Put away: lists for people leave it out"),
    ):
        op.add_column(
            "threads",
            sa.Column(name, sa.Boolean(), server_default=sa.text("false"), nullable=False, comment=comment),
        )
    # The next migration validates it, without a lock that stops readers or writers.
    op.execute(f"ALTER TABLE threads ADD CONSTRAINT ck_threads__origin CHECK (origin IN ({_ORIGINS})) NOT VALID")
    for statement in (*rights.audit({"threads"}), *changes.record_changes({"threads"})):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    # Triggers that name the columns would keep them.
    for statement in (*rights.audit({"threads"}), *changes.record_changes({"threads"})):
        op.get_bind().exec_driver_sql(statement.replace(_MARKS, "").replace(_MARKS_DIFFER, ""))
    op.drop_constraint(op.f("ck_threads__origin"), "threads", type_="check")
    for name in ("origin", "created_by", "pinned", "archived"):
        op.drop_column("threads", name)
