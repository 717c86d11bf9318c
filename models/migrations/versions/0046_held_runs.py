"""Runs that are held while their model provider cannot be used, and turns that are taken back for another try."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)
_NEXT_TRY = "The next try of a held run; null: of any worker that can. Of others: a try was granted"


def upgrade() -> None:
    op.add_column("runs", sa.Column("hold", sa.Text(), nullable=True, comment="Why it is queued and not to be claimed"))
    op.add_column(
        "runs",
        sa.Column(
            "hold_detail",
            postgresql.JSONB(),
            nullable=True,
            comment="contracts.waits.HoldDetail, of the latest hold",
        ),
    )
    op.add_column(
        "runs",
        sa.Column("held_since", _TIME, nullable=True, comment="When the first hold since its last step began"),
    )
    op.add_column("runs", sa.Column("held_until", _TIME, nullable=True, comment=_NEXT_TRY))
    # Valid for all rows, since the column is new: so nothing is scanned.
    op.execute("ALTER TABLE runs ADD CONSTRAINT ck_runs__hold CHECK (hold IN ('provider')) NOT VALID")
    op.execute("ALTER TABLE runs VALIDATE CONSTRAINT ck_runs__hold")
    _replace("run_attempts", "ended", "'waiting', 'requeued', 'lost', 'engine_error', 'held', 'failed'")
    _replace("thread_heads", "move", "'turn', 'fork', 'compaction', 'retry'")


def downgrade() -> None:
    op.execute("UPDATE run_attempts SET ended = 'requeued' WHERE ended IN ('held', 'failed')")
    op.execute("DELETE FROM thread_heads WHERE move = 'retry'")
    _replace("thread_heads", "move", "'turn', 'fork', 'compaction'")
    _replace("run_attempts", "ended", "'waiting', 'requeued', 'lost', 'engine_error'")
    for column in ("held_until", "held_since", "hold_detail", "hold"):
        op.drop_column("runs", column)


def _replace(table: str, column: str, words: str) -> None:
    name = f"ck_{table}__{column}"
    op.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({column} IN ({words})) NOT VALID")
    op.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")
