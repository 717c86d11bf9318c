"""Runs that start later: the status scheduled, the time of the start, and messages that are collected into one turn."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_STATUSES = "'queued', 'running', 'waiting', 'succeeded', 'failed', 'canceled', 'merged'"
_ON_BUSY = "'enqueue', 'reject', 'interrupt', 'steer'"
_OPEN = "ix_runs__open"


def _replace_words(column: str, words: str) -> None:
    name = op.f(f"ck_runs__{column}")
    op.drop_constraint(name, "runs")
    op.create_check_constraint(name, "runs", f"{column} IN ({words})")


def _replace_open(statuses: str) -> None:
    op.drop_index(_OPEN, "runs")
    op.create_index(_OPEN, "runs", ["tenant_id", "id"], postgresql_where=sa.text(f"status IN ({statuses})"))


def upgrade() -> None:
    op.add_column(
        "runs",
        sa.Column(
            "start_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="Not before; while it is scheduled it is in no line",
        ),
    )
    _replace_words("status", f"'scheduled', {_STATUSES}")
    _replace_words("on_busy", f"{_ON_BUSY}, 'collect'")
    _replace_open("'scheduled', 'queued', 'running', 'waiting'")
    scheduled = sa.text("status = 'scheduled'")
    op.create_index("ix_runs__scheduled", "runs", ["start_at"], postgresql_where=scheduled)
    op.create_index("ix_runs__scheduled_of_thread", "runs", ["thread_id"], postgresql_where=scheduled)


def downgrade() -> None:
    # What was accepted is not lost: it starts now.
    op.execute("UPDATE runs SET status = 'queued', queued_at = now(), rang_at = now() WHERE status = 'scheduled'")
    op.execute("UPDATE runs SET on_busy = 'enqueue' WHERE on_busy = 'collect'")
    op.drop_index("ix_runs__scheduled_of_thread", "runs")
    op.drop_index("ix_runs__scheduled", "runs")
    _replace_words("status", _STATUSES)
    _replace_words("on_busy", _ON_BUSY)
    _replace_open("'queued', 'running', 'waiting'")
    op.drop_column("runs", "start_at")
