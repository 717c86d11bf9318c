"""Failures of model calls over HTTP, in the same words for all providers."""

from nova_workers.base.errors import EngineFailure
from nova_workers.engines import bounds


def broken(why: str) -> EngineFailure:
    """Return the failure for a stream that ends early or makes no sense."""
    return EngineFailure(why, kind="model_error", retryable=True)


def broken_off() -> EngineFailure:
    """Return the failure for a stream without its end."""
    return broken("The model provider closed the stream before the response was complete.")


def not_begun(timeout_s: float) -> EngineFailure:
    """Return the failure for a response that did not begin in time."""
    return broken(f"The model provider did not begin to answer within {timeout_s:g} s.")


def refusal(why: str) -> EngineFailure:
    """Return the failure for a refusal or a content filter, whose text must not count as an answer."""
    return EngineFailure(f"The model refused to answer: {bounds.said(why)}", kind="model_error", retryable=False)


def answered(status: int, message: str, request_id: str | None) -> str:
    """Return the text for people of an error with an HTTP status."""
    requested = f" (request {bounds.name(request_id)})" if request_id else ""
    return f"The model provider answered {status}: {message}{requested}"


def not_connected(why: object) -> str:
    """Return the text for people of a connection that failed."""
    return f"The connection to the model provider failed: {why}"
