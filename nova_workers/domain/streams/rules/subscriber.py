"""A subscription that notices that its connection is dead, also without a packet from the server.

A firewall that forgets a connection drops what either end sends, so the reader of an idle subscription would wait for
ever. It sends a PING every two seconds, whether or not messages arrive: they may, while nothing that it sends does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

PING_EVERY_S = 2.0
_MOST_UNANSWERED = 2
"""After one more interval the connection is dead: 6 s after the last answer."""


class Subscriber:
    """Receives messages of channels over one connection. One task receives; any may subscribe."""

    def __init__(self, redis: Redis, *, ping_every_s: float = PING_EVERY_S) -> None:
        # redis-py's own handler writes each message out for a line of its debug log.
        self._pubsub = redis.pubsub(push_handler_func=_passed_on)
        self._ping_every_s = ping_every_s
        self._unanswered = 0
        self._ping_due_s = 0.0

    async def subscribe(self, *channels: str) -> None:
        """Subscribe, on a new connection if the last one was lost.

        Raises:
            RedisError: Redis does not answer.
        """
        await self._pubsub.subscribe(*channels)

    async def unsubscribe(self, *channels: str) -> None:
        """Unsubscribe.

        Raises:
            RedisError: Redis does not answer.
        """
        await self._pubsub.unsubscribe(*channels)

    async def receive(self) -> Mapping[str, object]:
        """Return the next message, or confirmation of a subscription.

        Raises:
            RedisError: The connection was lost. Messages may have been missed; `subscribe` connects again.
        """
        while True:
            message = await self._pubsub.get_message(timeout=self._ping_every_s)
            # A confirmation is an answer too, such as that of a new connection to its first command.
            if message is not None and message["type"] in ("pong", "subscribe", "unsubscribe"):
                self._unanswered = 0
            if message is not None and message["type"] == "pong":
                continue
            await self._ping_if_due()
            if message is not None:
                return message

    async def close(self) -> None:
        """Close the connection."""
        await self._pubsub.aclose()

    async def _ping_if_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._ping_due_s:
            return
        self._ping_due_s = now_s + self._ping_every_s
        connection = self._pubsub.connection
        # Not `ping` of the client, which would connect, perhaps while another task does.
        if connection is None or not connection.is_connected:
            raise RedisConnectionError("the connection of the subscription was closed")
        if self._unanswered >= _MOST_UNANSWERED:
            self._unanswered = 0
            error = RedisTimeoutError(f"no answer to {_MOST_UNANSWERED} PINGs on the connection of the subscription")
            await connection.disconnect(nowait=True, error=error)
            raise error
        self._unanswered += 1
        await connection.send_command("PING", "nova", check_health=False)


async def _passed_on(message: object) -> object:
    return message
