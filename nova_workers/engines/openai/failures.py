"""Maps the SDK's exceptions, and errors within a stream, to the engine contract's failures."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import httpx2
import openai

from nova_workers.base.errors import EngineFailure
from nova_workers.engines import bounds
from nova_workers.engines.openai.untyped import word
from nova_workers.engines.resilience import AttemptFailed
from nova_workers.engines.turn import ContentRefused
from nova_workers.engines.verdicts import (
    INVALID,
    NO_MODEL,
    NOT_TAKEN,
    OUT_OF_ORDER,
    OVERFLOW,
    RATE_LIMITED,
    REFUSED,
    REFUSING,
    TOO_LARGE,
    UNPAID,
    Verdict,
    found_in_reading,
    is_data_defect,
    of_status,
)

__all__ = ["broken", "failure_of", "refusal", "refused_option", "stream_failure"]


_UNKNOWN = Verdict("unknown", retryable=False, cause="request")

_BY_CODE: dict[str, Verdict] = {
    # ``error.code`` or ``error.type`` of the body. It is more specific than the status.
    "insufficient_quota": UNPAID,
    "billing_hard_limit_reached": UNPAID,
    "billing_not_active": UNPAID,
    "access_terminated": REFUSED,
    "invalid_api_key": REFUSED,
    "model_not_found": NO_MODEL,
    "context_length_exceeded": OVERFLOW,
    "rate_limit_exceeded": RATE_LIMITED,
    "server_error": OUT_OF_ORDER,
    "server_is_overloaded": OUT_OF_ORDER,
    "slow_down": OUT_OF_ORDER,
    "vector_store_timeout": OUT_OF_ORDER,
}
_OVERFLOW_WORDS = re.compile(
    r"context (?:length|window|size|limit)|maximum (?:context|input) length|prompt is too long|too many tokens"
    r"|range of input length|input (?:is )?too long|exceeds the available context",
    re.IGNORECASE,
)
"""How servers say in words that a conversation is too long; few have the code."""
_TOO_LARGE = re.compile(r"request too large", re.IGNORECASE)
"""How OpenAI says, with the status of a rate limit, that one request has more tokens than a minute may have."""
_ABOUT_MEDIA = re.compile(
    r"\b(images?|image_url|pdfs?|input_file|documents?|media|base64|multimodal|vision)\b", re.IGNORECASE
)
_ABOUT_POLICY = re.compile(r"content[_ ](?:filter|policy)|_policy|invalid_prompt", re.IGNORECASE)
_CONTENT = re.compile(r"(messages|input)\b")
"""Parameters that are the conversation."""
_IMAGE_CODES = re.compile(r"image|file", re.IGNORECASE)

_OPTIONS = ("temperature", "reasoning_effort", "reasoning")
"""Options without which a model answers, too."""
_STATUS_DIGITS = 3
_LEAST_HIDDEN_CHARS = 6
"""Shorter values, such as the key of a local server, occur in any text."""


def failure_of(error: Exception, secrets: Iterable[str] = ()) -> EngineFailure:
    """Return the failure that `error` means for a turn; ``unknown`` for unexpected exceptions.

    Args:
        error: The exception.
        secrets: Values that the message must not contain; a server may echo a key.
    """
    if isinstance(error, EngineFailure):
        return found_in_reading(error)
    text = _say(error)
    for secret in secrets:
        if len(secret) >= _LEAST_HIDDEN_CHARS:
            text = text.replace(secret, "[redacted]")
    if isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError):
        verdict, codes = _judge_api(error), _codes(error)
        status = _status_of(error)
        if status == TOO_LARGE:
            return ContentRefused(text, named=False, too_large=True)
        is_about_content = status in REFUSING and (error.param is None or bool(_CONTENT.match(word(error.param))))
        return _failure(verdict, text, codes, is_about_content=is_about_content, retry_after=_retry_after_s(error))
    return _failure(_judge(error), text, ())


def refused_option(error: Exception, body: Mapping[str, Any]) -> str | None:
    """Return the option of a request that its model does not take, by the provider's words; None if that is not why."""
    if not isinstance(error, openai.BadRequestError | openai.UnprocessableEntityError):
        return None
    says = _message(error)
    if not NOT_TAKEN.search(f"{says} {word(error.code)}"):
        return None
    named = word(error.param).partition(".")[0]
    return next((each for each in _OPTIONS if each in body and re.search(rf"\b{each}\b", named or says)), None)


