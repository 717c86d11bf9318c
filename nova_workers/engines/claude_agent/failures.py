"""What the program reports as an error, in the engine contract's vocabulary."""

import re

from nova_workers.contracts.content import JsonObject
from nova_workers.errors import EngineErrorKind, EngineFailure

__all__ = ["failure_of", "program_ended"]

_BY_STATUS: dict[int, tuple[EngineErrorKind, bool]] = {
    400: ("model_error", False),
    401: ("auth_failure", False),
    402: ("auth_failure", False),
    403: ("auth_failure", False),
    404: ("model_error", False),
    408: ("model_error", True),
    413: ("context_overflow", False),
    429: ("rate_limit", True),
}
_BY_WORDS: tuple[tuple[re.Pattern[str], EngineErrorKind, bool], ...] = (
    (re.compile(r"prompt is too long|context (window|limit)|too many tokens", re.I), "context_overflow", False),
    (re.compile(r"not logged in|invalid api key|/login|authenticat", re.I), "auth_failure", False),
    (re.compile(r"rate.?limit", re.I), "rate_limit", True),
    (re.compile(r"overloaded|api error|connection|timed? ?out|stream", re.I), "model_error", True),
)
"""Errors that carry no status: the program says them in words only. The first that fits counts."""


def failure_of(result: JsonObject) -> EngineFailure:
    """Return the failure that a result message tells of."""
    said = _said(result)
    status = result.get("api_error_status")
    kind, retryable = _judge(status if isinstance(status, int) else None, said)
    return EngineFailure(f"The Claude Code program reports: {said}", kind=kind, retryable=retryable)


def program_ended(complaints: str) -> EngineFailure:
    """Return the failure of a program that ended without a result."""
    kind, retryable = _judge(None, complaints)
    return EngineFailure(
        f"The Claude Code program ended before the turn did. It said: {complaints or 'nothing'}",
        kind=kind,
        retryable=retryable or kind == "unknown",
    )


def _said(result: JsonObject) -> str:
    errors = [str(error) for error in result.get("errors") or () if error]
    text = result.get("result")
    return "; ".join(errors) or (text.strip() if isinstance(text, str) else "") or str(result.get("subtype"))


def _judge(status: int | None, said: str) -> tuple[EngineErrorKind, bool]:
    for pattern, kind, retryable in _BY_WORDS[:1]:
        if pattern.search(said):
            return kind, retryable
    if status is not None:
        return _BY_STATUS.get(status, ("model_error", status >= 500))
    for pattern, kind, retryable in _BY_WORDS:
        if pattern.search(said):
            return kind, retryable
    return "unknown", False
