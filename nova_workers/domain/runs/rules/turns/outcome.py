"""Derives the outcome of a run from the engine's result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, assert_never

from nova_workers.base.errors import EngineErrorKind, RunLost
from nova_workers.contracts.content import ContentBlock, Message, text_block, text_of
from nova_workers.contracts.engine import EngineError, EngineResult, StepRecord, StopReason, ToolCall
from nova_workers.contracts.runs import SHARED_LOSSES, Claim, FinishStatus
from nova_workers.contracts.steps import INTERRUPTED, NOT_ANSWERED, NOT_BEGUN, NOT_PERMITTED_YET
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.runs.sql.resume import Journal
from nova_workers.domain.threads.rules.lease import HeldRun

_UNANSWERED: Final[Mapping[str, tuple[EngineErrorKind, str]]] = {
    "turns": ("model_error", "max_turns"),
    "tokens": ("budget_exceeded", "token_budget"),
    "cost": ("budget_exceeded", "cost_budget_usd"),
}
"""The kind of the error and the agent's setting, by the limit that ended the turn."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt: the run ends with a status, is requeued, or is suspended."""

    status: FinishStatus | Literal["requeue", "suspend"]
    stop_reason: StopReason
    text: str = ""
    error: EngineError | None = None
    step: StepRecord | None = None
    """The last step, committed in the same transaction as the end."""
    result: EngineResult | None = None


def judge(run: HeldRun, result: EngineResult, final_step: StepRecord | None) -> Outcome:
    """Return the outcome for an engine's result.

    Raises:
        RunLost: The turn was stopped because another claim holds the run.
    """
    error = result.error
    match result.stop_reason:
        case "aborted":
            return _aborted(run, result, final_step)
        case _ if result.deferred:
            return Outcome("suspend", "tool_use", result=result)
        case "tool_use" if run.stop_at_step and final_step is None:
            # With a final step the turn reached its limit too. That step is not committed, so the run ends.
            return Outcome("requeue", "tool_use")
        case "error" | "timeout":
            error = error or EngineError("timeout", "The turn took longer than its limit.", retryable=True)
        case "tool_use" | "max_tokens":
            if error is None and run.claim.agent.output_schema is not None:
                # Only at the end of a turn has the engine checked the answer.
                error = _unanswered(result)
        case "end_turn":
            pass
        case _:
            assert_never(result.stop_reason)
    status = "succeeded" if error is None else "failed"
    return Outcome(status, result.stop_reason, result.text, error, final_step, result)


def _aborted(run: HeldRun, result: EngineResult, final_step: StepRecord | None) -> Outcome:
    if run.abort.reason == "lost":
        raise RunLost("The lease was lost; the turn was stopped.", run_id=run.claim.run_id)
    if run.abort.reason == "drain":
        return Outcome("requeue", "aborted")
    return Outcome("canceled", "aborted", result.text, step=final_step, result=result)


def _unanswered(result: EngineResult) -> EngineError:
    """Return the error of a run whose turn a limit ended before the answer that its output schema requires."""
    kind, limit = _UNANSWERED.get(result.limit or "", ("model_error", "max_tokens"))
    return EngineError(
        kind,
        f"The turn reached its limit ({limit}) before an answer that fulfils the output schema, so there is none. Give "
        "the agent a higher limit, or less to do in one turn.",
        retryable=False,
    )


def ended_before_start(run: HeldRun, journal: Journal) -> Outcome | None:
    """Return the outcome of a run that must not be executed, or None."""
    claim = run.claim
    text = _partial_text(journal)
    step = close_journal(journal)
    if claim.failed_for is not None:
        why = f"A person ended the run: {claim.failed_for}"
        return Outcome("failed", "error", text, EngineError("terminated", why, retryable=True), step)
    if claim.cancel_reason is not None:
        return Outcome("canceled", "aborted", text, step=step)
    if claim.max_attempts_spent:
        return Outcome("failed", "error", text, EngineError("worker_lost", _why_lost(claim), retryable=True), step)
    return None


def _why_lost(claim: Claim) -> str:
    alone = claim.losses - SHARED_LOSSES
    where = f", {alone} times alone in a process of its own," if alone > 0 else ""
    cause = (
        "It probably ends the process; check its tools and its memory."
        if alone > 0
        else ("If it crashed the workers, check their memory; otherwise send the message again.")
    )
    return f"The run lost its worker {claim.losses} times{where} and is not tried again. {cause}"


