"""The event about a change of a thread's state document. Apart from the document, which code of users imports alone."""

from __future__ import annotations

from nova_workers.contracts.content import text_of
from nova_workers.contracts.events import StateChange
from nova_workers.contracts.steps import ToolCall
from nova_workers.contracts.thread_state import STATE_TOOL, saved_version


def state_change(call: ToolCall, *, agent: str | None = None) -> StateChange | None:
    """Return the event about a call that changed the document, from its arguments and its result; None for others.

    What the ledger has of a call of the turn itself is enough, so that a replay has the same events, and an attempt
    after a crash sends the event that was not sent before it. One of a subagent is only live.

    Args:
        call: A call that ended.
        agent: The subagent that made it.
    """
    if call.tool_name != STATE_TOOL or call.status != "completed":
        return None
    version = saved_version(text_of(call.result or ()))
    value = call.params.get("value")
    if version is None or not isinstance(value, dict):
        return None
    is_patch = call.params.get("action") == "merge"
    return StateChange(
        version=version,
        patch=value if is_patch else None,
        state=None if is_patch else value,
        tool_call_id=call.id,
        agent=agent,
        at=call.completed_at,
    )
