"""How a turn ended, in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from nova_workers.base.vocabulary import ENDED_TURNS, StopReason
from nova_workers.contracts.http.wire import RunView, TurnView

_LIMITS: Mapping[str, str] = {
    "turns": "The turn ended at its limit of model calls.",
    "tokens": "The turn ended at its limit of tokens.",
    "cost": "The turn ended at its limit of cost.",
    "time": "The turn ended at its limit of time.",
}
_ERRORS: Mapping[str, str] = {
    "context_overflow": "The conversation is longer than the model can read",
    "auth_failure": "The model provider refused the key",
    "rate_limit": "The model provider takes no more requests for now",
    "model_error": "The model provider failed",
    "timeout": "The turn took longer than it may",
    "compaction_failure": "The older part of the conversation could not be summarised",
    "worker_lost": "The workers that executed this turn were lost",
    "budget_exceeded": "The budget is spent",
    "engine_error": "An error in the fleet's own code ended the turn",
    "nondeterminism": "The agent's code does something else than when the run began",
    "terminated": "A person ended the turn",
    "unknown": "The turn failed",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Attributes: `tone` is a colour of the console; `text` says what happened; `detail` is the error's own message."""

    tone: str
    text: str
    detail: str | None = None


def outcome_of(turn: TurnView, run: RunView | None) -> Outcome | None:
    """Return how a turn ended; None for one that is open or ended well."""
    if turn.error is not None:
        words = _ERRORS.get(turn.error.kind, f"The turn failed ({turn.error.kind.replace('_', ' ')})")
        return Outcome("bad", f"{words}.", turn.error.message)
    if turn.status not in ENDED_TURNS:
        return None
    if run is not None and run.limit_reached is not None:
        return Outcome("warn", _LIMITS[run.limit_reached])
    words = _reason(turn.stop_reason)
    if words is None and turn.status != "succeeded":
        words = f"The turn ended as {turn.status}."
    return None if words is None else Outcome("warn", words)


def _reason(reason: StopReason | None) -> str | None:
    match reason:
        case "max_tokens":
            return "The answer is cut off: the model reached its limit of output tokens."
        case "timeout":
            return "The turn ended at its limit of time."
        case "aborted":
            return "Canceled. The text so far is kept."
        case "tool_use":
            return "The turn ended between two steps."
        case "end_turn" | "error" | None:
            return None
        case _:
            assert_never(reason)