def failed(error: EngineError, journal: Journal) -> Outcome:
    """Return the outcome of a run that could not be executed."""
    return Outcome("failed", "error", _partial_text(journal), error, close_journal(journal))


def out_of_time(journal: Journal) -> Outcome:
    """Return the outcome of a run whose time limit expired before its turn could continue."""
    error = EngineError("timeout", "The run took longer than its time limit.", retryable=True)
    text = _partial_text(journal)
    result = EngineResult(text, "timeout", error=error, limit="time")
    return Outcome("failed", "timeout", text, error, close_journal(journal), result)


def not_stored(error: Exception, journal: Journal, unwritten: StepRecord | None) -> Outcome:
    """Return the outcome of a run after a permanently failed write: keep what is in the ledger, omit the rest.

    Args:
        error: The exception of the write.
        journal: The committed journal.
        unwritten: The step that could not be written. The usage of its response is counted.
    """
    why = (
        f"The turn produced something that the ledger cannot store ({type(error).__name__}), so its last step is "
        "omitted; the worker's log has the details. The thread continues with its next message."
    )
    outcome = failed(EngineError("unknown", why, retryable=False), journal)
    if unwritten is None:
        return outcome
    step = outcome.step or StepRecord(unwritten.index, (), final=True)
    # The finish counts the usage of a response only if the ledger does not have the response yet.
    return replace(outcome, step=replace(step, usage=unwritten.usage, tool_usage=unwritten.tool_usage))


def close_journal(journal: Journal) -> StepRecord | None:
    """Return the last step with every open call reported as interrupted, or None if no call is open.

    Its first message is in the journal already; writing it again at the same position changes nothing.
    """
    last = journal.steps[-1] if journal.steps else None
    if last is None or last.complete:
        return None
    calls = tuple(call if call.result is not None else _closed(call, journal) for call in last.tool_calls)
    messages = (*last.messages, Message("user", tuple(_result_block(call) for call in calls)))
    return replace(last, messages=messages, tool_calls=calls, final=True, usage=TokenUsage())


def _closed(call: ToolCall, journal: Journal) -> ToolCall:
    """Return a call without a result as interrupted, with what is known of it."""
    match call.status, journal.waits.get(call.id):
        # One that asked a person began before, and was to be made again.
        case "approved", _ if call.started_at is None:
            known = NOT_BEGUN
        # Without a wait, its worker died before the run waited for the permission.
        case "deferred", "approval" | None:
            known = NOT_PERMITTED_YET
        case "deferred", _:
            known = NOT_ANSWERED
        case _:
            known = INTERRUPTED
    return replace(call, status="interrupted", error=known, result=(text_block(known),))


def with_results(step: StepRecord, recorded: Mapping[str, ToolCall]) -> StepRecord:
    """Return a step with the recorded results of its interrupted calls, in the calls and in what the model reads.

    Args:
        step: The last step of a turn.
        recorded: Calls that the ledger has results of, by id.
    """
    calls = {
        call.id: replace(
            call, status=known.status, result=known.result, error=known.error, completed_at=known.completed_at
        )
        for call in step.tool_calls
        if call.status == "interrupted" and (known := recorded.get(call.id)) is not None
    }
    messages = tuple(
        replace(message, content=tuple(_with_result(block, calls) for block in message.content))
        for message in step.messages
    )
    return replace(step, messages=messages, tool_calls=tuple(calls.get(call.id, call) for call in step.tool_calls))


def _with_result(block: ContentBlock, calls: Mapping[str, ToolCall]) -> ContentBlock:
    call = calls.get(str(block.get("tool_use_id")))
    return block if call is None or block.get("type") != "tool_result" else _result_block(call)


def _result_block(call: ToolCall) -> ContentBlock:
    return {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": list(call.result or ()),
        "is_error": call.status != "completed",
    }


def _partial_text(journal: Journal) -> str:
    texts = (
        text_of(message.content) for step in journal.steps for message in step.messages if message.role == "assistant"
    )
    return "\n\n".join(text for text in texts if text)
