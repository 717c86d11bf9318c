"""What the SDK raises, in the engine contract's vocabulary."""

from typing import NamedTuple

import anthropic
import httpx2

from nova_workers.errors import EngineErrorKind, EngineFailure

__all__ = ["failure_of"]


class _Verdict(NamedTuple):
    kind: EngineErrorKind
    retryable: bool


_BY_TYPE: dict[str, _Verdict] = {
    # ``error.type`` of the body. It says more than the status: an error in mid-stream has status 200.
    "authentication_error": _Verdict("auth_failure", retryable=False),
    "permission_error": _Verdict("auth_failure", retryable=False),
    "billing_error": _Verdict("auth_failure", retryable=False),
    "rate_limit_error": _Verdict("rate_limit", retryable=True),
    "request_too_large": _Verdict("context_overflow", retryable=False),
    "overloaded_error": _Verdict("model_error", retryable=True),
    "api_error": _Verdict("model_error", retryable=True),
    "timeout_error": _Verdict("model_error", retryable=True),
    "invalid_request_error": _Verdict("model_error", retryable=False),
    "not_found_error": _Verdict("model_error", retryable=False),
}
_BY_STATUS: dict[int, _Verdict] = {
    401: _Verdict("auth_failure", retryable=False),
    402: _Verdict("auth_failure", retryable=False),
    403: _Verdict("auth_failure", retryable=False),
    408: _Verdict("model_error", retryable=True),
    409: _Verdict("model_error", retryable=True),
    413: _Verdict("context_overflow", retryable=False),
    429: _Verdict("rate_limit", retryable=True),
}
_OVERFLOW_WORDS = ("prompt is too long", "context window", "context limit", "exceed context", "too many tokens")
"""The provider has no code for it: a request over the context window is an invalid request with these words."""

_MEND_KEY = "Set NOVA_MODEL__API_KEY or ANTHROPIC_API_KEY."


def failure_of(error: Exception) -> EngineFailure:
    """Return the failure that `error` means for a turn. ``unknown`` for what nobody foresaw."""
    if isinstance(error, EngineFailure):
        return error
    kind, retryable = _judge(error)
    return EngineFailure(_say(error), kind=kind, retryable=retryable)


def _judge(error: Exception) -> _Verdict:
    match error:
        case anthropic.APIStatusError():
            return _judge_status(error)
        case anthropic.APIConnectionError() | anthropic.APIResponseValidationError() | httpx2.TransportError():
            # A connection that broke in mid-stream surfaces as the transport's own error.
            return _Verdict("model_error", retryable=True)
        case anthropic.CredentialsError():
            return _Verdict("auth_failure", retryable=False)
        case TypeError() if "authentication" in str(error):
            # What the SDK raises without any credentials.
            return _Verdict("auth_failure", retryable=False)
        case ValueError() | LookupError() | RuntimeError():
            # The stream is not what the protocol says: broken JSON, or events out of order.
            return _Verdict("model_error", retryable=True)
        case _:
            return _Verdict("unknown", retryable=False)


def _judge_status(error: anthropic.APIStatusError) -> _Verdict:
    kind: str | None = error.type
    verdict = _BY_STATUS.get(error.status_code) or (_BY_TYPE.get(kind) if kind else None)
    if verdict is None:
        # Of a server that speaks no error body, 5xx is its own trouble and 4xx ours.
        verdict = _Verdict("model_error", retryable=error.status_code >= 500 or error.status_code < 400)
    says = (error.api_message or error.message).lower()
    if not verdict.retryable and verdict.kind == "model_error" and any(words in says for words in _OVERFLOW_WORDS):
        return _Verdict("context_overflow", retryable=False)
    return verdict


def _say(error: Exception) -> str:
    match error:
        case anthropic.APIStatusError():
            asked = f" (request {error.request_id})" if error.request_id else ""
            return f"The model provider answered {error.status_code}: {error.api_message or error.message}{asked}"
        case anthropic.APIConnectionError() | httpx2.TransportError():
            return f"The connection to the model provider failed: {error or type(error).__name__}"
        case TypeError() if "authentication" in str(error):
            return f"There is no key for the model provider. {_MEND_KEY}"
        case anthropic.CredentialsError():
            return f"The key for the model provider cannot be read: {error} {_MEND_KEY}"
        case _:
            return f"{type(error).__name__}: {error}"
