"""Stop reasons are words of their vocabularies.

The release before writes no other word. Rows are compared with them while others read and write.
"""

from alembic import op

revision = "0061"
down_revision = "0060"
branch_labels = None
depends_on = None

_OF_TURNS = "'end_turn', 'max_tokens', 'tool_use', 'timeout', 'aborted', 'error'"
_OF_WORK = (
    "'ok', 'needs_human', 'in_progress', 'provider_failed', 'router_failed', 'ajv_failed', 'json_parse_failed', "
    "'rate_limited', 'cost_cap_exceeded', 'round_cap_exceeded', 'invalid_request'"
)
_WORDS = {"runs": _OF_TURNS, "turns": _OF_TURNS, "work_orders": _OF_WORK, "work_order_parts": _OF_WORK}


def upgrade() -> None:
    for table, words in _WORDS.items():
        _drop(table)
        op.execute(
            f"ALTER TABLE {table} ADD CONSTRAINT ck_{table}__stop_reason CHECK (stop_reason IN ({words})) NOT VALID"
        )
    # The lock that adding takes ends here. To validate takes one that stops neither readers nor writers.
    with op.get_context().autocommit_block():
        for table in _WORDS:
            op.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT ck_{table}__stop_reason")


def downgrade() -> None:
    for table in _WORDS:
        _drop(table)


def _drop(table: str) -> None:
    # It may not be there: after a crash between the two steps, the upgrade begins again.
    op.execute(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS ck_{table}__stop_reason")
