"""Sessions with Postgres that outlive a test: a new one costs 40 ms of CPU, most of it to read the catalogue again.

A loop ends with its test, and a connection of asyncpg with its loop. So what is kept is the socket, with a session
behind it that has nothing left but the server's caches. The next connection takes it up as one that was just opened.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
from asyncpg import connect_utils, protocol

from nova_workers.ledger.sessions import Session

_MOST = 6
"""Few tests have more sessions at once."""
_CLOSE_S = 30.0

# What `DISCARD ALL` does, but for plans and what else is in caches.
_FORGET = """
CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; DEALLOCATE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all();
DISCARD TEMP; DISCARD SEQUENCES
"""

_REPORTED = (
    *("server_version", "server_encoding", "client_encoding", "application_name", "search_path", "is_superuser"),
    *("session_authorization", "DateStyle", "IntervalStyle", "TimeZone", "integer_datetimes"),
    *("standard_conforming_strings", "in_hot_standby", "default_transaction_read_only", "scram_iterations"),
)
"""What a server says of its settings."""

# Their parts that are not public.
_utils: Any = connect_utils
_session_class: Any = Session
_connect_anew: Callable[..., Awaitable[asyncpg.Connection]] = _utils._connect_addr
_close = Session.close


@dataclass(frozen=True)
class _Kept:
    key: object
    descriptor: int
    pid: int
    greeting: bytes


class WarmSessions:
    """The sessions of one database that were closed, at most a few: `Session.close` leaves them here."""

    def __init__(self) -> None:
        self._place: tuple[object, str] | None = None
        self._kept: list[_Kept] = []
        self._most = _MOST

    @property
    def pids(self) -> list[int]:
        """The process ids of their servers."""
        return [kept.pid for kept in self._kept]

    def keep_those_beside(self, connection: Any) -> None:
        """Keep the sessions of this connection's database from now on, and no others. Those that are kept now end."""
        self._place = _place(connection)
        self._end_all()

    @contextmanager
    def none(self) -> Generator[None]:
        """Let each session of this block be new, and end when it is closed."""
        self._end_all()
        self._most = 0
        try:
            yield
        finally:
            self._most = _MOST

    def _end_all(self) -> None:
        while self._kept:
            os.close(self._kept.pop().descriptor)

    def install(self) -> None:
        """Let all connections of this process be taken from here."""
        _utils._connect_addr = self._connect

        async def close(session: Session, *, timeout: float | None = None) -> None:
            if not await self._keep(session):
                await _close(session, timeout=timeout)

        _session_class.close = close

    async def _keep(self, session: Any) -> bool:
        if self._most == 0 or session.is_shared or not session.is_clean:
            return False
        if _place(session) != self._place:
            return False
        end: socket.socket = session._transport.get_extra_info("socket")
        try:
            async with asyncio.timeout(_CLOSE_S):
                await session.settle()
                await session.execute(_FORGET)
        except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.PostgresError):
            session.terminate()
            return True
        except BaseException:
            session.terminate()
            raise
        settings = session.get_settings()
        if settings.default_transaction_read_only != "off":
            # It began with a setting of the database that only a new session is without.
            return False
        # The oldest may be of a kind that no later test asks for.
        while len(self._kept) >= self._most:
            os.close(self._kept.pop(0).descriptor)
        greeting = _greeting(settings, session._driver)
        self._kept.append(
            _Kept(_key(session._addr, session._params), os.dup(end.fileno()), session.get_server_pid(), greeting)
        )
        # Without the word to the server that it ends.
        session._transport.abort()
        session.terminate()
        return True

    async def _connect(
        self,
        *,
        addr: Any,
        loop: asyncio.AbstractEventLoop,
        params: Any,
        config: Any,
        connection_class: Any,
        **rest: Any,
    ) -> asyncpg.Connection:
        kept = self._taken(_key(addr, params)) if issubclass(connection_class, Session) else None
        if kept is None:
            return await _connect_anew(
                addr=addr, loop=loop, params=params, config=config, connection_class=connection_class, **rest
            )
        connected = loop.create_future()
        spoken = protocol.Protocol(addr, connected, params, rest["record_class"], loop)
        relay = asyncio.Protocol()
        transport, _ = await loop.create_unix_connection(lambda: relay, sock=socket.socket(fileno=kept.descriptor))
        resumed = _Resumed(transport)
        spoken.connection_made(resumed)
        spoken.data_received(kept.greeting)
        transport.set_protocol(spoken)
        await connected
        connection = connection_class(spoken, resumed, loop, addr, config, params)
        spoken.set_connection(connection)
        return connection

    def _taken(self, key: object) -> _Kept | None:
        for kept in [kept for kept in self._kept if kept.key == key]:
            self._kept.remove(kept)
            # The server says nothing to a session that is idle, but that it ends.
            poll = select.poll()
            poll.register(kept.descriptor, select.POLLIN)
            if not poll.poll(0):
                return kept
            os.close(kept.descriptor)
        return None


class _Resumed:
    """The transport of a connection that is open already: the first message, which would open it, is not sent."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, _data: object) -> None:
        vars(self)["write"] = self._transport.write

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


def _place(connection: Any) -> tuple[object, str]:
    return connection._addr, connection._params.database


def _key(address: object, parameters: Any) -> object:
    return address, parameters.user, parameters.database, tuple((parameters.server_settings or {}).items())


def _greeting(settings: object, driver: Any) -> bytes:
    """Return what the server said when the session was opened."""
    said = [_message(b"R", bytes(4))]
    values = {name: getattr(settings, name, None) for name in _REPORTED}
    said += [_message(b"S", f"{name}\0{value}\0".encode()) for name, value in values.items() if value is not None]
    said += [_message(b"K", struct.pack("!ii", driver.backend_pid, driver.backend_secret)), _message(b"Z", b"I")]
    return b"".join(said)


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


warm_sessions = WarmSessions()
"""Those of this process."""
