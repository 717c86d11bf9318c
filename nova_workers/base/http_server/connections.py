"""Connections: how many there may be, how large a request's head may be, and how long a client may keep one waiting.

uvicorn bounds none of this for httptools: a connection that sends nothing, or one header for ever, stays for ever.
No timer is set for a request whose head arrives in one piece.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import structlog
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from nova_workers.base.config.sections import ApiSettings
from nova_workers.base.errors import NovaError
from nova_workers.base.http_server.addresses import TrustedProxies, address_group
from nova_workers.base.http_server.connection_table import PROVE, ConnectionTable, OpenConnection
from nova_workers.base.http_server.errors import HeadTooLarge, MalformedHttp, RequestTooSlow, TooManyConnections
from nova_workers.base.open_files import allow_files

_log = structlog.get_logger(__name__)

_MAX_HEAD_BYTES: Final = 32_768
"""The limit of the target and all headers: twice what common proxies pass on."""
_MAX_PIPELINED: Final = 16
_LINGER_S: Final = 1.0
"""The time that a client which was refused while it sends has to read the answer."""
_OTHER_FILES: Final = 256
"""Descriptors for all but connections: the database, Redis, logs, files of the reference page."""


class ConnectionLimits:
    """The limits on connections of this process, and their table. The protocol finds it in the lifespan's state."""

    def __init__(
        self,
        settings: ApiSettings,
        proxies: TrustedProxies,
        *,
        answer: Callable[[NovaError], Response],
        streamed: frozenset[str] = frozenset(),
    ) -> None:
        """Take the limits.

        Args:
            settings: The limits.
            proxies: Those that carry connections of many clients.
            answer: Makes the answer to a refused client.
            streamed: Paths whose routes read bodies in pieces, with deadlines of their own.
        """
        self.answer = answer
        self.head_timeout_s = settings.head_timeout_s
        self.body_timeout_s = settings.body_timeout_s
        self.streamed = streamed
        self.idle_timeout_s = settings.idle_timeout_s
        self.unread_timeout_s = settings.unread_timeout_s
        most = allow_files(settings.max_connections + _OTHER_FILES) - _OTHER_FILES
        self.table = ConnectionTable(most=most, most_of_one=min(settings.max_connections_per_address, most))
        self._proxies = proxies

    def group_of(self, host: str | None) -> str | None:
        """Return the address that a connection counts for; None if it carries requests of many clients."""
        return None if host is None or host in self._proxies else address_group(host)

    def stated_group(self, host: str | None, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Return the address that a request over such a connection counts for; None if it states none."""
        stated = None if host is None else self._proxies.stated_client(host, headers)
        return None if stated is None else address_group(stated)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with bounds on connections, heads and the client's time. It takes no WebSockets."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        # Otherwise a request that is sent before the answer to another begins in the context of that one, as its
        # tenant.
        self.config.reset_contextvars = True
        # A WebSocket would take the connection out of this protocol's hands.
        self.ws_protocol_class = None
        self._limits: ConnectionLimits = self.app_state["connections"]
        self.timeout_keep_alive = self._limits.idle_timeout_s
        self._open: OpenConnection | None = None
        self._in_head = self._in_body = False
        self._chunk_bytes = self._pending_bytes = 0
        self._awaits = (False, False, False)
        self._refusal: NovaError | None = None
        self._client_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Count the connection, and set its bounds on time."""
        super().connection_made(transport)
        try:
            self._open = self._limits.table.open(
                self._limits.group_of(self.client and self.client[0]), self._end_for_another
            )
        except TooManyConnections as error:
            self._refuse(error)
            return
        self._wait_for_client(self._limits.head_timeout_s)
        connection = transport.get_extra_info("socket")
        if self.client is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            # The kernel ends a connection whose client stops to read, whatever still waits to be sent.
            unread_ms = int(self._limits.unread_timeout_s * 1_000)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unread_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count its end."""
        super().connection_lost(exc)
        self._stop_waiting()
        if self._open is not None:
            self._limits.table.close(self._open)
            self._open = None

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, and wait for the client or not."""
        if self._refusal is not None:
            return
        self._chunk_bytes = len(data)
        if self._in_head:
            # The parser reports a header only when it is complete.
            self._pending_bytes += len(data)
            if self._pending_bytes > _MAX_HEAD_BYTES:
                self._refuse(_head_too_large())
                return
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._chunk_bytes > _MAX_HEAD_BYTES and self._head_size() > _MAX_HEAD_BYTES:
            self._refuse(_head_too_large())
            return
        cycle = cast(RequestResponseCycle | None, self.cycle)
        # The rest of a body whose request was answered already is the client's time, too.
        if self._in_head or cycle is None or cycle.response_complete:
            self._wait_for_client(self._limits.head_timeout_s)
        elif self._in_body and cycle.scope["path"] not in self._limits.streamed:
            self._wait_for_client(self._limits.body_timeout_s)
        elif self._client_timer is not None:
            self._stop_waiting()

    def on_message_begin(self) -> None:
        """Begin to count a head."""
        super().on_message_begin()
        self._in_head = True
        self._pending_bytes = 0
        if self._open is not None:
            self._limits.table.wake(self._open)
        if len(self.pipeline) >= _MAX_PIPELINED:
            self._fail(MalformedHttp(f"More than {_MAX_PIPELINED} requests came before the answer to the first."))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header. Blanks around a value are none of it; the parser leaves those at its end."""
        super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Let the application have the request."""
        self._in_head = False
        self._in_body = True
        if self._chunk_bytes > _MAX_HEAD_BYTES and self._head_size() > _MAX_HEAD_BYTES:
            self._fail(_head_too_large())
        if self._open is not None:
            self._state_client(self._open)
            # Its scope: what authenticates the request finds it there.
            cast(dict[str, object], self.scope)[PROVE] = partial(self._limits.table.prove, self._open)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Let the connection rest, and do not wait long for a body that nothing reads any more."""
        super().on_response_complete()
        cycle = self.cycle
        if self._open is None or not cycle.response_complete or self.transport.is_closing():
            return
        if self._in_body:
            # The request was answered without it, as one that has no valid key.
            self._wait_for_client(self._limits.head_timeout_s)
        elif not self._in_head:
            self._limits.table.rest(self._open)

    def on_message_complete(self) -> None:
        """End the request."""
        self._in_body = False
        super().on_message_complete()
        cycle = self.cycle
        if self._open is not None:
            settle = self._limits.table.rest if cycle.response_complete else self._limits.table.receive
            settle(self._open)

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser stopped at, with the reason."""
        self._refuse(self._refusal or MalformedHttp(msg))

    def _end_for_another(self) -> None:
        _log.info("connection.ended_for_another", client=self.client and self.client[0])
        self.transport.abort()

    def _state_client(self, connection: OpenConnection) -> None:
        """Count a request that comes by a proxy for the client that the proxy states."""
        if connection.is_shared:
            group = self._limits.stated_group(self.client and self.client[0], self.headers)
            if group is not None:
                try:
                    self._limits.table.state(connection, group)
                except TooManyConnections as error:
                    self._fail(error)

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _fail(self, error: NovaError) -> None:
        """Stop the parser, which reports to `send_400_response`."""
        self._refusal = error
        raise error

    def _refuse(self, error: NovaError) -> None:
        self._refusal = error
        _log.info("connection.refused", code=error.code, client=self.client and self.client[0])
        if self.transport.is_closing():
            return
        self.transport.write(_as_bytes(self._limits.answer(error)))
        if self._open is None:
            self.transport.close()
            return
        # If this end closed while the client still sends, the client's system would drop the answer.
        self._stop_waiting()
        self._client_timer = self.loop.call_later(_LINGER_S, self.transport.abort)
        # TLS cannot be closed in one direction.
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _wait_for_client(self, timeout_s: float) -> None:
        cycle = cast(RequestResponseCycle | None, self.cycle)
        awaits = self._in_head, self._in_body, cycle is None or cycle.response_complete
        if self._client_timer is not None and awaits == self._awaits:
            return
        self._stop_waiting()
        self._awaits = awaits
        self._client_timer = self.loop.call_later(timeout_s, self._client_is_late, timeout_s)

    def _stop_waiting(self) -> None:
        if self._client_timer is not None:
            self._client_timer.cancel()
            self._client_timer = None

    def _client_is_late(self, waited_s: float) -> None:
        self._client_timer = None
        cycle = cast(RequestResponseCycle | None, self.cycle)
        if self._in_head:
            self._refuse(RequestTooSlow(f"The head of the request did not arrive within {waited_s:g} s."))
        elif self._in_body and cycle is not None and not cycle.response_started:
            # The application sees that the client left.
            cycle.disconnected = True
            cycle.message_event.set()
            self._refuse(
                RequestTooSlow(
                    f"The body did not arrive within {waited_s:g} s. Send it faster, or in smaller requests.",
                    timeout_s=waited_s,
                )
            )
        else:
            self.transport.close()


def _head_too_large() -> HeadTooLarge:
    return HeadTooLarge(
        f"The target and the headers of the request are longer than {_MAX_HEAD_BYTES:,} bytes, the most that is read.",
        max_bytes=_MAX_HEAD_BYTES,
    )


def _as_bytes(response: Response) -> bytes:
    lines = [STATUS_LINE[HTTPStatus(response.status_code)], b"connection: close\r\n"]
    lines += [b"%s: %s\r\n" % header for header in response.raw_headers]
    return b"".join((*lines, b"\r\n", bytes(response.body)))
