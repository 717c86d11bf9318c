"""How many event streams a key holds open, over all API processes."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from api.errors import TooManyStreams
from nova_workers.clock import Clock
from nova_workers.ids import new_id
from nova_workers.keys import open_streams

__all__ = ["Slot", "StreamSlots"]

_log = structlog.get_logger(__name__)

_LIFE_S = 120
"""A slot that nobody renews is free after this long: its process died."""
_RENEW_EVERY_S = 30.0
_DEADLINE_S = 0.25
"""Redis is asked on the way to the first event; without an answer this process's own count must do."""


class StreamSlots:
    """Counts in Redis, and in this process for when Redis does not answer. Best effort: a guard, not a meter."""

    def __init__(self, redis: Redis, clock: Clock, *, per_key: int) -> None:
        self._redis = redis
        self._clock = clock
        self._per_key = per_key
        self._open: dict[str, str] = {}
        self._mine: Counter[str] = Counter()

    @asynccontextmanager
    async def hold(self, key_id: str) -> AsyncGenerator["Slot"]:
        """Hold one of a key's slots for the block, or for longer where the block hands it over.

        Raises:
            TooManyStreams: All are taken.
        """
        slot = Slot(self, key_id)
        await self._take(slot)
        try:
            yield slot
        finally:
            if not slot.is_handed_over:
                await slot.free()

    async def free(self, slot: "Slot") -> None:
        """Take a slot back. Twice changes nothing."""
        if self._open.pop(slot.id, None) is not None:
            self._mine[slot.key_id] -= 1
            if not self._mine[slot.key_id]:
                del self._mine[slot.key_id]
            await self._forget(slot)

    async def renew(self) -> None:
        """Keep this process's slots taken, until cancelled."""
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            if not self._open:
                continue
            try:
                pipeline = self._redis.pipeline(transaction=False)
                until_s = self._now_s() + _LIFE_S
                for slot, key_id in self._open.items():
                    pipeline.zadd(open_streams(key_id), {slot: until_s})
                for key_id in self._mine:
                    pipeline.expire(open_streams(key_id), _LIFE_S)
                await pipeline.execute()
            except RedisError as error:
                _log.warning("stream_slots.not_renewed", open=len(self._open), error=str(error))

    async def _take(self, slot: "Slot") -> None:
        if self._mine[slot.key_id] >= self._per_key or await self._count_with(slot) > self._per_key:
            await self._forget(slot)
            raise TooManyStreams(
                f"This key holds {self._per_key} open event streams, which is the most it may. "
                "Close one, or wait for runs with GET /v1/runs/{id}/wait.",
                limit=self._per_key,
            )
        self._open[slot.id] = slot.key_id
        self._mine[slot.key_id] += 1

    async def _count_with(self, slot: "Slot") -> int:
        """Add a slot and return how many are taken, in one transaction; 0 where Redis does not answer."""
        name = open_streams(slot.key_id)
        now_s = self._now_s()
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.zremrangebyscore(name, "-inf", now_s)
        pipeline.zadd(name, {slot.id: now_s + _LIFE_S})
        pipeline.expire(name, _LIFE_S)
        pipeline.zcard(name)
        try:
            async with asyncio.timeout(_DEADLINE_S):
                return int((await pipeline.execute())[-1])
        except (RedisError, TimeoutError) as error:
            _log.warning("stream_slots.counted_alone", key_id=slot.key_id, error=str(error))
            return 0

    async def _forget(self, slot: "Slot") -> None:
        try:
            async with asyncio.timeout(_DEADLINE_S):
                await self._redis.zrem(open_streams(slot.key_id), slot.id)
        except (RedisError, TimeoutError) as error:
            # It runs out by itself.
            _log.warning("stream_slots.not_freed", key_id=slot.key_id, error=str(error))

    def _now_s(self) -> float:
        return self._clock.now().timestamp()


class Slot:
    """One of a key's slots: held from before a run is accepted until its stream ends."""

    def __init__(self, slots: StreamSlots, key_id: str) -> None:
        self.id = new_id("evt")
        self.key_id = key_id
        self.is_handed_over = False
        self._slots = slots

    def handed_over(self) -> "Slot":
        """Return it to whoever frees it from now on."""
        self.is_handed_over = True
        return self

    async def free(self) -> None:
        """Give it back. Twice changes nothing."""
        await self._slots.free(self)
