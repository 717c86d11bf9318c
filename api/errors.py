"""Errors as RFC 9457 problem documents. The only module that knows HTTP statuses of errors."""

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast

import orjson
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from nova_workers.base.errors import (
    Conflict,
    Forbidden,
    Gone,
    InvalidInput,
    LimitExceeded,
    NewerValue,
    NotFound,
    NovaError,
    OutcomeUnknown,
    Rejected,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    Unstorable,
    VersionMismatch,
)
from nova_workers.base.http_server.errors import HeadTooLarge, RequestTooSlow, UnknownHost
from nova_workers.base.observability.addresses import bare_addresses
from nova_workers.base.validation import problem_of
from nova_workers.contracts.bodies import Problem
from nova_workers.ledger.write_record import current_record

from .openapi import PROBLEM_MEDIA_TYPE

_log = structlog.get_logger(__name__)

RETRY_AFTER_S = 2
_QUOTE_CHARS = 80
_MAX_ERRORS = 50
_MAX_TEXT_CHARS = 500
"""The limit of a message or a field's path: a caller chooses names of fields, too."""


class MalformedRequest(Rejected):
    """The bytes cannot be read at all: not JSON, not UTF-8, not a header of the right form."""

    code = "malformed_request"


class InvalidCursor(MalformedRequest):
    """A pagination cursor or an event id that this endpoint did not return."""

    code = "invalid_cursor"


class CursorFromTheFuture(MalformedRequest):
    """An event id beyond the newest event of its run."""

    code = "cursor_from_the_future"


class UnsupportedMediaType(Rejected):
    """The body is of a type that no endpoint reads."""

    code = "unsupported_media_type"


class BodyTooLarge(LimitExceeded):
    """The body has more bytes than the server reads."""

    code = "body_too_large"


class DoorNotInstalled(NovaError):
    """The operator opened a door whose SDK is not installed. ``fields['extra']`` has it."""

    code = "door_not_installed"


class NotOffered(NovaError):
    """A door's protocol has an operation or an option that the fleet has not. The text says what to do instead."""

    code = "not_offered"


class EmbeddingsOff(NovaError):
    """The fleet has no embedding model."""

    code = "embeddings_off"


class TooManyArchives(TooManyRequests):
    """The tenant, or too many others, are exporting or importing."""

    code = "too_many_archives"


class RateLimited(TooManyRequests):
    """An address or a key made too many requests. ``fields['retry_after_s']`` says when the next is served."""

    code = "rate_limited"


class TooManyFailedKeys(TooManyRequests):
    """An address tried too many keys that are not valid."""

    code = "too_many_failed_keys"


class TooManyStreams(TooManyRequests):
    """The key has reached its limit of open event streams."""

    code = "too_many_streams"


# The nearest ancestor applies.
_STATUS: Mapping[type[NovaError], HTTPStatus] = {
    Rejected: HTTPStatus.BAD_REQUEST,
    InvalidInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    Forbidden: HTTPStatus.FORBIDDEN,
    NotFound: HTTPStatus.NOT_FOUND,
    Gone: HTTPStatus.GONE,
    Conflict: HTTPStatus.CONFLICT,
    VersionMismatch: HTTPStatus.PRECONDITION_FAILED,
    UnsupportedMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    UnknownHost: HTTPStatus.MISDIRECTED_REQUEST,
    RequestTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    HeadTooLarge: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    BodyTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    LimitExceeded: HTTPStatus.CONFLICT,
    TooManyRequests: HTTPStatus.TOO_MANY_REQUESTS,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    DoorNotInstalled: HTTPStatus.NOT_IMPLEMENTED,
    EmbeddingsOff: HTTPStatus.NOT_IMPLEMENTED,
    NotOffered: HTTPStatus.NOT_IMPLEMENTED,
    # A process of the later release can answer.
    NewerValue: HTTPStatus.SERVICE_UNAVAILABLE,
    NovaError: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def install_error_handlers(app: FastAPI) -> None:
    """Make every error that a route raises a problem document."""
    app.add_exception_handler(NovaError, _on_nova_error)
    app.add_exception_handler(RedisError, _on_nova_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)


def problem(error: NovaError, *, instance: str | None = None) -> Problem:
    """Return an error of ours as a problem."""
    status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    fields = dict(error.fields)
    field, errors = fields.pop("field", None), fields.pop("errors", None)
    if errors is None:
        errors = [] if field is None else [{"field": field, "message": error.message}]
    return _problem(
        status,
        code=error.code,
        detail=error.message,
        instance=instance,
        errors=cast(Sequence[dict[str, Any]], errors),
        context=fields,
    )


def problem_response(error: NovaError, *, instance: str | None = None) -> Response:
    """Return the problem document of an error of ours."""
    document = problem(error, instance=instance)
    status = document.status
    headers: dict[str, str] = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    # Not what invites a repetition, where the request may have been carried out.
    repeats = not isinstance(error, OutcomeUnknown)
    if repeats and status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
        waits_s = error.fields.get("retry_after_s")
        headers["retry-after"] = str(max(1, math.ceil(waits_s)) if isinstance(waits_s, float) else RETRY_AFTER_S)
    return _respond(document, headers)


def unexpected_problem(*, instance: str, trace_id: str) -> Response:
    """Return the problem document of an unexpected failure: the trace id, and whether the request may have written."""
    detail = f"The server failed in a way that it did not expect. Its log has the traceback under {trace_id!r}."
    if may_be_written := _may_be_written():
        detail += " The request may have been carried out, wholly or in part: look before you repeat it."
    return _respond(
        _problem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            code="internal_error",
            detail=detail,
            instance=instance,
            context={"trace_id": trace_id, "may_be_written": may_be_written},
        )
    )


