"""Waits: a call may wait again once its first wait is over, as one does that was permitted and then asks a person."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_NAME = "uq_run_waits__run_id_tool_call_id"
_COLUMNS = ["run_id", "tool_call_id"]
_WORDS = "What a run waits for, or waited for, and until when. Of a tool call one at a time is open."
_WORDS_BEFORE = "What a waiting run waits for, and until when. One row a tool call."


def upgrade() -> None:
    op.drop_index(_NAME, "run_waits")
    op.create_index(_NAME, "run_waits", _COLUMNS, unique=True, postgresql_where=sa.text("status = 'open'"))
    op.create_table_comment("run_waits", _WORDS, existing_comment=_WORDS_BEFORE)


def downgrade() -> None:
    # Of several waits of a call the latest stays: ids grow with time.
    op.execute(
        "DELETE FROM run_waits o USING run_waits n"
        " WHERE n.run_id = o.run_id AND n.tool_call_id = o.tool_call_id AND n.id > o.id"
    )
    op.drop_index(_NAME, "run_waits")
    op.create_index(_NAME, "run_waits", _COLUMNS, unique=True)
    op.create_table_comment("run_waits", _WORDS_BEFORE, existing_comment=_WORDS)
