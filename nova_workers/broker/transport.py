"""Kombu's Redis transport with one client per channel, which waits for a server that is not ready, and drops garbage.

Kombu raises what it finds while it reads a message, from a JSON error to a `KeyError`, through the loop of the worker,
which ends. Here such a message is dropped at the socket, before kombu sees it.

Kombu 5.7 builds a `redis.Redis` for each command that it sends, and redis-py 8.1 fills a table of 170 response
callbacks for each: an eighth of a worker's CPU under load (docs/decisions/0005-celery-settings.md). The client keeps no
state of its own beside its pool, so one serves all of a channel's commands.

Kombu also fetches messages one by one. Under load several wait in a list, and each costs Celery's thread a command, a
reply and a turn of its hub. Here one command takes as many as there is room for (`BLMPOP`, Redis 7).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import Empty
from time import monotonic
from typing import Any, Final, Literal

from kombu.transport import TRANSPORT_ALIASES, redis
from kombu.utils.json import loads

from nova_workers.base.observability.foreign import ForeignMessages, Source
from nova_workers.broker.messages import unreadable
from nova_workers.broker.redis_connections import REPLY_PARSER

_EMPTY: Final = b""
"""Kombu ignores a notification without content."""
_POP: Final = "BLMPOP"
_MOST_AT_ONCE: Final = 8
"""Messages of one pop. Few enough that a burst is spread over the workers that wait."""


def _one() -> int:
    return 1


class _Client(redis.PrefixedStrictRedis):
    """A client whose blocking pop leaves out messages that cannot be read."""

    def __init__(self, *args: Any, foreign: ForeignMessages, **options: Any) -> None:
        self._foreign = foreign
        super().__init__(*args, **options)

    def parse_response(self, connection: Any, command_name: str, **options: Any) -> Any:
        reply: Any = super().parse_response(connection, command_name, **options)
        if command_name == _POP and reply:
            key, found = reply
            queue = key.decode().removeprefix(self.global_keyprefix)
            return queue, [raw for raw in found if not _is_dropped(self._foreign, "queue", queue, raw)]
        return reply

    def pubsub(self, **options: Any) -> Any:
        return _Subscription(
            self.connection_pool, foreign=self._foreign, global_keyprefix=self.global_keyprefix, **options
        )


class _Subscription(redis.PrefixedRedisPubSub):
    """A subscription that receives an empty message in place of one that cannot be read."""

    def __init__(self, *args: Any, foreign: ForeignMessages, **options: Any) -> None:
        self._foreign = foreign
        super().__init__(*args, **options)

    def parse_response(self, *args: Any, **options: Any) -> Any:
        reply: Any = super().parse_response(*args, **options)
        if reply and bytes(reply[0]).endswith(b"message"):
            *head, raw = reply
            if _is_dropped(self._foreign, "remote_control", head[-1].decode(errors="replace"), raw):
                return [*head, _EMPTY]
        return reply


def _is_dropped(foreign: ForeignMessages, source: Source, name: str, raw: bytes) -> bool:
    reason = unreadable(raw)
    if reason is not None:
        foreign.drop(source, "unreadable", queue=name, size=len(raw), error=reason)
    return reason is not None


class Channel(redis.Channel):
    """A channel that keeps its client, fetches several messages at once, and drops what it cannot read.

    Attributes:
        foreign_messages: Notes what is dropped. An option of the transport.
        room: Returns how many messages may be fetched now.
    """

    from_transport_options = (*redis.Channel.from_transport_options, "foreign_messages")
    foreign_messages = ForeignMessages(None)
    room: Callable[[], int] = staticmethod(_one)
    _nova_client: Any = None

    def _get_client(self) -> Any:
        return partial(_Client, global_keyprefix=self.global_keyprefix, foreign=self.foreign_messages)

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        # Kombu takes other errors of the server for errors of the worker, which end it.
        return {**super()._connparams(asynchronous=asynchronous), "parser_class": REPLY_PARSER}

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            # This client owns the connection that waits for messages, and is replaced with it.
            return super()._create_client(asynchronous=True)
        if self._nova_client is None or self._nova_client.connection_pool is not self.pool:
            self._nova_client = super()._create_client()
        return self._nova_client

    # The next two replace kombu's. It calls them where it names `BRPOP`, and keeps the books with the same attributes.

    def _brpop_start(self, timeout: float | None = None) -> None:
        queues = self._queue_cycle.consume(len(self.active_queues))
        room = self.room()
        if not queues or room < 1:
            return
        self._in_poll = self.client.connection
        self._brpop_sent_at = monotonic()
        self._in_poll.send_command(
            _POP,
            self.brpop_timeout if timeout is None else timeout,
            len(queues),
            *(f"{self.global_keyprefix}{queue}" for queue in queues),
            "RIGHT",
            "COUNT",
            min(room, _MOST_AT_ONCE),
        )

    def _brpop_read(self, **options: Any) -> Literal[True]:
        connection = self.client.connection
        try:
            try:
                reply = self.client.parse_response(connection, _POP, **options)
            except self.connection_errors:
                connection.disconnect()
                raise
            if not reply:
                raise Empty
            queue, found = reply
            self._queue_cycle.rotate(queue)
            for raw in found:
                self.connection._deliver(loads(raw.decode()), queue)
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()

    def basic_ack(self, delivery_tag: Any, multiple: bool = False) -> None:
        """Acknowledge a message of a queue that needs acknowledgements.

        Our queues need none. Kombu forgets that once the connection to the broker is lost: it would acknowledge earlier
        messages on a closed channel, which would end the worker.
        """
        try:
            self.qos.get(delivery_tag)
        except KeyError:
            return
        super().basic_ack(delivery_tag, multiple)


class Transport(redis.Transport):
    """The Redis transport, with our channel."""

    Channel = Channel


def use_kept_clients() -> None:
    """Make kombu use this transport for Redis URLs in this process.

    This replaces an entry of its registry instead of adding a URL scheme: Flower, and kombu's parser of socket URLs,
    know only ``redis``.
    """
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
