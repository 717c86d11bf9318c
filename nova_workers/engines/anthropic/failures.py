"""Maps the SDK's exceptions to the engine contract's failures."""

import re
from collections.abc import Mapping
from typing import Any, Final

import anthropic
import httpx2

from nova_workers.base.errors import EngineFailure
from nova_workers.engines import bounds
from nova_workers.engines.http.failures import answered, not_connected
from nova_workers.engines.turn import BlockPlace, ContentRefused
from nova_workers.engines.verdicts import (
    BY_STATUS,
    FORBIDDEN,
    INVALID,
    NO_KEY,
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

_VERDICTS: Final = VerdictTable(
    # ``error.type`` of the body.
    codes={
        "authentication_error": REFUSED,
        "permission_error": FORBIDDEN,
        "billing_error": UNPAID,
        "rate_limit_error": RATE_LIMITED,
        "request_too_large": OVERFLOW,
        "overloaded_error": OUT_OF_ORDER,
        "api_error": OUT_OF_ORDER,
        "timeout_error": OUT_OF_ORDER,
        "invalid_request_error": INVALID,
        "not_found_error": NO_MODEL,
    },
    # The provider has no code for requests over the context window: they are invalid requests with these messages.
    narrowed=(
        (
            INVALID,
            pattern("prompt is too long|context window|context limit|exceed context|too many tokens"),
            OVERFLOW,
        ),
    ),
)

_REFUSED_BLOCK = re.compile(r"messages\.(\d+)\.content\.(\d+)(?:\.tool_result\.content\.(\d+))?")
"""The provider's path of a block in an error message, e.g. ``messages.2.content.0.image.source.base64.data: …``."""
_NOT_CONTENT = re.compile(r"\s*(tools?|system|model|max_tokens|temperature|thinking|output_config|tool_choice|betas)\b")
"""Other parts of a request, whose paths or names a message begins with."""

_OPTIONS = ("temperature", "thinking")
"""Options without which a model answers, too."""
_SET_KEY = "Set NOVA_MODEL__API_KEY or ANTHROPIC_API_KEY."


def failure_of(error: Exception) -> EngineFailure:
    """Return the failure that `error` means for a turn; ``unknown`` for unexpected exceptions.

    The place of a `ContentRefused` counts messages as in the request.
    """
    if isinstance(error, EngineFailure):
        return found_in_reading(error)
    verdict = _judge(error)
    if isinstance(error, anthropic.APIStatusError) and (verdict == INVALID or error.status_code == TOO_LARGE):
        refused = _refused(error)
        if refused is not None:
            return refused
    return verdict.failure(_say(error), _retry_after_s(error))


def _refused(error: anthropic.APIStatusError) -> ContentRefused | None:
    """Return the refusal of a request that may be accepted without some of its content; None if it cannot."""
    says, said = error.api_message or error.message, _say(error)
    path = _REFUSED_BLOCK.search(says)
    if error.status_code == TOO_LARGE:
        return ContentRefused(said, named=False, too_large=True)
    if path is not None:
        message, block, part = path.groups()
        return ContentRefused(said, place=BlockPlace(int(message), int(block), int(part) if part else None))
    # An error within a stream has the status of the stream.
    if _NOT_CONTENT.match(says) or error.status_code not in (*REFUSING, 200):
        return None
    return ContentRefused(said, named=_VERDICTS.media.search(says) is not None)


def refused_option(error: Exception, request: Mapping[str, Any]) -> str | None:
    """Return the option of a request that its model does not take, by the provider's words; None if that is not why."""
    if not isinstance(error, anthropic.BadRequestError):
        return None
    says = error.api_message or error.message
    given = {*request, *request.get("extra_body", {})}
    if says.startswith("messages.") or not NOT_TAKEN.search(says):
        return None
    return next((each for each in _OPTIONS if each in given and re.search(rf"\b{each}\b", says)), None)


def _judge(error: Exception) -> Verdict:
    match error:
        case anthropic.APIStatusError():
            return _judge_status(error)
        case anthropic.APIConnectionError() | anthropic.APIResponseValidationError():
            return OUT_OF_ORDER
        case anthropic.CredentialsError() | TypeError() if _is_about_the_key(error):
            return NO_KEY
        case _:
            return of_exception(error)


def _is_about_the_key(error: Exception) -> bool:
    # Without any credentials the SDK raises a TypeError.
    return isinstance(error, anthropic.CredentialsError) or "authentication" in str(error)


def _judge_status(error: anthropic.APIStatusError) -> Verdict:
    kind: str | None = error.type
    # A status that says more than whose fault it is precedes the type. An error within a stream has status 200.
    codes = (kind,) if kind and error.status_code not in BY_STATUS else ()
    return _VERDICTS.of(error.api_message or error.message, codes=codes, status=error.status_code) or OUT_OF_ORDER


def _retry_after_s(error: Exception) -> float | None:
    return bounds.retry_after_s(error.response.headers) if isinstance(error, anthropic.APIStatusError) else None


def _say(error: Exception) -> str:
    return bounds.said(_words(error))


def _words(error: Exception) -> str:
    match error:
        case anthropic.APIStatusError():
            return answered(error.status_code, error.api_message or error.message, error.request_id)
        case anthropic.APIConnectionError() | httpx2.TransportError():
            return not_connected(error or type(error).__name__)
        case TypeError() if "authentication" in str(error):
            return f"There is no key for the model provider. {_SET_KEY}"
        case anthropic.CredentialsError():
            return f"The key for the model provider cannot be read: {error} {_SET_KEY}"
        case _:
            return f"{type(error).__name__}: {error}"
