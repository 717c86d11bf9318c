"""The end of a run that was asked for is the result of the call that asked."""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.contracts.content import text_block
from nova_workers.contracts.runs import Doorbell
from nova_workers.contracts.waits import AskAgent, AskUser
from nova_workers.ledger.database import Connection
from nova_workers.ledger.waits.records import Resolution, Wait, find_answered_children, resolve_wait

__all__ = ["from_child", "resolve_parents"]


async def resolve_parents(connection: Connection, child_run_ids: Sequence[str]) -> list[Doorbell]:
    """Give parents the results of children that are over, in the caller's transaction, and return whom to ring for."""
    bells: list[Doorbell] = []
    for wait in await find_answered_children(connection, child_run_ids=child_run_ids):
        _, bell = await resolve_wait(connection, wait, from_child(wait))
        if bell is not None:
            bells.append(bell)
    return bells


def from_child(wait: Wait) -> Resolution:
    """Return how a wait ends whose child is over."""
    status, text = wait.child_end or ("failed", "")
    request = wait.request
    who = request.agent_id if isinstance(request, AskAgent) else None
    if isinstance(request, AskUser):
        who = request.escalate_to
    record = {"child_run_id": wait.child_run_id, "status": status}
    if status == "succeeded":
        said = text if text.strip() else f"({who} ended without a word.)"
        return Resolution("resolved", record, (text_block(said),))
    said = f"{who} did not answer; its run {status}{': ' + text if text else ''}."
    return Resolution("resolved", record, (text_block(said),), failed=True, error=said)
