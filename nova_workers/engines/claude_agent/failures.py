"""Maps errors that the program reports to the engine contract's failures."""

import re

from nova_workers.base.errors import EngineErrorKind, EngineFailure
from nova_workers.contracts.content import ContentBlock, JsonObject, text_of
from nova_workers.engines import bounds
from nova_workers.engines.resilience import AttemptFailed, Cause
from nova_workers.engines.turn import ContentRefused
from nova_workers.engines.verdicts import REFUSING, TOO_LARGE

__all__ = ["failure_of", "is_media_refusal", "media_refusal_of", "program_ended"]

_Verdict = tuple[EngineErrorKind, bool, Cause]

_BY_STATUS: dict[int, _Verdict] = {
    400: ("model_error", False, "request"),
    401: ("auth_failure", False, "key"),
    402: ("auth_failure", False, "quota"),
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
_MEDIA_ERRORS = {"media_removed": None, "pdf_too_large": "document", "pdf_password_protected": "document"}
"""The program's names of the errors after which it omits a block from its own requests, and the kind of the block if
the name states it."""


def failure_of(result: JsonObject) -> EngineFailure:
    """Return the failure in a result message: an `AttemptFailed` if it is the provider's."""
    reported = _message_of(result)
    status = result.get("api_error_status")
    verdict = _judge(status if isinstance(status, int) else None, reported)
    message = _reported(reported)
    if verdict is None:
        return EngineFailure(message, kind="unknown", retryable=False)
    kind, retryable, cause = verdict
    if status == TOO_LARGE:
        return ContentRefused(message, named=False, too_large=True)
    about_media = _ABOUT_MEDIA.search(reported) is not None
    if cause == "request" and kind == "model_error" and (about_media or status in REFUSING):
        # The program numbers messages differently, so the place is unknown.
        return ContentRefused(message, named=about_media)
    return AttemptFailed(message, kind=kind, retryable=retryable, cause=cause)


def is_media_refusal(message: JsonObject) -> bool:
    """Return whether the program reports that it omits a block from now on, because the provider refused it.

    The message comes before the program's next request, or before the result if the error ended the program's turn.
    """
    return message.get("type") == "assistant" and message.get("api_error") in _MEDIA_ERRORS


def media_refusal_of(message: JsonObject) -> ContentRefused:
    """Return the refusal that the program reports.

    The program does not say which block it omits. So the turn selects one, and a new program continues with a note in
    its place: what the ledger says is then what the provider gets.
    """
    named: JsonObject = message.get("api_error_params") or {}
    media = _MEDIA_ERRORS[message["api_error"]] or named.get("media")
    content: list[ContentBlock] = message.get("message", {}).get("content") or []
    return ContentRefused(_reported(text_of(tuple(content)).removeprefix("API Error: ")), media=media)


def program_ended(complaints: str) -> EngineFailure:
    """Return the failure of a program that ended without a result; it is no verdict on a key or the model."""
    kind, retryable, _ = _judge(None, complaints) or ("unknown", True, None)
    return EngineFailure(
        f"The Claude Code program ended before the turn did. It said: {complaints or 'nothing'}",
        kind=kind,
        retryable=retryable,
    )


def _reported(text: str) -> str:
    return f"The Claude Code program reports: {bounds.said(text)}"


def _message_of(result: JsonObject) -> str:
    errors = [str(error) for error in result.get("errors") or () if error]
    text = result.get("result")
    return "; ".join(errors) or (text.strip() if isinstance(text, str) else "") or str(result.get("subtype"))


def _judge(status: int | None, reported: str) -> _Verdict | None:
    for pattern, verdict in _BY_WORDS[:1]:
        if pattern.search(reported):
            return verdict
    if status is not None:
        return _BY_STATUS.get(status, _BY_STATUS[400] if status == 422 else _OUT_OF_ORDER)
    return next((verdict for pattern, verdict in _BY_WORDS if pattern.search(reported)), None)
