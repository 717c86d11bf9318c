"""The thread lock in Redis: avoids useless claims. Ownership itself is the lease and fence in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from redis.asyncio import Redis

from nova_workers.base.keys import broker_queue, thread_lock, thread_recheck

_OF_THE_LEASE = 0.9
_BACKLOG = -1


def _script(name: str) -> str:
    return files("nova_workers.domain.threads.rules").joinpath(name).read_text("utf-8")


class ThreadLocks:
    """Takes, renews and releases the locks of threads.

    A token is made for each attempt to work on a thread, so two attempts of one process exclude each other too. All
    operations are idempotent per token and may be retried after a lost reply.
    """

    def __init__(self, redis: Redis, *, ttl_s: float) -> None:
        """Take the TTL of the lease. A lock expires a little earlier, so that a recovered run finds its thread free."""
        self._redis = redis
        self._ttl_ms = round(ttl_s * 1000 * _OF_THE_LEASE)
        self._acquire = redis.register_script(_script("acquire.lua"))
        self._release = redis.register_script(_script("release.lua"))
        self._extend = redis.register_script(_script("extend.lua"))

    async def acquire(self, thread_id: str, token: str) -> bool:
        """Take the lock without waiting. If another token holds it, return False and flag the thread for a recheck."""
        keys = [thread_lock(thread_id), thread_recheck(thread_id)]
        return bool(await self._acquire(keys=keys, args=[token, self._ttl_ms]))

    async def acquire_without_backlog(
        self, thread_id: str, token: str, *, queue: str, most_waiting: int
    ) -> bool | None:
        """Take the lock as `acquire` does, in the same round trip as the check of the queue.

        Returns:
            None, without a change, if more than `most_waiting` doorbells wait on the queue.
        """
        keys = [thread_lock(thread_id), thread_recheck(thread_id), broker_queue(queue)]
        answer = await self._acquire(keys=keys, args=[token, self._ttl_ms, most_waiting])
        return None if answer == _BACKLOG else bool(answer)

    async def release(self, thread_id: str, token: str) -> bool:
        """Release the lock. Return True if the thread was flagged for a recheck: it may have a new run."""
        return bool(await self._release(keys=[thread_lock(thread_id), thread_recheck(thread_id)], args=[token]))

    async def remove(self, thread_ids: Sequence[str]) -> None:
        """Remove the locks of threads on which no run is running: their releases did not reach Redis."""
        if thread_ids:
            await self._redis.delete(*map(thread_lock, thread_ids))

    async def extend(self, held: Sequence[tuple[str, str]]) -> list[str]:
        """Renew all locks of a process in one round trip.

        Args:
            held: Pairs of thread id and token.

        Returns:
            Threads whose lock another token holds.
        """
        pipeline = self._redis.pipeline(transaction=False)
        for thread_id, token in held:
            await self._extend(keys=[thread_lock(thread_id)], args=[token, self._ttl_ms], client=pipeline)
        answers = await pipeline.execute()
        return [thread_id for (thread_id, _), answer in zip(held, answers, strict=True) if not answer]
