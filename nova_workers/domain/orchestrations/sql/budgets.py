"""What is recorded once of an orchestration's budget: that a part of it is used, and the master's last call."""

from __future__ import annotations

from nova_workers.base.ids import new_id
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.domain.orchestrations.sql.changes import news_of_message
from nova_workers.ledger.database import Connection

# A progress report of the master, for people. A repeated key inserts nothing.
_NOTE = """
INSERT INTO orchestration_messages (id, tenant_id, orchestration_id, type, source_id, target_id, correlation_id,
                                    payload, send_key, delivered_at)
SELECT :id, o.tenant_id, o.id, 'PROGRESS_UPDATE', o.master_id, o.master_id, :id,
       jsonb_build_object('text', :text::text, 'step', :step::int), :send_key, now()
  FROM orchestrations o WHERE o.id = :orchestration_id
ON CONFLICT (orchestration_id, send_key) DO NOTHING
RETURNING id
"""
_STEP = """
SELECT (payload->>'step')::int FROM orchestration_messages
 WHERE orchestration_id = :orchestration_id AND send_key = :send_key
"""


async def report_used(connection: Connection, orchestration_id: str, text: str, *, percent: int) -> TreeNews | None:
    """Record that a part of the budget is used; return the event of it, or None if it was recorded before."""
    message_id = await _note(connection, orchestration_id, text, f"budget {percent}", step=None)
    return None if message_id is None else await news_of_message(connection, orchestration_id, message_id)


async def take_last_call(connection: Connection, orchestration_id: str, text: str, *, turn_id: str, step: int) -> bool:
    """Take the one call that the master's turn may make without budget. False if an earlier step was that call.

    A worker that died during the call did not commit its step, so the next one takes it again.
    """
    key = f"last call {turn_id}"
    if await _note(connection, orchestration_id, text, key, step=step) is not None:
        return True
    taken = await connection.fetchval(_STEP, orchestration_id=orchestration_id, send_key=key)
    return bool(taken == step)


async def _note(connection: Connection, orchestration_id: str, text: str, key: str, *, step: int | None) -> str | None:
    found = await connection.fetchval(
        _NOTE, id=new_id("omsg"), orchestration_id=orchestration_id, text=text, send_key=key, step=step
    )
    return None if found is None else str(found)
