"""Threads that were imported with their messages."""

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None

_COMMENTS = (
    ("turns", "run_id", "Null for a compaction", "Null for a compaction and for an imported turn"),
    ("upkeep_cursors", "work", "backfill or threads", "backfill, imports or threads"),
    (
        "upkeep_cursors",
        "target",
        "The agent whose threads; empty for the backfill",
        "The agent whose threads; the imported thread; empty for the backfill",
    ),
)


def upgrade() -> None:
    op.add_column(
        "threads",
        sa.Column(
            "imported_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When its first turns were imported from elsewhere",
        ),
    )
    _replace_moves("'turn', 'fork', 'compaction', 'retry', 'import'")
    for table, column, _, comment in _COMMENTS:
        op.execute(f"COMMENT ON COLUMN {table}.{column} IS '{comment}'")


def downgrade() -> None:
    op.execute("DELETE FROM upkeep_cursors WHERE work = 'imports'")
    op.execute("DELETE FROM thread_heads WHERE move = 'import'")
    _replace_moves("'turn', 'fork', 'compaction', 'retry'")
    op.drop_column("threads", "imported_at")
    for table, column, comment, _ in _COMMENTS:
        op.execute(f"COMMENT ON COLUMN {table}.{column} IS '{comment}'")


def _replace_moves(words: str) -> None:
    op.execute("ALTER TABLE thread_heads DROP CONSTRAINT ck_thread_heads__move")
    op.execute(f"ALTER TABLE thread_heads ADD CONSTRAINT ck_thread_heads__move CHECK (move IN ({words})) NOT VALID")
    op.execute("ALTER TABLE thread_heads VALIDATE CONSTRAINT ck_thread_heads__move")
