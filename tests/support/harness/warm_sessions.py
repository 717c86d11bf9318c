"""Sessions with Postgres that outlive a test: a new one costs 40 ms of CPU, most of it to read the catalogue again.

A loop ends with its test, and a connection of asyncpg with its loop. So what is kept is the socket, with a session
behind it that has nothing left but the server's caches and the statements that it has prepared: to parse and plan these
again is half of what a test costs the server. The next connection takes it up as one that was just opened.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
from asyncpg import connect_utils, protocol

from nova_workers.ledger import sessions
from nova_workers.ledger.sessions import Session

_MOST = 6
"""Of a database. Few tests have more sessions at once."""
_CLOSE_S = 30.0
_TAKEN_UP = "statements_taken_up"

# What `DISCARD ALL` does, but for prepared statements, plans and what else is in caches.
_FORGET = """
CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all();
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
_sessions: Any = sessions
_prepare: Callable[[Session, str | None], Awaitable[None]] = _sessions._prepare


@dataclass(frozen=True)
class _Kept:
    key: object
    descriptor: int
    pid: int
    greeting: bytes
    statements: tuple[Any, ...]
    """Those that are prepared, as asyncpg holds them: the least recently used first."""


class WarmSessions:
    """The sessions of some databases that were closed, at most a few of each: `Session.close` leaves them here."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, str], list[_Kept]] = {}
        """By the address of their server, which is not that of a proxy or a pooler, and the name of their database."""
        self._most = _MOST
        # Applications that a module shares have a thread.
        self._lock = threading.Lock()

    def pids(self, url: str) -> list[int]:
        """Return the process ids of the servers of a database's sessions."""
        return [kept.pid for kept in self._kept.get(_place(url), ())]

    def keep_those_of(self, url: str) -> None:
        """Keep the sessions of a database from now on."""
        self._kept.setdefault(_place(url), [])

    def end_those_of(self, url: str) -> None:
        """End the sessions of a database that will be dropped, and keep none from now on."""
        _end(self._kept.pop(_place(url), []))

    @contextmanager
    def of(self, url: str) -> Generator[None]:
        """Keep the sessions of a database during this block."""
        self.keep_those_of(url)
        try:
            yield
        finally:
            self.end_those_of(url)

    @contextmanager
    def none(self) -> Generator[None]:
        """Let each session of this block be new, and end when it is closed."""
        with self._lock:
            for kept in self._kept.values():
                _end(kept)
            self._most = 0
        try:
            yield
        finally:
            self._most = _MOST

    def install(self) -> None:
        """Let all connections of this process be taken from here."""
        _utils._connect_addr = self._connect

        async def close(session: Session, *, timeout: float | None = None) -> None:
            if not await self._keep(session):
                await _close(session, timeout=timeout)

        _session_class.close = close
        _sessions._prepare = _prepare_with_statements

    async def _keep(self, session: Any) -> bool:
        if self._most == 0 or session.is_shared or not session.is_clean:
            return False
        place = (session._addr, session._params.database)
        if place not in self._kept:
            return False
        end: socket.socket = session._transport.get_extra_info("socket")
        try:
            async with asyncio.timeout(_CLOSE_S):
                await session.settle()
                await session.execute(_FORGET)
                await session._cleanup_stmts()
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
        statements = tuple(session._stmt_cache.iter_statements())
        # Its end would mark those that it finds in its cache as closed.
        session._stmt_cache._entries.clear()
        key, greeting = _key(session._addr, session._params), _greeting(settings, session._driver)
        with self._lock:
            beside = self._kept.get(place)
            if beside is None:
                return False
            # The oldest may be of a kind that no later test asks for.
            while len(beside) >= self._most:
                os.close(beside.pop(0).descriptor)
            beside.append(_Kept(key, os.dup(end.fileno()), session.get_server_pid(), greeting, statements))
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
        kept = (
            self._taken((addr, params.database), _key(addr, params)) if issubclass(connection_class, Session) else None
        )
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
        setattr(connection, _TAKEN_UP, kept.statements)
        return connection

    def _taken(self, place: tuple[object, str], key: object) -> _Kept | None:
        while kept := self._newest(place, key):
            # The server says nothing to a session that is idle, but that it ends.
            poll = select.poll()
            poll.register(kept.descriptor, select.POLLIN)
            if not poll.poll(0):
                return kept
            os.close(kept.descriptor)
        return None

    def _newest(self, place: tuple[object, str], key: object) -> _Kept | None:
        """Remove and return the session that was kept last: it has prepared what the next test is likely to need."""
        with self._lock:
            beside = self._kept.get(place, [])
            for kept in reversed(beside):
                if kept.key == key:
                    beside.remove(kept)
                    return kept
        return None


async def _prepare_with_statements(session: Any, role: str | None) -> None:
    """Prepare a session, and give it the statements that it had when it was kept."""
    await _prepare(session, role)
    for statement in getattr(session, _TAKEN_UP, ()):
        key = (statement.query, statement.record_class, statement.ignore_custom_codec)
        session._stmt_cache.put(key, statement)


class _Resumed:
    """The transport of a connection that is open already: the first message, which would open it, is not sent."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, _data: object) -> None:
        vars(self)["write"] = self._transport.write

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)


def _place(url: str) -> tuple[object, str]:
    """Return the address of a URL's server, as asyncpg has it, and the name of the database."""
    parts = urlsplit(url)
    return f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432", parts.path.removeprefix("/")


def _end(those: list[_Kept]) -> None:
    while those:
        os.close(those.pop().descriptor)


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
