"""Sends notifications to other processes over Redis pub/sub: hints to read state from Postgres sooner."""

from __future__ import annotations

import asyncio

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

_log = structlog.get_logger(__name__)

_WAIT_S = 0.25
"""A caller waits at most this long. What it notifies of is committed, and its client waits for the answer."""


class Notifier:
    """Publishes in the background if Redis does not answer at once: a dead connection takes seconds to notice."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._open: set[asyncio.Task[None]] = set()

    async def publish(self, channel: str, payload: bytes, **logged: object) -> None:
        """Publish a message. Best effort: a Redis failure is logged, not raised.

        Args:
            payload: The message.
            logged: Fields of the log line that reports a lost message.
        """
        task = asyncio.create_task(self._publish(channel, payload, logged))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        await asyncio.wait({task}, timeout=_WAIT_S)

    async def _publish(self, channel: str, payload: bytes, logged: dict[str, object]) -> None:
        try:
            await self._redis.publish(channel, payload)
        except RedisError as error:
            _log.warning("notification.lost", outage="redis", channel=channel, error=str(error), **logged)
        except Exception:
            _log.exception("notification.failed", channel=channel, **logged)