def true_outcome(error: NovaError, *, look_up: Callable[[], Mapping[str, object]] = dict) -> NovaError:
    """Return the error that a failed request is answered with, over all that it did.

    The statement that failed wrote nothing, perhaps; an earlier one of the request may have.

    Args:
        error: What ended the request.
        look_up: Returns what to look at, where the request itself named nothing.
    """
    if not isinstance(error, Unavailable | NewerValue):
        return error
    record = current_record()
    if not isinstance(error, OutcomeUnknown) and (record is None or not record.may_be_written):
        return error
    named = {**(record.names if record is not None and record.names else look_up()), **error.fields}
    reason, cause = (error.reason, error.cause) if isinstance(error, Unavailable) else (error.message, None)
    detail = error.message
    if not isinstance(error, OutcomeUnknown):
        detail = f"{reason} The request may have been carried out, wholly or in part: look before you repeat it."
    if "look_up" in named:
        detail += f" Look at GET {named['look_up']}."
    return OutcomeUnknown(detail, reason=reason, cause=cause, **{**named, "may_be_written": True})


def outcome_of(
    error: NovaError | RedisError, *, path: str, look_up: Callable[[], Mapping[str, object]] = dict
) -> NovaError:
    """Return the error that a failed request is answered with, and log an outage.

    Args:
        error: What ended the request.
        path: Where the request went.
        look_up: As of `true_outcome`.
    """
    found = _redis_outage(error) if isinstance(error, RedisError) else error
    outcome = true_outcome(found, look_up=look_up)
    if isinstance(outcome, Unavailable):
        server = str(outcome.fields.get("server", ""))
        _log.warning("http_request.unavailable", outage=server, path=path, code=outcome.code, error=str(outcome))
    return outcome


def _may_be_written() -> bool:
    record = current_record()
    return record is not None and record.may_be_written


async def _on_nova_error(request: Request, error: Exception) -> Response:
    if isinstance(error, Unstorable):
        # A defect of ours: the boundary logs its traceback and gives the client the trace id.
        raise error
    path = request.url.path
    outcome = outcome_of(cast(NovaError | RedisError, error), path=path, look_up=lambda: _nearest_reading(request))
    return problem_response(outcome, instance=path)


def _nearest_reading(request: Request) -> dict[str, object]:
    """Return the ids of a request's path, and the nearest path above it that a GET reads."""
    named: dict[str, object] = dict(request.path_params)
    readable = {
        route.path for route in request.app.routes if isinstance(route, Route) and "GET" in (route.methods or ())
    }
    template: str = getattr(request.scope.get("route"), "path", "")
    while template and template not in readable:
        template = template.rpartition("/")[0]
    return {**named, "look_up": template.format(**named)} if template else named


def _redis_outage(error: RedisError) -> Unavailable:
    # Routes do without Redis where they can.
    reason = _redis_reason(error)
    return Unavailable(
        f"{reason} Nothing was written; try again.",
        reason=reason,
        cause=f"{type(error).__name__}: {error}",
        server="redis",
        may_be_written=False,
    )


def _redis_reason(error: Exception) -> str:
    if isinstance(error, BusyLoadingError):
        return "Redis is starting."
    if isinstance(error, AuthenticationError):
        return "Redis refuses the user or password of the fleet."
    if isinstance(error, RedisTimeoutError):
        return "Redis did not answer in time."
    if isinstance(error, RedisConnectionError):
        return "Redis cannot be reached, or its connection was lost."
    if isinstance(error, ResponseError):
        return "Redis refused a command."
    return "Redis cannot be used."


