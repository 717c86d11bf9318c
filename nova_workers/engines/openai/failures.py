"""Maps the SDK's exceptions, and errors within a stream, to the engine contract's failures."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpx2
import openai

from nova_workers.base.errors import EngineFailure
from nova_workers.engines import bounds
from nova_workers.engines.http.failures import answered, not_connected
from nova_workers.engines.openai.untyped import word
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
    VerdictTable,
    found_in_reading,
    of_exception,
    pattern,
)

_OVERFLOW_WORDS = pattern(
    r"context (?:length|window|size|limit)|maximum (?:context|input) length|prompt is too long|too many tokens"
    r"|range of input length|input (?:is )?too long|exceeds the available context"
)
"""How servers say in words that a conversation is too long; few have the code."""
_VERDICTS: Final = VerdictTable(
    # ``error.code`` or ``error.type`` of the body. It is more specific than the status.
    codes={
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
    },
    # An error that came within a stream, and blames the request.
    code_words=((pattern(r"invalid|unsupported|not_found|policy|image|file"), INVALID),),
    words=((_OVERFLOW_WORDS, OVERFLOW),),
    narrowed=(
        (INVALID, _OVERFLOW_WORDS, OVERFLOW),
        # OpenAI's words, with the status of a rate limit, for a request with more tokens than a minute may have. The
        # key works: only this request is over its limit, at any time.
        (RATE_LIMITED, pattern(r"request too large"), OVERFLOW),
    ),
    media=pattern(r"\b(images?|image_url|pdfs?|input_file|documents?|media|base64|multimodal|vision)\b"),
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
        codes, status = _codes(error), _status_of(error)
        if status == TOO_LARGE:
            return ContentRefused(text, named=False, too_large=True)
        is_unreadable = isinstance(error, openai.APIResponseValidationError)
        verdict = None if is_unreadable else _VERDICTS.of(_message(error), codes=codes, status=status)
        is_about_content = status in REFUSING and (error.param is None or bool(_CONTENT.match(word(error.param))))
        return _failure(
            verdict or OUT_OF_ORDER, text, codes, is_about_content=is_about_content, retry_after=_retry_after_s(error)
        )
    return _failure(OUT_OF_ORDER if isinstance(error, openai.APIConnectionError) else of_exception(error), text)


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
    codes = (code or "",)
    return _failure(_VERDICTS.of(message, codes=codes) or OUT_OF_ORDER, text, codes, is_about_content=True)


def _failure(
    verdict: Verdict,
    text: str,
    codes: tuple[str, ...] = (),
    *,
    is_about_content: bool = False,
    retry_after: float | None = None,
) -> EngineFailure:
    if verdict == INVALID:
        if _is_about_media(text, " ".join(codes)):
            return ContentRefused(text)
        if is_about_content:
            return ContentRefused(text, named=False)
    return verdict.failure(text, retry_after)


def _is_about_media(text: str, codes: str) -> bool:
    if _IMAGE_CODES.search(codes):
        return True
    return bool(_VERDICTS.media.search(text)) and not _ABOUT_POLICY.search(f"{text} {codes}")


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


def _retry_after_s(error: openai.APIError) -> float | None:
    return bounds.retry_after_s(error.response.headers) if isinstance(error, openai.APIStatusError) else None


def _say(error: Exception) -> str:
    match error:
        case openai.APIStatusError():
            return answered(error.status_code, _message(error), error.request_id)
        case openai.APIConnectionError() | httpx2.TransportError():
            return not_connected(bounds.said(str(error.__cause__ or error or type(error).__name__)))
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
