"""The outcome of a run for each result of an engine."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from nova_workers.base.errors import RunLost
from nova_workers.base.vocabulary import ToolCallStatus
from nova_workers.contracts.abort import AbortReason, AbortSignal
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.engine import EngineError, EngineResult, StepRecord, StopReason, ToolCall
from nova_workers.contracts.run_options import StoredOptions
from nova_workers.contracts.runs import Claim
from nova_workers.contracts.steps import INTERRUPTED, NOT_ANSWERED, NOT_BEGUN, NOT_PERMITTED_YET
from nova_workers.domain.runs.rules.turns.outcome import close_journal, failed, judge
from nova_workers.domain.runs.sql.resume import Journal
from nova_workers.domain.threads.rules.lease import HeldRun
from tests.requirements import proves
from tests.support.harness.invariants import check_history

_FINAL = StepRecord(1, (Message("assistant", (text_block("bye"),)),), final=True)


def _run(reason: AbortReason | None = None, *, stop_at_step: bool = False) -> HeldRun:
    claim = Claim(
        run_id="run_1",
        tenant_id="ten_1",
        thread_id="thr_1",
        turn_id="turn_1",
        agent_id="nova",
        agent_version=1,
        agent=AgentSpec(name="Nova"),
        fence=1,
        attempt=1,
        max_attempts_spent=False,
        losses=0,
        context_tokens=0,
        cancel_reason=None,
        parent_turn_id=None,
        session_id=None,
        content=(text_block("hi"),),
        model=None,
        max_turns=None,
        options=StoredOptions(),
        queue="interactive",
        source="api",
        depth=0,
        parent_run_id=None,
        task_id=None,
        traceparent=None,
        created_at=datetime.now(UTC),
        claim_latency_s=0.0,
    )
    run = HeldRun(claim, "token", AbortSignal(), renewed_s=0.0, stop_at_step=stop_at_step)
    if reason is not None:
        run.abort.abort(reason)
    return run


@pytest.mark.parametrize(
    ("reason", "stop_at_step", "stop_reason", "final", "status"),
    [
        (None, False, "end_turn", True, "succeeded"),
        (None, False, "max_tokens", True, "succeeded"),
        (None, False, "tool_use", True, "succeeded"),
        (None, False, "error", False, "failed"),
        (None, False, "timeout", True, "failed"),
        ("cancel", False, "aborted", True, "canceled"),
        ("interrupt", False, "aborted", False, "canceled"),
        ("drain", True, "aborted", True, "requeue"),
        (None, True, "tool_use", False, "requeue"),
        (None, True, "tool_use", True, "succeeded"),
        (None, True, "end_turn", True, "succeeded"),
        ("cancel", True, "end_turn", True, "succeeded"),
    ],
)
def test_a_result_becomes_an_outcome(
    reason: AbortReason | None, stop_at_step: bool, stop_reason: StopReason, final: bool, status: str
):
    error = EngineError("model_error", "No.", retryable=False) if stop_reason == "error" else None
    result = EngineResult("text", stop_reason, error=error)
    outcome = judge(_run(reason, stop_at_step=stop_at_step), result, _FINAL if final else None)
    assert outcome.status == status
    assert (outcome.error is not None) == (status == "failed")


def test_a_turn_that_was_stopped_for_a_lost_lease_writes_nothing():
    with pytest.raises(RunLost):
        judge(_run("lost"), EngineResult("", "aborted"), _FINAL)


def _open_step() -> StepRecord:
    calls = (
        ToolCall("a", "x", {}, 0, 0),
        ToolCall("b", "x", {}, 0, 1, "completed", (text_block("result"),)),
        ToolCall("c", "x", {}, 0, 2, "failed", (text_block("no"),)),
    )
    uses = tuple({"type": "tool_use", "id": call.id, "name": "x", "input": {}} for call in calls)
    return StepRecord(0, (Message("assistant", (text_block("Let me see."), *uses)),), calls, complete=False)


def test_an_open_step_is_closed_in_the_order_of_its_calls():
    step = close_journal(Journal((_open_step(),), 2))
    assert step is not None
    assert [call.status for call in step.tool_calls] == ["interrupted", "completed", "failed"]
    assert [block["is_error"] for block in step.messages[1].content] == [True, False, True]
    check_history(step.messages)


@pytest.mark.parametrize(
    ("status", "waited_for", "known"),
    [
        ("pending", None, INTERRUPTED),
        ("running", None, INTERRUPTED),
        ("approved", "approval", NOT_BEGUN),
        ("deferred", "approval", NOT_PERMITTED_YET),
        ("deferred", None, NOT_PERMITTED_YET),
        ("deferred", "agent", NOT_ANSWERED),
    ],
)
@proves("engine.what-is-known")
def test_an_open_call_is_closed_with_what_is_known(status: ToolCallStatus, waited_for: str | None, known: str):
    step = _open_step()
    step = replace(step, tool_calls=(replace(step.tool_calls[0], status=status),))
    waits = {} if waited_for is None else {"a": waited_for}
    closed = close_journal(Journal((step,), 2, waits=waits))
    assert closed is not None
    assert (closed.tool_calls[0].status, closed.tool_calls[0].error) == ("interrupted", known)


def test_a_journal_that_is_complete_needs_no_closing():
    assert close_journal(Journal((), 1)) is None
    assert close_journal(Journal((_FINAL,), 2)) is None


def test_a_failure_keeps_the_partial_text():
    outcome = failed(EngineError("unknown", "It broke.", retryable=True), Journal((_open_step(),), 2))
    assert (outcome.status, outcome.text) == ("failed", "Let me see.")
