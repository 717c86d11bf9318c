"""Pushes doorbells into the broker's lists from the event loop, outside the caller's critical path."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from nova_workers.base.keys import broker_queue
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.stopping import stop_tasks
from nova_workers.broker.encoding import DoorbellEncoder
from nova_workers.broker.pending import PendingRings, Piece, Ring
from nova_workers.broker.task_names import TASK_DELIVER, TASK_RUN_AGENT, TASK_RUN_EFFECTS
from nova_workers.contracts.runs import Doorbell

_log = structlog.get_logger(__name__)

_FEW: Final = 50
"""A longer list is sent in turns with single doorbells, so that it does not delay them."""
_PAUSE_S: Final = 0.25
"""After a failed push."""
_GATHER_S: Final = 0.1
"""Doorbells for effects, or for deliveries, within this time are merged: the work is done in batches anyway."""
_CLOSE_S: Final = 2.0


class BrokerDispatcher:
    """Sends doorbells for runs, effects and deliveries. Its methods are for the event loop's thread.

    Doorbells that are rung while others are on their way leave together. What the broker does not take is sent again
    for a while, unless it refuses that message. The reconciler sends lost ones again from the ledger.
    """

    def __init__(self, redis: Redis, metrics: Metrics) -> None:
        self._redis = redis
        self._metrics = metrics
        self._encoder = DoorbellEncoder()
        self._pending = PendingRings(time.monotonic, self._count_lost)
        self._sending: asyncio.Task[None] | None = None
        self._merged: dict[str, asyncio.TimerHandle] = {}
        self._closed = False

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        """Ring for queued runs. Returns at once; never raises."""
        by_queue: defaultdict[str, list[Doorbell]] = defaultdict(list)
        for bell in bells:
            by_queue[bell.queue].append(bell)
        for queue, rung in by_queue.items():
            self._pending.add(queue, TASK_RUN_AGENT, rung, is_listed=len(bells) > _FEW)
        if bells:
            self._send_soon()

    def ring_effects(self) -> None:
        """Ring for due effects. Doorbells close together are merged."""
        self._ring_merged(TASK_RUN_EFFECTS)

    def ring_deliveries(self) -> None:
        """Ring for deliveries in the outbox. Doorbells close together are merged."""
        self._ring_merged(TASK_DELIVER)

    async def close(self) -> None:
        """Send pending doorbells for a moment, and stop. What is left, and long lists, are left to the reconciler."""
        for task, timer in tuple(self._merged.items()):
            timer.cancel()
            self._ring_now(task)
        self._pending.drop_lists()
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=_CLOSE_S)
            await stop_tasks({self._sending})
        self._closed = True
        self._pending.drop_all()

    def _ring_merged(self, task: str) -> None:
        if task not in self._merged:
            self._merged[task] = asyncio.get_running_loop().call_later(_GATHER_S, self._ring_now, task)

    def _ring_now(self, task: str) -> None:
        del self._merged[task]
        self._pending.add("effects", task, [None])
        self._send_soon()

    def _send_soon(self) -> None:
        if self._closed:
            self._pending.drop_all()
        elif self._sending is None or self._sending.done():
            # Without the log fields of the caller, whose doorbell is not the only one.
            self._sending = asyncio.create_task(self._send_pending(), name="doorbells", context=contextvars.Context())

    async def _send_pending(self) -> None:
        while (piece := self._pending.take()) is not None:
            is_settled = False
            try:
                is_settled = await self._push(piece)
            except Exception:
                _log.exception("doorbell.failed", queue=piece.lane.queue, count=len(piece.rings))
            finally:
                if not is_settled:
                    self._pending.put_back(piece)
            if not is_settled:
                await asyncio.sleep(_PAUSE_S)

    async def _push(self, piece: Piece) -> bool:
        """Return whether the doorbells are settled: the broker took them, or refuses messages for this queue."""
        queue, count = piece.lane.queue, len(piece.rings)
        messages = [self._encoder.encode(ring.task, queue, _arguments(ring)) for ring in piece.rings]
        try:
            # One command, also for many: a pipeline of one costs the client twice as much.
            await self._redis.lpush(broker_queue(queue), *messages)
        except RedisError as error:
            # No broker failure is raised: the run is in the ledger.
            _log.warning(
                "doorbell.not_sent",
                outage="redis",
                queue=queue,
                count=count,
                error=f"{type(error).__name__}: {error}",
                **_arguments(piece.rings[0]),
            )
            if not _is_refusal(error):
                return False
            self._count_lost(queue, count)
            return True
        self._metrics.doorbells.labels(_counted_as(queue), "rung").inc(count)
        return True

    def _count_lost(self, queue: str, count: int) -> None:
        self._metrics.doorbells.labels(_counted_as(queue), "lost").inc(count)


def _arguments(ring: Ring) -> dict[str, str]:
    return {} if ring.bell is None else {"run_id": ring.bell.run_id, "thread_id": ring.bell.thread_id}


def _is_refusal(error: RedisError) -> bool:
    """Return whether the broker serves, but not this queue: its key has another type, or an ACL denies it.

    Messages for other queues neither wait nor are repeated then. The reply of a server that does not serve now is a
    `ServerNotReady`, which is no `ResponseError`.
    """
    return isinstance(error, ResponseError)


def _counted_as(queue: str) -> str:
    """Return the queue without the key of an installation, of which there are any number."""
    return queue.partition("+")[0].removesuffix(".")
