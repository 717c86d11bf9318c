"""Maps failures on the wire to the error tree: by the problem's code, else by its status."""

import os
import ssl

import httpx2
from pydantic import ValidationError

from nova_workers.base.errors import (
    ConfigurationError,
    Conflict,
    EngineFailure,
    Forbidden,
    Gone,
    InvalidInput,
    LimitExceeded,
    NotFound,
    NovaError,
    OutcomeUnknown,
    Rejected,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    VersionMismatch,
)
from nova_workers.base.validation import place_of, problem_of
from nova_workers.contracts.bodies import Problem

_QUOTED_CHARS = 200
"""Most characters of an answer without a problem document that an error message quotes."""

_BY_STATUS: dict[int, type[NovaError]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    412: VersionMismatch,
    413: LimitExceeded,
    422: InvalidInput,
    429: TooManyRequests,
}


def _by_code() -> dict[str, type[NovaError]]:
    found: dict[str, type[NovaError]] = {}
    branches: list[type[NovaError]] = [NovaError]
    while branches:
        branch = branches.pop()
        # An EngineFailure is the outcome of a run, never of a request, and its constructor takes more. Classes of the
        # API exist only in a process that has loaded it.
        if branch is not EngineFailure and branch.__module__ == NovaError.__module__:
            found[branch.code] = branch
            branches.extend(branch.__subclasses__())
    return found


_BY_CODE = _by_code()


def error_of_response(response: httpx2.Response) -> NovaError:
    """Return the error for a response with an error status.

    Args:
        response: Fully read.

    Returns:
        The error with the problem's `detail` as its message, and among its fields its context, `status` and, if fields
        were refused, `errors`.
    """
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        return _error_without_problem(response)
    kind = _BY_CODE.get(problem.code) or _kind_of_status(response.status_code)
    fields: dict[str, object] = {**problem.context, "status": problem.status}
    if problem.errors:
        fields["errors"] = problem.errors
    return kind(_with_field_names(problem), **fields)


def error_of_transport(
    error: httpx2.TransportError, base_url: str, *, method: str = "GET", key: str | None = None
) -> NovaError:
    """Return the error for a request without an answer: `Unavailable` if a later one may succeed.

    Args:
        error: What the connection raised.
        base_url: The API.
        method: The request's. If it changes something and was sent, the error is `OutcomeUnknown`.
        key: The request's Idempotency-Key.
    """
    if (refused := _tls_error(error)) is not None:
        return _error_of_tls(refused, base_url)
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.UnsupportedProtocol):
        return Unavailable(
            f"No fleet answers at {base_url} ({_reason(error)}). Start one with `nova up`, or name another with "
            "--api-url or NOVA_API_URL.",
            api_url=base_url,
        )
    if isinstance(error, httpx2.PoolTimeout):
        advice, in_doubt = "Try again.", False
    else:
        advice, in_doubt = _what_next(method, key), method != "GET"
    if isinstance(error, httpx2.TimeoutException):
        failure = f"did not answer in time ({type(error).__name__}). It may be overloaded; see `nova doctor`."
        message = f"The fleet at {base_url} {failure} {advice}"
    else:
        message = f"The connection to {base_url} broke ({_reason(error)}). {advice}"
    kind = OutcomeUnknown if in_doubt else Unavailable
    return kind(message, api_url=base_url, may_be_written=in_doubt)


def with_key(error: Unavailable, key: str | None) -> Unavailable:
    """Return the error of a keyed request that may have been accepted, with the key: a repetition needs it."""
    if key is None or not isinstance(error, OutcomeUnknown):
        return error
    named = str(error) if repr(key) in str(error) else f"{error} Its Idempotency-Key is {key!r}."
    return OutcomeUnknown(named, **{**error.fields, "idempotency_key": key})  # pyright: ignore[reportArgumentType] - fields have no types


def _what_next(method: str, key: str | None) -> str:
    if method == "GET":
        return "Try again."
    if key is None:
        return "The request may have been accepted: look before you repeat it."
    return f"The request may have been accepted: repeat it with the same Idempotency-Key, {key!r}."


def _error_of_tls(error: ssl.SSLError, base_url: str) -> ConfigurationError:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = f"its certificate is not accepted: {error.verify_message}. Check the name in the URL and the certificate"
    else:
        plain = base_url.replace("https://", "http://", 1)
        why = f"that port does not speak TLS ({error.reason}). Is it {plain}? Give it with --api-url or NOVA_API_URL"
    return ConfigurationError(f"{base_url} cannot be talked to: {why}.", api_url=base_url)


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause


def unknown_answer(response: httpx2.Response, error: ValidationError) -> ConfigurationError:
    """Return the error for a success status with a body that this version of the client cannot read."""
    first = error.errors(include_url=False)[0]
    where = place_of(first) or "the body"
    return ConfigurationError(
        f"{response.request.url} answered {response.status_code} with a body this client does not know "
        f"({where}: {problem_of(first)}). Is it a Nova Workers API of the same version? Compare `nova version`."
    )


def _error_without_problem(response: httpx2.Response) -> NovaError:
    text = " ".join(response.text.split())[:_QUOTED_CHARS]
    # A proxy had no answer of the API to a request that it may have passed on.
    in_doubt = response.status_code in {502, 504} and response.request.method != "GET"
    kind = OutcomeUnknown if in_doubt else _kind_of_status(response.status_code)
    return kind(
        f"{response.request.url} answered {response.status_code} without saying why: {text!r}. "
        "A proxy in between, or another program on that port?",
        status=response.status_code,
        may_be_written=in_doubt,
    )


def _kind_of_status(status: int) -> type[NovaError]:
    if status < 500:
        return _BY_STATUS.get(status, Rejected)
    # 500 is an unexpected fault; the others are temporary.
    return NovaError if status == 500 else Unavailable


def _with_field_names(problem: Problem) -> str:
    named = [
        f"{item['field']}: {item['message']}"
        for item in problem.errors
        if "field" in item and item.get("message") and item["message"] not in problem.detail
    ]
    return f"{problem.detail} ({'; '.join(named)})" if named else problem.detail


def _reason(error: BaseException) -> str:
    """Return the operating system's message for a failure, which is deepest in its chain of causes."""
    found = str(error).strip() or type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        if isinstance(cause, OSError) and cause.strerror:
            # Name look-ups have their own error numbers, below zero.
            number = cause.errno or 0
            found = os.strerror(number) if number > 0 else cause.strerror
        cause = cause.__cause__ or cause.__context__
    return found
