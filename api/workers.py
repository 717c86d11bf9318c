"""Live worker processes, from the records that they renew in Redis."""

import asyncio
from collections.abc import Sequence
from typing import cast

import structlog
from pydantic import ValidationError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.keys import broker_queue, thread_lock, worker_presence, workers_index
from nova_workers.base.vocabulary import QueuedReason
from nova_workers.contracts.http.fleet import QueuedGroup, WorkerDrain, WorkerView
from nova_workers.contracts.http.wire import NO_WORKER_ALIVE, REDIS_UNAVAILABLE, RunView
from nova_workers.domain.runs.rules.reasons import QueueSight
from nova_workers.domain.runs.sql.reads import FREE_WORKER

_log = structlog.get_logger(__name__)

_DEADLINE_S = 1.0


async def live_workers(redis: Redis) -> list[WorkerView] | None:
    """Return the workers with a recent record; None if Redis does not answer."""
    return await _read(redis)


def with_drains(
    live: Sequence[WorkerView] | None, drains: Sequence[WorkerDrain]
) -> tuple[list[WorkerView], list[WorkerDrain]]:
    """Return live workers with the times of their orders to drain, and the orders to workers that have ended.

    Args:
        live: None if Redis does not answer: then a worker has ended if it recorded that.
        drains: The orders of the last hour.
    """
    ordered_at = {drain.worker_id: drain.ordered_at for drain in drains}
    workers = [worker.model_copy(update={"drain_ordered_at": ordered_at.get(worker.id)}) for worker in live or ()]
    alive = {worker.id for worker in workers}
    ended = [drain for drain in drains if drain.ended_at or (live is not None and drain.worker_id not in alive)]
    return workers, ended


async def name_missing_worker(redis: Redis, run: RunView) -> RunView:
    """Replace "a free worker" as the reason why a run waits, if Redis or each worker of its queue is away."""
    if run.waiting_for != FREE_WORKER:
        return run
    served = await _served_queues(redis)
    if served is None:
        return run.model_copy(update={"waiting_for": f"{REDIS_UNAVAILABLE}: the run starts when it is back"})
    if run.queue in served:
        return run
    lack = f"{NO_WORKER_ALIVE} for the queue {run.queue!r}: start one with `nova worker`"
    return run.model_copy(update={"waiting_for": lack})


async def name_missing_workers(redis: Redis, groups: list[QueuedGroup]) -> list[QueuedGroup]:
    """Replace `worker` as the reason of queued runs, where Redis or each worker of their queue is away."""
    if all(group.reason != "worker" for group in groups):
        return groups
    served = await _served_queues(redis)

    def reason(group: QueuedGroup) -> QueuedReason:
        if group.reason != "worker":
            return group.reason
        if served is None:
            return "redis_unavailable"
        return "worker" if group.queue in served else "no_worker"

    return [group.model_copy(update={"reason": reason(group)}) for group in groups]


async def look_at_queue(redis: Redis, queue: str, thread_id: str) -> QueueSight | None:
    """Return the state of a queue and of a conversation's lock in Redis; None if it does not answer."""
    workers = await _read(redis)
    if workers is None:
        return None
    serving = [worker for worker in workers if not worker.draining and queue in worker.queues]
    try:
        async with asyncio.timeout(_DEADLINE_S):
            doorbells = await redis.llen(broker_queue(queue))
            lock_ms = await redis.pttl(thread_lock(thread_id))
    except (RedisError, TimeoutError) as error:
        _log.warning("workers.redis_unavailable", outage="redis", error=str(error))
        return None
    return QueueSight(
        workers=len(serving),
        slots=sum(worker.slots for worker in serving),
        busy=sum(worker.busy for worker in serving),
        doorbells=doorbells,
        lock_s=lock_ms / 1000 if lock_ms > 0 else None,
    )


async def _served_queues(redis: Redis) -> frozenset[str] | None:
    """Return the queues that a live worker takes runs of; None if Redis does not answer."""
    workers = await _read(redis)
    if workers is None:
        return None
    return frozenset(queue for worker in workers if not worker.draining for queue in worker.queues)


async def _read(redis: Redis) -> list[WorkerView] | None:
    try:
        async with asyncio.timeout(_DEADLINE_S):
            worker_ids = cast(list[bytes], await redis.zrange(workers_index(), 0, -1))
            if not worker_ids:
                return []
            named = [worker_id.decode(errors="replace") for worker_id in worker_ids]
            records = await redis.mget([worker_presence(worker_id) for worker_id in named])
    except (RedisError, TimeoutError) as error:
        _log.warning("workers.redis_unavailable", outage="redis", error=str(error))
        return None
    return [worker for record in records if record is not None and (worker := _parse(record)) is not None]


def _parse(record: bytes | str) -> WorkerView | None:
    try:
        return WorkerView.model_validate_json(record)
    except ValidationError as error:
        # Of another release, or of another program.
        _log.warning("workers.record_unreadable", size=len(record), errors=error.error_count())
        return None
