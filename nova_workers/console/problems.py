"""Pages for errors: sign in again, a missing scope, not found, and an API that does not answer."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import cast

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ExceptionHandler

from nova_workers.base.errors import (
    ConfigurationError,
    Forbidden,
    NovaError,
    OutcomeUnknown,
    Rejected,
    Unauthenticated,
    Unavailable,
)
from nova_workers.base.http_server.errors import (
    HeadTooLarge,
    MalformedHttp,
    RequestTooSlow,
    TooManyConnections,
    UnknownHost,
)
from nova_workers.console.guard import HEADERS, SESSION_COOKIE, sign_in_address
from nova_workers.console.rendering import is_fragment, render, see_other
from nova_workers.console.state import session_of, state_of

_REFUSALS: Mapping[type[NovaError], HTTPStatus] = {
    UnknownHost: HTTPStatus.MISDIRECTED_REQUEST,
    MalformedHttp: HTTPStatus.BAD_REQUEST,
    RequestTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    TooManyConnections: HTTPStatus.TOO_MANY_REQUESTS,
    HeadTooLarge: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
}


async def _on_nova_error(request: Request, raised: Exception) -> Response:
    error = cast(NovaError, raised)
    if isinstance(error, Unauthenticated):
        return _sign_in_again(request)
    status = _status(error)
    if is_fragment(request):
        return PlainTextResponse(error.message, status_code=status)
    if isinstance(error, Forbidden):
        return render(request, "problems/forbidden.html", status=status, error=error, scope=error.fields.get("needed"))
    if isinstance(error, OutcomeUnknown):
        # Not a page that loads itself again, and sends the form again: a person looks first.
        heading = "It may have been done"
        return render(request, "problems/problem.html", status=503, error=error, heading=heading, fields=_shown(error))
    if isinstance(error, Unavailable | ConfigurationError):
        return render(
            request, "problems/unreachable.html", status=503, error=error, api_url=state_of(request).client.base_url
        )
    return render(
        request,
        "problems/problem.html",
        status=status,
        error=error,
        heading=HTTPStatus(status).phrase,
        fields=_shown(error),
    )


async def _on_http_exception(request: Request, raised: Exception) -> Response:
    error = cast(HTTPException, raised)
    if error.status_code == HTTPStatus.NOT_FOUND and session_of(request) is not None:
        return render(
            request,
            "problems/problem.html",
            status=404,
            error=NovaError(f"There is no page at {request.url.path!r}."),
            heading="Not Found",
            fields={},
        )
    return PlainTextResponse(f"{error.detail}\n", status_code=error.status_code, headers=error.headers)


async def _on_failure(request: Request, raised: Exception) -> Response:
    structlog.get_logger().error("console_page_failed", path=request.url.path, exc_info=raised)
    return PlainTextResponse(
        "This page failed in a way that the console did not expect. Its log has the traceback.\n", status_code=500
    )


def handlers() -> dict[int | type[Exception], ExceptionHandler]:
    """Return the handlers of the application."""
    return {NovaError: _on_nova_error, HTTPException: _on_http_exception, Exception: _on_failure}


def refusal(error: NovaError) -> Response:
    """Return the answer to a client that is refused before its request is read: a text."""
    return PlainTextResponse(f"{error.message}\n", status_code=_REFUSALS[type(error)], headers=HEADERS)


def _sign_in_again(request: Request) -> Response:
    """Forget a key that the API refuses, and ask for another."""
    if is_fragment(request):
        response: Response = PlainTextResponse("Sign in first.\n", status_code=401)
    else:
        path = request.url.path if request.method == "GET" else "/"
        response = see_other(
            request,
            sign_in_address(path, request.url.query if request.method == "GET" else ""),
            flash="The API does not accept this key any more. Sign in with another.",
            kind="warn",
        )
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return response


def _status(error: NovaError) -> int:
    status = error.fields.get("status")
    if isinstance(status, int) and status >= 400:
        return status
    if isinstance(error, Unavailable | OutcomeUnknown | ConfigurationError):
        return 503
    # The console itself refuses what a person typed.
    return 422 if isinstance(error, Rejected) else 500


def _shown(error: NovaError) -> dict[str, object]:
    return {name: value for name, value in error.fields.items() if name not in {"status", "errors"}}
