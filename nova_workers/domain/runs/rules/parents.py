"""Resolves the waits of parent runs with the results of their child runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nova_workers.contracts.content import text_block
from nova_workers.contracts.runs import Doorbell
from nova_workers.contracts.waits import AskAgent, AskUser, AwaitOrchestration
from nova_workers.domain.waits.sql.records import Resolution, Wait, find_waits_of_ended_children, resolve_wait
from nova_workers.ledger.database import Connection

_ENDS: Mapping[str, str] = {"succeeded": "is complete", "canceled": "was killed"}


async def resolve_parents(connection: Connection, child_run_ids: Sequence[str]) -> list[Doorbell]:
    """Resolve waits on ended child runs in the caller's transaction; return doorbells for the parent runs."""
    bells: list[Doorbell] = []
    for wait in await find_waits_of_ended_children(connection, child_run_ids=child_run_ids):
        _, bell = await resolve_wait(connection, wait, child_resolution(wait))
        if bell is not None:
            bells.append(bell)
    return bells


def child_resolution(wait: Wait) -> Resolution:
    """Return the resolution of a wait whose child run has ended."""
    status, text = wait.child_end or ("failed", "")
    request = wait.request
    if isinstance(request, AwaitOrchestration):
        return _orchestration_resolution(request, status, text)
    agent_id = request.agent_id if isinstance(request, AskAgent) else None
    if isinstance(request, AskUser):
        agent_id = request.escalate_to
    record = {"child_run_id": wait.child_run_id, "status": status}
    if status == "succeeded":
        message = text if text.strip() else f"({agent_id} ended without a word.)"
        if isinstance(request, AskUser):
            record["text"] = message
        return Resolution("resolved", record, (text_block(message),))
    message = f"{agent_id} did not answer; its run {status}{': ' + text if text else ''}."
    return Resolution("resolved", record, (text_block(message),), failed=True, error=message)


def _orchestration_resolution(request: AwaitOrchestration, status: str, text: str) -> Resolution:
    record = {"orchestration_id": request.orchestration_id, "status": status}
    message = f"Orchestration {request.orchestration_id} {_ENDS.get(status, status)}."
    message = "\n\n".join(filter(None, (message, text)))
    if status == "succeeded":
        return Resolution("resolved", record, (text_block(message),))
    return Resolution("resolved", record, (text_block(message),), failed=True, error=message)
