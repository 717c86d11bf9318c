"""I1: each outcome has a reason in the record, and each answer is the one that the model was asked for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from tests.chaos.checker.ledger import Ledger, Run
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import PLAIN_ANSWER, History, Submission, text_of_plan

_MAX_LOSSES = 5
"""The default of `NOVA_RUNS__MAX_ATTEMPTS`."""
_ACKNOWLEDGEMENT = re.compile(r"ack:[\w-]+; ")


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Compare how each run ended with what clients asked for and which faults there were, and its text with its plan.

    A plan that succeeded has the text of all of its steps, each word once; one that was stopped has the beginning of
    it. Acknowledgements of steering are left out: I8 counts them.
    """
    asked = history.first_submissions()
    lost = Counter(attempt.run_id for attempt in ledger.attempts if attempt.ended == "lost")
    texts = _texts(ledger)
    for run in ledger.runs:
        submission = asked.get(run.key or "")
        if not _has_reason(history, run, submission, lost[run.id]):
            why = f" with {run.error}" if run.status == "failed" else ""
            yield Violation("I1", f"{run.id} is {run.status}{why}, without a reason in the record", (str(run),))
        if run.status not in ("succeeded", "failed", "canceled"):
            continue
        text, wanted = texts.get(run.turn_id or "", ""), _wanted(run, submission)
        if wanted is not None and not _is_answer(run, text, wanted):
            evidence = (f"it has {text!r}", f"planned {wanted!r}", str(run))
            yield Violation("I1", f"{run.id} is {run.status} with another text than its plan", evidence)


def _has_reason(history: History, run: Run, submission: Submission | None, losses: int) -> bool:
    match run.status:
        case "failed":
            kind = (run.error or "").partition(":")[0]
            return (
                losses >= _MAX_LOSSES if kind == "worker_lost" else kind == "model_error" and _model_was(history, run)
            )
        case "canceled":
            return run.cancel_requested and _was_canceled(history, run)
        case "merged":
            return submission is not None and submission.on_busy == "steer"
        case _:
            return True


def _model_was(history: History, run: Run) -> bool:
    """Whether the model was unavailable during a run, or so shortly before that it may not have recovered."""
    began = run.created_at if run.started_at is None else run.started_at
    until = history.settled_at if run.finished_at is None else run.finished_at.timestamp()
    return any(
        "outside" in fault.touches and fault.began_at <= until and began.timestamp() <= fault.at + history.bound_s
        for fault in history.faults
    )


def _was_canceled(history: History, run: Run) -> bool:
    """Whether a client canceled a run, or interrupted it after it had begun."""
    if any(ack.path == f"/v1/runs/{run.id}/cancel" for ack in history.acks):
        return True
    until = history.settled_at if run.finished_at is None else run.finished_at.timestamp()
    return run.attempt > 0 and any(
        each.on_busy == "interrupt" and each.thread == run.thread_id and each.at <= until
        for each in history.submissions
    )


def _texts(ledger: Ledger) -> dict[str, str]:
    """Return the text of all responses of each turn, without acknowledgements."""
    texts: dict[str, str] = {}
    for message in ledger.messages:
        if message.kind == "response":
            texts[message.turn_id] = texts.get(message.turn_id, "") + _ACKNOWLEDGEMENT.sub("", message.text)
    return texts


def _wanted(run: Run, submission: Submission | None) -> str | None:
    """Return the text that a run was asked for; None if it depends on the runs before it."""
    if run.trigger_id is not None:
        return PLAIN_ANSWER
    if submission is None or submission.kind != "plan":
        return None
    return text_of_plan(submission.name, submission.words)


def _is_answer(run: Run, text: str, wanted: str) -> bool:
    return text == wanted if run.status == "succeeded" else wanted.startswith(text)
