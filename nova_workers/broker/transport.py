"""Kombu's Redis transport with one client per channel, which waits for a server that is not ready.

Kombu 5.7 builds a `redis.Redis` for each command that it sends, and redis-py 8.1 fills a table of 170 response
callbacks for each: an eighth of a worker's CPU under load (docs/decisions/0005-celery-settings.md). The client keeps no
state of its own beside its pool, so one serves all of a channel's commands.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis

from nova_workers.broker.redis_connections import REPLY_PARSER

__all__ = ["Channel", "Transport", "use_kept_clients"]


class Channel(redis.Channel):
    """A channel that keeps its client."""

    _nova_client: Any = None

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
