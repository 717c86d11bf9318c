"""Maps errors that the program reports to the engine contract's failures."""

import re

from nova_workers.contracts.content import JsonObject
from nova_workers.engines.resilience import AttemptFailed, Cause
from nova_workers.engines.turn import ContentRefused
from nova_workers.errors import EngineErrorKind, EngineFailure

__all__ = ["failure_of", "program_ended"]

_Verdict = tuple[EngineErrorKind, bool, Cause]

_BY_STATUS: dict[int, _Verdict] = {
    400: ("model_error", False, "request"),
    401: ("auth_failure", False, "key"),
    402: ("auth_failure", False, "key"),
    403: ("auth_failure", False, "key_for_model"),
    404: ("model_error", False, "model"),
    408: ("model_error", True, "transport"),
    413: ("context_overflow", False, "request"),
    429: ("rate_limit", True, "rate_limit"),
}
_OUT_OF_ORDER: _Verdict = ("model_error", True, "transport")
_BY_WORDS: tuple[tuple[re.Pattern[str], _Verdict], ...] = (
    (
        re.compile(r"prompt is too long|context (window|limit)|too many tokens", re.I),
        ("context_overflow", False, "request"),
    ),
    (re.compile(r"not logged in|invalid api key|/login|authenticat", re.I), ("auth_failure", False, "key")),
    (re.compile(r"rate.?limit", re.I), ("rate_limit", True, "rate_limit")),
    (re.compile(r"overloaded|api error|connection|timed? ?out|stream", re.I), _OUT_OF_ORDER),
)
"""Patterns for errors without a status. The first match counts."""


_ABOUT_MEDIA = re.compile(r"\b(images?|pdfs?|documents?|media|base64)\b", re.I)


def failure_of(result: JsonObject) -> EngineFailure:
    """Return the failure in a result message: an `AttemptFailed` if it is the provider's."""
    reported = _message_of(result)
    status = result.get("api_error_status")
    verdict = _judge(status if isinstance(status, int) else None, reported)
    message = f"The Claude Code program reports: {reported}"
    if verdict is None:
        return EngineFailure(message, kind="unknown", retryable=False)
    kind, retryable, cause = verdict
    if cause == "request" and kind == "model_error" and _ABOUT_MEDIA.search(reported):
        # The program numbers messages differently, so the place is unknown.
        return ContentRefused(message)
    return AttemptFailed(message, kind=kind, retryable=retryable, cause=cause)


def program_ended(complaints: str) -> EngineFailure:
    """Return the failure of a program that ended without a result; it is no verdict on a key or the model."""
    kind, retryable, _ = _judge(None, complaints) or ("unknown", True, None)
    return EngineFailure(
        f"The Claude Code program ended before the turn did. It said: {complaints or 'nothing'}",
        kind=kind,
        retryable=retryable,
    )


def _message_of(result: JsonObject) -> str:
    errors = [str(error) for error in result.get("errors") or () if error]
    text = result.get("result")
    return "; ".join(errors) or (text.strip() if isinstance(text, str) else "") or str(result.get("subtype"))


def _judge(status: int | None, reported: str) -> _Verdict | None:
    for pattern, verdict in _BY_WORDS[:1]:
        if pattern.search(reported):
            return verdict
    if status is not None:
        return _BY_STATUS.get(status, _OUT_OF_ORDER if status >= 500 else _BY_STATUS[400])
    return next((verdict for pattern, verdict in _BY_WORDS if pattern.search(reported)), None)
