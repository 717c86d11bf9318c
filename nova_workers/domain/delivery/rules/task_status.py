"""The status of a task of the A2A protocol, as its door shows it and notifications send it: a task is a run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import WaitView, describe_question, questions_among

_STATES: Final = {
    "queued": "TASK_STATE_SUBMITTED",
    "running": "TASK_STATE_WORKING",
    "waiting": "TASK_STATE_WORKING",
    "succeeded": "TASK_STATE_COMPLETED",
    "failed": "TASK_STATE_FAILED",
    "canceled": "TASK_STATE_CANCELED",
}


def task_status(task_id: str, run: RunView) -> JsonObject:
    """Return the status of a task: a run that asks its client or a person requires input.

    Args:
        task_id: The task's id: that of the run, or of a message that joined the run's turn.
        run: The run as it is now.

    Returns:
        A `TaskStatus` of the protocol in its JSON form.
    """
    questions = questions_among(run.waits) if run.status == "waiting" else []
    status: JsonObject = {
        "state": "TASK_STATE_INPUT_REQUIRED" if questions else _STATES.get(run.status, "TASK_STATE_WORKING"),
        "timestamp": _timestamp(changed_at(run)),
    }
    if questions:
        parts = [part for wait in questions for part in _question_parts(wait)]
        status["message"] = _message(questions[0].id, task_id, run, parts)
    elif run.status == "failed":
        text = "The run failed." if run.error is None else run.error.message
        status["message"] = _message(f"{task_id}_error", task_id, run, [{"text": text}])
    return status


def changed_at(run: RunView) -> datetime:
    """Return when the status of a run changed last."""
    times = [wait.created_at for wait in run.waits]
    return run.finished_at or max(times, default=run.started_at or run.created_at)


def _question_parts(wait: WaitView) -> list[JsonObject]:
    """Return a question as a text, and as data that an answer can name."""
    asked: dict[str, Any] = {"waitId": wait.id, "kind": wait.request.kind}
    if wait.request.kind == "user":
        asked |= {"options": list(wait.request.options), "onlyOptions": wait.request.only_options}
    return [{"text": describe_question(wait)}, {"data": asked, "mediaType": "application/json"}]


def _message(message_id: str, task_id: str, run: RunView, parts: list[JsonObject]) -> JsonObject:
    return {
        "messageId": message_id,
        "taskId": task_id,
        "contextId": run.thread_id,
        "role": "ROLE_AGENT",
        "parts": parts,
    }


def _timestamp(at: datetime) -> str:
    """Return a time as the protocol has it, to the millisecond."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