async def _on_validation_error(request: Request, error: Exception) -> Response:
    # A value that may be a secret is not quoted either: answers are logged in more places than requests.
    quoted = not request.url.path.startswith("/v1/secrets")
    body = _body_type(request)
    found = cast(RequestValidationError, error).errors()
    errors = [_field_error(item, body, quoted=quoted) for item in found[:_MAX_ERRORS]]
    named = _cut(", ".join(sorted({item["field"] for item in errors})))
    if len(found) > len(errors):
        named += f", and {len(found) - len(errors)} more errors"
    return _respond(
        _problem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            code=InvalidInput.code,
            detail=f"The request has fields that cannot be used: {named}. Nothing was done.",
            instance=request.url.path,
            errors=errors,
        )
    )


async def _on_http_exception(request: Request, error: Exception) -> Response:
    refused = cast(HTTPException, error)
    status = HTTPStatus(refused.status_code)
    code = status.name.lower()
    detail = str(refused.detail)
    context: dict[str, object] = {}
    if status == HTTPStatus.NOT_FOUND:
        context = {"kind": "endpoint", "id": request.url.path}
        detail = f"There is no endpoint {request.url.path!r}. GET /docs lists all of them."
    headers = dict(refused.headers or {})
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers = {"allow": ", ".join(sorted(_methods_of(request.app.routes, request.url.path)))}
        detail = f"{request.url.path!r} does not take {request.method}; it takes {headers['allow']}."
    return _respond(_problem(status, code=code, detail=detail, instance=request.url.path, context=context), headers)


def _methods_of(routes: Iterable[BaseRoute], path: str) -> set[str]:
    """Return the methods of a path: the router names those of the first route only. A fixed path goes before an id."""
    fitting = [route for route in routes if isinstance(route, Route) and route.path_regex.match(path)]
    fixed = [route for route in fitting if route.path == path]
    return {method for route in fixed or fitting for method in route.methods or ()}


def _body_type(request: Request) -> object:
    """Return the type of the body that the request's endpoint takes."""
    field = getattr(request.scope.get("route"), "body_field", None)
    return None if field is None else field.field_info.annotation


def _field_error(item: Mapping[str, Any], body: object, *, quoted: bool) -> dict[str, Any]:
    """Turn one pydantic error into the field's path, the problem and, if allowed, a short quote of the value."""
    place, *path = item["loc"]
    if place == "query":
        # A parameter that may repeat is named like one that may not.
        path = path[:1]
    found: dict[str, Any] = {
        "field": _cut(".".join(str(part) for part in path) or str(place)),
        "in": place,
        "message": _cut(problem_of({**item, "loc": path or (place,)}, body)),
        "type": item["type"],
    }
    if quoted and "input" in item and item["type"] != "missing":
        found["input"] = _quoted(item["input"])
    return found


def _quoted(value: object) -> str:
    """Return a short quote of a value of any size."""
    short = reprlib.Repr()
    short.maxlevel = 4
    short.maxlist = short.maxdict = short.maxstring = short.maxother = short.maxlong = _QUOTE_CHARS
    # The whole text first: what is cut off from an address may be no address any more.
    quote = repr(bare_addresses(value)[: _QUOTE_CHARS + 1]) if isinstance(value, str) else short.repr(value)
    quote = bare_addresses(quote)
    return quote if len(quote) <= _QUOTE_CHARS else quote[:_QUOTE_CHARS] + "…"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_CHARS else text[:_MAX_TEXT_CHARS] + "…"


def _problem(
    status: HTTPStatus,
    *,
    code: str,
    detail: str,
    instance: str | None,
    errors: Sequence[dict[str, Any]] = (),
    context: Mapping[str, object] | None = None,
) -> Problem:
    return Problem(
        title=status.phrase,
        status=status,
        detail=_sendable(detail),
        code=code,
        instance=None if instance is None else _sendable(instance),
        errors=list(errors),
        context=dict(context or {}),
    )


def _respond(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    # `default=str`: fields of an error may hold times or paths, and reporting it must not fail.
    body = orjson.dumps(problem.model_dump(), default=str)
    return Response(body, status_code=problem.status, headers=headers, media_type=PROBLEM_MEDIA_TYPE)


def _sendable(text: str) -> str:
    """Replace what UTF-8 cannot carry: a path or a header may hold lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()
