"""Converts the deferred calls of a turn to waits of the run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from nova_workers.contracts.engine import DeferredCall
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
    return [_new_wait(call.call.id, wait_adapter.validate_python(call.request), now) for call in deferred]


def _new_wait(call_id: str, request: WaitRequest, now: datetime) -> NewWait:
    if isinstance(request, AskAgent):
        return NewWait(call_id, request, request.timeout_s, agent_id=request.agent_id, message=request.message)
    if isinstance(request, AskUser | CallClientTool):
        return NewWait(call_id, request, request.expires_in_s)
    if isinstance(request, AwaitMessages):
        return NewWait(call_id, request, request.timeout_s)
    if isinstance(request, AwaitOrchestration):
        return NewWait(call_id, request, child_run_id=request.master_run_id)
    if isinstance(request, Pause):
        return NewWait(call_id, request, max((request.until - now).total_seconds(), 0.0))
    return NewWait(call_id, request)
