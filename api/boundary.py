"""Plain ASGI middleware: limits the body size, and turns unexpected exceptions into problem documents."""

import secrets
from collections.abc import Mapping
from typing import Final

import structlog
from opentelemetry import trace
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nova_workers.ledger.write_record import start_record

from .errors import BodyTooLarge, problem_response, unexpected_problem

_CLIENT_GONE: Final = 499
"""The status, only in logs and metrics, of a request whose client disconnected before the response, as in nginx."""

_log = structlog.get_logger(__name__)

_HEADERS: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]
_UNLESS_SET: Final = [
    (b"cache-control", b"no-store"),
    # Whatever a browser makes of an answer, it loads and runs nothing. Pages have policies of their own.
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]


class UnhandledErrors:
    """Catches unhandled exceptions: logs the traceback and responds 500 with its trace id.

    A client that disconnects while it sends its body, or waits for something, is not a server failure: it is logged in
    one line and counted with status 499, which is never sent.

    Here the record begins of what a request may have written, which a failed one is answered by.

    Also adds headers to every response that prevent content sniffing, referrers, caching and active content.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False
        start_record()

        async def guarded_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers: list[tuple[bytes, bytes]] = message["headers"]
                headers.extend(_HEADERS)
                set_already = {name.lower() for name, _ in headers}
                headers.extend(header for header in _UNLESS_SET if header[0] not in set_already)
            await send(message)

        try:
            await self._app(scope, receive, guarded_send)
        except ClientDisconnect:
            _log.info("http_request.client_left", path=scope["path"])
            if not started:
                await Response(status_code=_CLIENT_GONE)(scope, receive, guarded_send)
        except Exception:
            trace_id = _trace_id()
            _log.exception("http_request.failed", path=scope["path"], error_id=trace_id)
            if started:
                # The response has begun: only closing the connection can signal that it is incomplete.
                raise
            await unexpected_problem(instance=scope["path"], trace_id=trace_id)(scope, receive, guarded_send)


class BodyLimit:
    """Refuses a body with too many bytes: at once if its length is declared, otherwise when it exceeds the limit.

    Starlette's own limiter responds in plain text if the length is declared, regardless of handlers.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, others: Mapping[str, int], unbounded: frozenset[str]) -> None:
        """Take the limits.

        Args:
            app: The application.
            max_bytes: The limit.
            others: The limits of paths with another one.
            unbounded: Paths without one, whose routes read their bodies in pieces.
        """
        self._app = app
        self._max_bytes = max_bytes
        self._others = others
        self._unbounded = unbounded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["path"] in self._unbounded:
            await self._app(scope, receive, send)
            return
        max_bytes = self._others.get(scope["path"], self._max_bytes)
        declared = header_of(scope, b"content-length")
        if declared.isdigit() and int(declared) > max_bytes:
            await problem_response(_too_large(max_bytes), instance=scope["path"])(scope, receive, send)
            return
        taken = 0

        async def counted_receive() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > max_bytes:
                    raise _too_large(max_bytes)
            return message

        await self._app(scope, counted_receive, send)


def header_of(scope: Scope, wanted: bytes) -> bytes:
    """Return a header as it came; empty if the request has none. A fifth of the time of Starlette's `Headers`."""
    for name, value in scope["headers"]:
        if name == wanted:
            return value
    return b""


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {max_bytes:,} bytes, the most that is read.", max_bytes=max_bytes)


def _trace_id() -> str:
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else secrets.token_hex(16)


async def until_gone(receive: Receive) -> None:
    """Return once the client has disconnected. Reads what is left of its body."""
    while (await receive())["type"] != "http.disconnect":
        pass
