"""Says what went wrong in the words of the person who wrote: what happened, and what they can do."""

import re
from collections.abc import Mapping
from typing import Final

from nova_workers.base.errors import EngineErrorKind, IllegalTransition, NotFound, Rejected
from nova_workers.channels.answers import NoAnswer

FAULT: Final = "The message could not be accepted, by a fault of the fleet. Send it again later."
_AGAIN: Final = "Send your message again."
_OPERATOR: Final = "the person who runs this bot"

_FAILURES: Final[Mapping[EngineErrorKind, str]] = {
    "context_overflow": "The conversation is too long for the model. Begin a new one with /new.",
    "compaction_failure": "The conversation is too long, and could not be shortened. Begin a new one with /new.",
    "auth_failure": f"The model provider refuses the fleet's key. Only {_OPERATOR} can change that.",
    "budget_exceeded": f"The budget is spent. Only {_OPERATOR} can raise it.",
    "rate_limit": "The model gets too many requests at the moment. Send your message again in a few minutes.",
    "model_error": f"The model failed at this message. {_AGAIN[:-1]}, or put it in other words.",
    "timeout": "The answer took longer than it may. Ask for less at once.",
    "worker_lost": f"The computer that worked on the answer failed repeatedly. {_AGAIN}",
    "nondeterminism": f"The agent's program was changed while it worked on the answer. {_AGAIN}",
    "engine_error": f"The agent failed by a fault of the fleet. {_AGAIN}",
    "terminated": f"A person ended the work on the answer. {_AGAIN}",
    "unknown": f"The agent failed. {_AGAIN}",
}
"""The words for each kind of a run's error."""

_PLACE: Final = re.compile(r"\A[a-z_]+(\.[a-z_0-9]+)*: ")
"""The field of a request that a refusal begins with, such as ``message.0.source: ``."""


def failure_words(kind: str | None, run_id: str) -> str:
    """Return why a run gave no answer, with the run's id, which its operator finds the details by."""
    words = next((words for known, words in _FAILURES.items() if known == kind), _FAILURES["unknown"])
    return f"{words}\n({run_id})"


def refusal_words(error: Rejected) -> str:
    """Return why an update was not accepted."""
    match error:
        case NoAnswer():
            return error.message
        case IllegalTransition():
            return "This question is closed: it was answered, or is not needed any more. Send a message instead."
        case NotFound():
            return "What this belongs to was deleted. Send a message instead."
        case _:
            reason = _PLACE.sub("", error.message)
            return f"This could not be accepted: {reason[:1].lower()}{reason[1:]}"
