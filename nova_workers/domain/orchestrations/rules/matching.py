"""Which messages end an agent's wait, and what the waiting tool call then returns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nova_workers.contracts.orchestration import RoutedMessage
from nova_workers.contracts.waits import AwaitMessages

_RESULTS = ("TASK_RESULT", "EXPERT_RESPONSE", "PEER_RESPONSE")
_RECEIVABLE = ("QUESTION", "ANSWER", "USER_PROMPT", *_RESULTS)
"""What `wait_for_message` receives."""


@dataclass(frozen=True, slots=True)
class Match:
    """The end of a wait: the messages that it consumes, and the result of its tool call."""

    messages: tuple[RoutedMessage, ...]
    text: str
    failed: bool = False


def match(request: AwaitMessages, pending: Sequence[RoutedMessage]) -> Match | None:
    """Return how pending messages end a wait; None if it goes on.

    A wait for children also ends with a question of one of them: the child waits for the answer, so waiting on would
    be a deadlock. Results that have arrived by then stay pending, for `wait_for_message`.

    Args:
        request: What the agent waits for.
        pending: Its undelivered messages, oldest first.
    """
    if request.sender == "any":
        first = next((message for message in pending if message.type in _RECEIVABLE), None)
        return None if first is None else Match((first,), describe_message(first))
    answers = {
        message.correlation_id: message
        for message in pending
        if message.type in ("ANSWER", *_RESULTS)
        and message.correlation_id is not None
        and message.correlation_id in request.correlation_ids
    }
    if len(answers) == len(set(request.correlation_ids)):
        return _answered(request, answers)
    return _questioned(request, pending)


def _answered(request: AwaitMessages, answers: Mapping[str, RoutedMessage]) -> Match:
    found = tuple(answers[correlation_id] for correlation_id in dict.fromkeys(request.correlation_ids))
    if request.sender == "parent" or (request.sender == "expert" and _has_succeeded(found[0])):
        return Match(found, _text(found[0]))
    return Match(
        found,
        "\n\n".join(describe_message(message) for message in found),
        failed=not any(_has_succeeded(message) for message in found),
    )


def _questioned(request: AwaitMessages, pending: Sequence[RoutedMessage]) -> Match | None:
    if request.sender == "parent":
        return None
    question = next(
        (message for message in pending if message.type == "QUESTION" and message.source_id in request.agent_ids), None
    )
    return None if question is None else interrupted(question)


def interrupted(question: RoutedMessage) -> Match:
    """Return how a child's question ends a wait for something else, which comes later by `wait_for_message`."""
    hint = "Answer with respond_to_child, then receive what you waited for with wait_for_message."
    return Match((question,), f"{describe_message(question)}\n\n{hint}")


def describe_message(message: RoutedMessage) -> str:
    """Return a message as its receiver reads it."""
    sender = message.source_id or "the user"
    match message.type:
        case "QUESTION":
            return f"Question of {sender} (correlation_id {message.correlation_id}):\n{_text(message)}"
        case "TASK_RESULT" | "EXPERT_RESPONSE" | "PEER_RESPONSE":
            role = str(message.payload.get("role", "WORKER")).lower()
            how = "completed its task" if _has_succeeded(message) else _failure(message)
            artifacts = message.payload.get("artifacts")
            extra = f"\nArtifacts: {artifacts}" if artifacts else ""
            return f"{sender} ({role}) {how}:\n{_text(message)}{extra}"
        case "ANSWER":
            return f"Answer of {sender}:\n{_text(message)}"
        case _:
            return f"Message of {sender}:\n{_text(message)}"


def _failure(message: RoutedMessage) -> str:
    code = message.payload.get("error_code")
    return f"did not complete its task ({code})" if code else "did not complete its task"


def _has_succeeded(message: RoutedMessage) -> bool:
    return message.type == "ANSWER" or message.payload.get("success") is True


def _text(message: RoutedMessage) -> str:
    text = message.payload.get("text")
    return str(text) if text else "(no text)"