def stream_failure(code: str | None, message: str) -> EngineFailure:
    """Return the failure for an error within a stream of the Responses API."""
    text = f"The model provider failed: {bounds.said(message)}" + (f" ({bounds.name(code)})" if code else "")
    verdict = _BY_CODE.get(code or "") or (INVALID if _is_invalid(code, message) else OUT_OF_ORDER)
    return _failure(verdict, text, (code,), is_about_content=True)


def broken(why: str) -> EngineFailure:
    """Return the failure for a stream that ends early or makes no sense."""
    return EngineFailure(why, kind="model_error", retryable=True)


def refusal(why: str) -> EngineFailure:
    """Return the failure for a refusal or a content filter, whose text must not count as an answer."""
    return EngineFailure(f"The model refused to answer: {bounds.said(why)}", kind="model_error", retryable=False)


def _failure(
    verdict: Verdict,
    text: str,
    codes: tuple[str | None, ...],
    *,
    is_about_content: bool = False,
    retry_after: float | None = None,
) -> EngineFailure:
    if verdict is RATE_LIMITED and _TOO_LARGE.search(text):
        # The key works: only this request is over its limit, at any time.
        verdict = OVERFLOW
    if verdict is INVALID:
        if _OVERFLOW_WORDS.search(text):
            verdict = OVERFLOW
        elif _is_about_media(text, " ".join(code or "" for code in codes)):
            return ContentRefused(text)
        elif is_about_content:
            return ContentRefused(text, named=False)
    return AttemptFailed(
        text, kind=verdict.kind, retryable=verdict.retryable, cause=verdict.cause, retry_after_s=retry_after
    )


def _is_about_media(text: str, codes: str) -> bool:
    if _IMAGE_CODES.search(codes):
        return True
    return bool(_ABOUT_MEDIA.search(text)) and not _ABOUT_POLICY.search(f"{text} {codes}")


def _judge_api(error: openai.APIError) -> Verdict:
    if isinstance(error, openai.APIResponseValidationError):
        return OUT_OF_ORDER
    code, kind = _codes(error)
    for each in (code, kind):
        if each in _BY_CODE:
            return _BY_CODE[each]
    status = _status_of(error)
    if status is not None:
        return of_status(status)
    return INVALID if _is_invalid(kind, error.message) else OUT_OF_ORDER


def _codes(error: openai.APIError) -> tuple[str, str]:
    """Return code and type of a server's error, which are not always texts."""
    given: tuple[Any, Any] = (error.code, error.type)
    code, kind = map(word, given)
    return code, kind


def _status_of(error: openai.APIError) -> int | None:
    """Return the HTTP status, which some servers give as the code of an error within a stream; None without one."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code
    code = str(error.code)
    return int(code) if len(code) == _STATUS_DIGITS and code.isdecimal() else None


def _is_invalid(code: str | None, message: str) -> bool:
    """Return whether an error that came within a stream blames the request."""
    said = f"{code} {message}"
    return bool(
        re.search(r"invalid|unsupported|not_found|policy|image|file", code or "", re.IGNORECASE)
        or _OVERFLOW_WORDS.search(said)
    )


def _judge(error: Exception) -> Verdict:
    match error:
        case openai.APIConnectionError() | httpx2.TransportError():
            return OUT_OF_ORDER
        case ValueError() | LookupError() | RuntimeError() | OverflowError() | AttributeError() | TypeError():
            # The stream violates the protocol: broken JSON, or pieces without their fields.
            return INVALID if is_data_defect(error) else OUT_OF_ORDER
        case _:
            return _UNKNOWN


def _retry_after_s(error: openai.APIError) -> float | None:
    return bounds.retry_after_s(error.response.headers) if isinstance(error, openai.APIStatusError) else None


def _say(error: Exception) -> str:
    match error:
        case openai.APIStatusError():
            asked = f" (request {bounds.name(error.request_id)})" if error.request_id else ""
            return f"The model provider answered {error.status_code}: {_message(error)}{asked}"
        case openai.APIConnectionError() | httpx2.TransportError():
            why = bounds.said(str(error.__cause__ or error or type(error).__name__))
            return f"The connection to the model provider failed: {why}"
        case openai.APIError():
            return f"The model provider failed: {_message(error)}"
        case _:
            return bounds.said(f"{type(error).__name__}: {error}")


def _message(error: openai.APIError) -> str:
    """Return the server's words, which are not always where OpenAI has them."""
    match error.body:
        case {"message": str(said)} | {"detail": str(said)} | str(said) if said:
            return bounds.said(said)
        case _:
            return bounds.said(error.message)
