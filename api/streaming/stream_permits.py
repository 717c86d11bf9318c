"""Limits the open event streams of a key, over all API processes."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.clock import Clock
from nova_workers.base.ids import new_id
from nova_workers.base.keys import open_streams

from ..errors import TooManyStreams

_log = structlog.get_logger(__name__)

_LIFE_S = 120
"""A stream permit expires after this long without renewal (its process crashed)."""
_RENEW_EVERY_S = 30.0
_DEADLINE_S = 0.25
"""Redis is asked before the first event; without an answer in time this process's own count applies."""


class StreamPermits:
    """Counts in Redis, and in this process for when Redis does not answer. Best effort: a guard, not a meter."""

    def __init__(self, redis: Redis, clock: Clock, *, per_key: int) -> None:
        self._redis = redis
        self._clock = clock
        self._per_key = per_key
        self._open: dict[str, str] = {}
        self._mine: Counter[str] = Counter()

    @asynccontextmanager
    async def hold(self, key_id: str) -> AsyncGenerator["StreamPermit"]:
        """Hold a permit of a key for the block, or longer if the block transfers it.

        Raises:
            TooManyStreams: All permits of the key are in use.
        """
        permit = StreamPermit(self, key_id)
        await self._take(permit)
        try:
            yield permit
        finally:
            if not permit.is_handed_over:
                await permit.free()

    async def free(self, permit: "StreamPermit") -> None:
        """Release a permit. Idempotent."""
        if self._open.pop(permit.id, None) is not None:
            self._mine[permit.key_id] -= 1
            if not self._mine[permit.key_id]:
                del self._mine[permit.key_id]
            await self._forget(permit)

    async def renew(self) -> None:
        """Renew this process's permits until canceled."""
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            if not self._open:
                continue
            try:
                pipeline = self._redis.pipeline(transaction=False)
                until_s = self._now_s() + _LIFE_S
                for permit, key_id in self._open.items():
                    pipeline.zadd(open_streams(key_id), {permit: until_s})
                for key_id in self._mine:
                    pipeline.expire(open_streams(key_id), _LIFE_S)
                await pipeline.execute()
            except RedisError as error:
                _log.warning("stream_permits.not_renewed", outage="redis", open=len(self._open), error=str(error))

    async def _take(self, permit: "StreamPermit") -> None:
        if self._mine[permit.key_id] >= self._per_key or await self._count_with(permit) > self._per_key:
            await self._forget(permit)
            raise TooManyStreams(
                f"This key holds {self._per_key} open event streams, which is the most it may. "
                "Close one, or wait for runs with GET /v1/runs/{id}/wait.",
                limit=self._per_key,
            )
        self._open[permit.id] = permit.key_id
        self._mine[permit.key_id] += 1

    async def _count_with(self, permit: "StreamPermit") -> int:
        """Add a permit and return the count in use, in one transaction; 0 if Redis does not answer."""
        name = open_streams(permit.key_id)
        now_s = self._now_s()
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.zremrangebyscore(name, "-inf", now_s)
        pipeline.zadd(name, {permit.id: now_s + _LIFE_S})
        pipeline.expire(name, _LIFE_S)
        pipeline.zcard(name)
        try:
            async with asyncio.timeout(_DEADLINE_S):
                return int((await pipeline.execute())[-1])
        except (RedisError, TimeoutError) as error:
            _log.warning("stream_permits.counted_alone", key_id=permit.key_id, error=str(error))
            return 0

    async def _forget(self, permit: "StreamPermit") -> None:
        try:
            async with asyncio.timeout(_DEADLINE_S):
                await self._redis.zrem(open_streams(permit.key_id), permit.id)
        except (RedisError, TimeoutError) as error:
            # It expires by itself.
            _log.warning("stream_permits.not_freed", key_id=permit.key_id, error=str(error))

    def _now_s(self) -> float:
        return self._clock.now().timestamp()


class StreamPermit:
    """A stream permit: held from before a run is accepted until its stream ends."""

    def __init__(self, permits: StreamPermits, key_id: str) -> None:
        self.id = new_id("evt")
        self.key_id = key_id
        self.is_handed_over = False
        self._permits = permits

    def handed_over(self) -> "StreamPermit":
        """Transfer the permit: the caller releases it from now on."""
        self.is_handed_over = True
        return self

    async def free(self) -> None:
        """Release the permit. Idempotent."""
        await self._permits.free(self)
