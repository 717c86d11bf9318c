"""Connections to Redis that fail in one way: with a `RedisError`, on a connection that is not used again.

The client of redis-py 8.1 lets three kinds of failure through to its callers:

- A write to a connection that was reset raises `RuntimeError` on uvloop, and is not repeated.
- A server that answers but does not serve (a replica after a failover, a full memory) raises `ResponseError`, like a
  wrong command, and the connection to it is kept: behind a name or an address that moves, it stays the wrong server.
- Each connection that a firewall forgot costs a timeout of its own, although one shows that all idle ones are doubtful.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from hiredis import pack_command
from redis import __version__ as redis_version
from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.connection import DefaultParser as AsyncParser
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.connection import DefaultParser as SyncParser
from redis.driver_info import DriverInfo
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from nova_workers.base.sockets import TCP_OPTIONS

_CONNECTIONS = 32
_WAIT_S = 5.0
"""The time to wait for a free connection of the pool."""
_REPLY_S = 2.0
"""The time to wait for a reply. Callers wait for at most three of these: a command is repeated twice."""
_CONNECT_S = 2.0
_PING_AFTER_S = 10.0
"""A connection that was idle this long is tried with a PING before a command."""


class ServerNotReady(RedisConnectionError):
    """The server answers but does not serve now: the connection is closed, and the command repeated on a new one."""


_NOT_READY: Final = dict.fromkeys(
    (
        "CLUSTERDOWN",
        "LOADING",
        "MASTERDOWN",
        # It cannot persist what it would write.
        "MISCONF",
        "NOREPLICAS",
        "OOM",
        "READONLY",
        "TRYAGAIN",
        # To clients in a blocking command, when the server becomes a replica.
        "UNBLOCKED",
    ),
    ServerNotReady,
)


def _attentive(parser: Any) -> Any:
    """Return a class of parsers that raise `ServerNotReady` for the replies that mean it."""
    return type(parser.__name__, (parser,), {"EXCEPTION_CLASSES": {**parser.EXCEPTION_CLASSES, **_NOT_READY}})


REPLY_PARSER: Final = _attentive(SyncParser)
"""The parser of clients that are not asyncio's: kombu's."""
_REPLY_PARSER: Final = _attentive(AsyncParser)


class _Sound(AbstractConnection):
    """A connection that reports its reset as an `OSError`, and its timeouts to its pool.

    It packs commands in C, and writes them without a task for each, which redis-py makes to bound the wait for a full
    socket: the wait for the reply is bounded too.
    """

    opened_s = 0.0
    on_timeout: Callable[[], None]

    def pack_command(self, *args: Any) -> list[bytes]:
        return [pack_command((*args[0].split(), *args[1:]))]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        writer = self._writer
        is_due = check_health and asyncio.get_running_loop().time() > self.next_health_check
        if writer is None or is_due or writer.is_closing() or writer.transport.get_write_buffer_size():
            await super().send_packed_command(command, check_health)
        else:
            writer.writelines(command)

    async def disconnect(self, *args: Any, error: Exception | None = None, **options: Any) -> None:
        if isinstance(error, RedisTimeoutError):
            self.on_timeout()
        await super().disconnect(*args, error=error, **options)

    async def _connect(self) -> None:
        self.opened_s = asyncio.get_running_loop().time()
        await super()._connect()

    async def _send_packed_command(self, command: Iterable[bytes]) -> None:
        try:
            await super()._send_packed_command(command)
        except RuntimeError as error:
            # uvloop, for a transport that is closed already.
            raise ConnectionResetError(str(error)) from error


class _TcpConnection(_Sound, Connection):
    pass


class _TlsConnection(_Sound, SSLConnection):
    pass


class _SocketConnection(_Sound, UnixDomainSocketConnection):
    pass


_SOUND: Final[dict[Any, type[_Sound]]] = {
    Connection: _TcpConnection,
    SSLConnection: _TlsConnection,
    UnixDomainSocketConnection: _SocketConnection,
}


class _Pool(BlockingConnectionPool):
    """A pool that opens its idle connections anew after a reply of one of them did not arrive in time.

    Bounded: a caller waits for a free connection, instead of one more being opened for each follower. Where none waits,
    a connection changes hands without the lock and the measurements of redis-py, which cost a third of a command.
    """

    _doubted_s = 0.0
    _waiting = 0
    """Callers that wait for a free connection, or for a new one to be opened."""

    async def get_connection(self, *_: Any, **__: Any) -> Any:
        if self._waiting or not self._available_connections:
            self._waiting += 1
            try:
                return await super().get_connection()
            finally:
                self._waiting -= 1
        connection = self.get_available_connection()
        try:
            await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        if self._waiting or connection.should_reconnect():
            await super().release(connection)
        else:
            self._in_use_connections.remove(connection)
            self._available_connections.append(connection)

    def make_connection(self) -> Any:
        connection: Any = super().make_connection()
        connection.on_timeout = self._doubt
        return connection

    async def ensure_connection(self, connection: Any) -> None:
        if connection.opened_s < self._doubted_s:
            await connection.disconnect(nowait=True)
        await super().ensure_connection(connection)

    def _doubt(self) -> None:
        self._doubted_s = asyncio.get_running_loop().time()


def connect(url: str, name: str | None = None) -> Redis:
    """Return a client. It connects at first use.

    A command whose connection breaks, or that gets no reply in time, is repeated twice on new connections: every
    command of ours may be executed more than once.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        name: Of the connections, in `CLIENT LIST`.
    """
    tcp: dict[str, Any] = {} if url.startswith("unix:") else {"socket_keepalive_options": TCP_OPTIONS}
    pool = _Pool.from_url(
        url,
        **tcp,
        client_name=name,
        # By itself each connection would read the version from the files of the installed package: 3 ms.
        driver_info=DriverInfo(lib_version=redis_version),
        max_connections=_CONNECTIONS,
        timeout=_WAIT_S,
        socket_timeout=_REPLY_S,
        socket_connect_timeout=_CONNECT_S,
        health_check_interval=_PING_AFTER_S,
        parser_class=_REPLY_PARSER,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 2),
    )
    pool.connection_class = _SOUND[pool.connection_class]
    return Redis.from_pool(pool)


async def open_connections(redis: Redis, count: int) -> None:
    """Open connections that commands will use, and that would otherwise be opened with the first of them.

    Raises:
        RedisError: The server does not answer.
    """
    await asyncio.gather(*(redis.ping() for _ in range(count)))
