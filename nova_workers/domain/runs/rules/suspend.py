"""Converts the deferred calls of a turn to waits of the run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from nova_workers.contracts.engine import DeferredCall, ToolCall
from nova_workers.contracts.waits import (
    AskAgent,
    AskUser,
    AwaitMessages,
    AwaitOrchestration,
    CallClientTool,
    Pause,
    WaitRequest,
    wait_adapter,
)
from nova_workers.domain.waits.sql.suspend import NewWait


def new_waits(deferred: Iterable[DeferredCall], *, now: datetime) -> list[NewWait]:
    """Return a wait for each deferred call."""
    return [_new_wait(each.call, wait_adapter.validate_python(each.request), now) for each in deferred]


def _new_wait(call: ToolCall, request: WaitRequest, now: datetime) -> NewWait:
    call_id = call.id
    if isinstance(request, AskAgent):
        return NewWait(call_id, request, request.timeout_s, agent_id=request.agent_id, message=request.message)
    if isinstance(request, AskUser | CallClientTool):
        began_at = call.started_at if isinstance(request, AskUser) and request.repeats_call else None
        return NewWait(call_id, request, request.expires_in_s, started_at=began_at)
    if isinstance(request, AwaitMessages):
        return NewWait(call_id, request, request.timeout_s)
    if isinstance(request, AwaitOrchestration):
        return NewWait(call_id, request, child_run_id=request.master_run_id)
    if isinstance(request, Pause):
        return NewWait(call_id, request, max((request.until - now).total_seconds(), 0.0))
    return NewWait(call_id, request)
