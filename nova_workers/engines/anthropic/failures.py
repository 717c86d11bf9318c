"""Maps the SDK's exceptions to the engine contract's failures."""

import re

import anthropic
import httpx2

from nova_workers.engines.resilience import AttemptFailed, retry_after_s
from nova_workers.engines.turn import BlockPlace, ContentRefused
from nova_workers.engines.verdicts import (
    FORBIDDEN,
    INVALID,
    NO_MODEL,
    OUT_OF_ORDER,
    OVERFLOW,
    RATE_LIMITED,
    REFUSED,
    Verdict,
)
from nova_workers.errors import EngineFailure

__all__ = ["failure_of"]


_NO_KEY = Verdict("auth_failure", retryable=False, cause="request")

_BY_TYPE: dict[str, Verdict] = {
    # ``error.type`` of the body. It is more specific than the status: an error within a stream has status 200.
    "authentication_error": REFUSED,
    "permission_error": FORBIDDEN,
    "billing_error": REFUSED,
    "rate_limit_error": RATE_LIMITED,
    "request_too_large": OVERFLOW,
    "overloaded_error": OUT_OF_ORDER,
    "api_error": OUT_OF_ORDER,
    "timeout_error": OUT_OF_ORDER,
    "invalid_request_error": INVALID,
    "not_found_error": NO_MODEL,
}
_BY_STATUS: dict[int, Verdict] = {
    401: REFUSED,
    402: REFUSED,
    403: FORBIDDEN,
    404: NO_MODEL,
    408: OUT_OF_ORDER,
    409: OUT_OF_ORDER,
    413: OVERFLOW,
    429: RATE_LIMITED,
}
_OVERFLOW_WORDS = ("prompt is too long", "context window", "context limit", "exceed context", "too many tokens")
"""The provider has no code for requests over the context window: they are invalid requests with these messages."""

_REFUSED_BLOCK = re.compile(r"messages\.(\d+)\.content\.(\d+)(?:\.tool_result\.content\.(\d+))?")
"""The provider's path of a block in an error message, e.g. ``messages.2.content.0.image.source.base64.data: …``."""
_ABOUT_MEDIA = re.compile(r"\b(images?|pdfs?|documents?|media|base64)\b", re.IGNORECASE)

_NOT_WRITABLE = "not JSON compliant"
"""The encoder's message for a request with NaN or infinity."""

_SET_KEY = "Set NOVA_MODEL__API_KEY or ANTHROPIC_API_KEY."


def failure_of(error: Exception) -> EngineFailure:
    """Return the failure that `error` means for a turn; ``unknown`` for unexpected exceptions.

    The place of a `ContentRefused` counts messages as in the request.
    """
    if isinstance(error, EngineFailure):
        return _found_in_reading(error)
    verdict = _judge(error)
    if verdict is INVALID and isinstance(error, anthropic.APIStatusError):
        says = error.api_message or error.message
        path = _REFUSED_BLOCK.search(says)
        if path is not None:
            message, block, part = path.groups()
            return ContentRefused(_say(error), place=BlockPlace(int(message), int(block), int(part) if part else None))
        if _ABOUT_MEDIA.search(says):
            return ContentRefused(_say(error))
    return AttemptFailed(
        _say(error),
        kind=verdict.kind,
        retryable=verdict.retryable,
        cause=verdict.cause,
        retry_after_s=_retry_after_s(error),
    )


def _found_in_reading(failure: EngineFailure) -> EngineFailure:
    """Return the failure for a truncated stream or an invalid response, which we detected ourselves."""
    if isinstance(failure, AttemptFailed) or failure.kind != "model_error" or not failure.retryable:
        return failure
    return AttemptFailed(failure.message, kind=failure.kind, retryable=True, cause=OUT_OF_ORDER.cause)


def _judge(error: Exception) -> Verdict:
    match error:
        case anthropic.APIStatusError():
            return _judge_status(error)
        case anthropic.APIConnectionError() | anthropic.APIResponseValidationError() | httpx2.TransportError():
            # A connection that breaks within a stream raises the transport's own error.
            return OUT_OF_ORDER
        case anthropic.CredentialsError() | TypeError() if _is_about_the_key(error):
            return _NO_KEY
        case ValueError() | LookupError() | RuntimeError() | OverflowError():
            # Otherwise the stream violates the protocol: broken JSON, or events out of order.
            return INVALID if _is_data_defect(error) else OUT_OF_ORDER
        case _:
            return Verdict("unknown", retryable=False, cause="request")


def _is_about_the_key(error: Exception) -> bool:
    # Without any credentials the SDK raises a TypeError.
    return isinstance(error, anthropic.CredentialsError) or "authentication" in str(error)


def _is_data_defect(error: Exception) -> bool:
    """Return whether a request cannot be encoded, or a response nests too deep to be parsed: retries cannot help."""
    if isinstance(error, UnicodeEncodeError | RecursionError | OverflowError):
        return True
    return isinstance(error, ValueError) and _NOT_WRITABLE in str(error)


def _judge_status(error: anthropic.APIStatusError) -> Verdict:
    kind: str | None = error.type
    verdict = _BY_STATUS.get(error.status_code) or (_BY_TYPE.get(kind) if kind else None)
    if verdict is None:
        # Without an error body, 5xx is the server's fault and 4xx ours.
        verdict = OUT_OF_ORDER if error.status_code >= 500 or error.status_code < 400 else INVALID
    says = (error.api_message or error.message).lower()
    if verdict is INVALID and any(words in says for words in _OVERFLOW_WORDS):
        return OVERFLOW
    return verdict


def _retry_after_s(error: Exception) -> float | None:
    return retry_after_s(error.response.headers) if isinstance(error, anthropic.APIStatusError) else None


def _say(error: Exception) -> str:
    match error:
        case anthropic.APIStatusError():
            requested = f" (request {error.request_id})" if error.request_id else ""
            return f"The model provider answered {error.status_code}: {error.api_message or error.message}{requested}"
        case anthropic.APIConnectionError() | httpx2.TransportError():
            return f"The connection to the model provider failed: {error or type(error).__name__}"
        case TypeError() if "authentication" in str(error):
            return f"There is no key for the model provider. {_SET_KEY}"
        case anthropic.CredentialsError():
            return f"The key for the model provider cannot be read: {error} {_SET_KEY}"
        case _:
            return f"{type(error).__name__}: {error}"
