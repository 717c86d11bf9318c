"""Sends doorbells through Celery on threads, outside the event loop and the caller's critical path."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog
from celery import Celery
from kombu.entity import Queue
from redis.exceptions import ResponseError

from nova_workers.broker.task_names import TASK_DELIVER, TASK_RUN_AGENT, TASK_RUN_EFFECTS
from nova_workers.broker.unsent import Ring, UnsentRings
from nova_workers.contracts.runs import Doorbell
from nova_workers.observability.metrics import Metrics

__all__ = ["CeleryDispatcher"]

_log = structlog.get_logger(__name__)

_MAX_WAITING = 2_000
"""Doorbells that may wait for a publisher thread. More are left to the reconciler, to bound memory."""
_FEW = 50
"""A longer list is published by a separate thread, so that it does not delay single doorbells."""
_LIST = 500
_MAX_LISTS = 40
"""Lists that wait for that thread, which publishes a list in about a third of a second."""
_REST_S = 0.25
"""Pause after a failed publish: each attempt on a dead broker blocks a thread for seconds."""
_EFFECTS_GATHER_S = 0.1
"""Doorbells for effects, or for deliveries, within this time are merged: the work is done in batches anyway."""


class CeleryDispatcher:
    """Sends doorbells for runs, effects and deliveries.

    What the broker does not take is sent again for a while, unless it refuses that message. The reconciler sends lost
    ones again from the ledger.
    """

    def __init__(self, celery: Celery, metrics: Metrics, *, threads: int) -> None:
        self._celery = celery
        self._metrics = metrics
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="doorbell")
        self._room = threading.Semaphore(_MAX_WAITING)
        self._lists = ThreadPoolExecutor(1, thread_name_prefix="doorbells")
        self._room_for_lists = threading.Semaphore(_MAX_LISTS)
        self._unsent = UnsentRings(self._send, self._count_lost)
        self._rest_until_s = 0.0
        self._effects_bell: asyncio.TimerHandle | None = None
        self._delivery_bell: asyncio.TimerHandle | None = None

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        """Ring for queued runs. Returns at once; never raises."""
        if len(bells) > _FEW:
            for begin in range(0, len(bells), _LIST):
                self._submit_list(bells[begin : begin + _LIST])
            return
        for bell in bells:
            self._submit(TASK_RUN_AGENT, bell.queue, _names(bell))

    def ring_effects(self) -> None:
        """Ring for due effects. Doorbells close together are merged."""
        if self._effects_bell is None:
            loop = asyncio.get_running_loop()
            self._effects_bell = loop.call_later(_EFFECTS_GATHER_S, self._ring_effects_now)

    def ring_deliveries(self) -> None:
        """Ring for deliveries in the outbox. Doorbells close together are merged."""
        if self._delivery_bell is None:
            loop = asyncio.get_running_loop()
            self._delivery_bell = loop.call_later(_EFFECTS_GATHER_S, self._ring_deliveries_now)

    def close(self) -> None:
        """Send pending doorbells for a moment, and stop. Long lists not yet begun are left to the reconciler."""
        if self._delivery_bell is not None:
            self._delivery_bell.cancel()
            self._ring_deliveries_now()
        if self._effects_bell is not None:
            self._effects_bell.cancel()
            self._ring_effects_now()
        self._unsent.close()
        self._executor.shutdown(wait=True, cancel_futures=False)
        self._lists.shutdown(wait=True, cancel_futures=True)
        self._celery.close()

    def _ring_deliveries_now(self) -> None:
        self._delivery_bell = None
        self._submit(TASK_DELIVER, "effects", {})

    def _ring_effects_now(self) -> None:
        self._effects_bell = None
        self._submit(TASK_RUN_EFFECTS, "effects", {})

    def _submit(self, task: str, queue: str, kwargs: dict[str, Any]) -> None:
        if not self._room.acquire(blocking=False):
            self._metrics.doorbells.labels(queue, "lost").inc()
            return
        self._executor.submit(self._publish_and_make_room, task, queue, kwargs)

    def _submit_list(self, bells: Sequence[Doorbell]) -> None:
        if not self._room_for_lists.acquire(blocking=False):
            for bell in bells:
                self._metrics.doorbells.labels(bell.queue, "lost").inc()
            return
        self._lists.submit(self._publish_list, bells)

    def _publish_list(self, bells: Sequence[Doorbell]) -> None:
        try:
            for bell in bells:
                self._publish(TASK_RUN_AGENT, bell.queue, _names(bell))
        finally:
            self._room_for_lists.release()

    def _publish_and_make_room(self, task: str, queue: str, kwargs: dict[str, Any]) -> None:
        try:
            self._publish(task, queue, kwargs)
        finally:
            self._room.release()

    def _publish(self, task: str, queue: str, kwargs: dict[str, Any]) -> None:
        ring = Ring(task, queue, kwargs)
        if time.monotonic() < self._rest_until_s or not self._send(ring):
            self._unsent.add(ring)

    def _send(self, ring: Ring) -> bool:
        """Return whether the message is settled: the broker took it, or refuses this message."""
        try:
            if ring.queue not in self._celery.amqp.queues:
                # A pool's: operators name pools while the fleet runs.
                self._celery.amqp.queues.add(Queue(ring.queue, no_ack=True))
            self._celery.send_task(
                ring.task,
                kwargs=ring.kwargs,
                queue=ring.queue,
                ignore_result=True,
                # Else Celery makes both representations with `saferepr`, and kombu declares the queue, of which Redis
                # needs to know nothing: 52 of 169 µs of a publish.
                argsrepr="()",
                kwargsrepr=repr(ring.kwargs),
                declare=(),
            )
        except Exception as error:
            # No broker failure is raised: the run is in the ledger.
            why = f"{type(error).__name__}: {error}"
            _log.warning("doorbell.not_sent", task=ring.task, queue=ring.queue, error=why, **ring.kwargs)
            if _is_refusal(error):
                self._count_lost(ring)
                return True
            self._rest_until_s = time.monotonic() + _REST_S
            return False
        self._metrics.doorbells.labels(ring.queue, "rung").inc()
        return True

    def _count_lost(self, ring: Ring) -> None:
        self._metrics.doorbells.labels(ring.queue, "lost").inc()


def _is_refusal(error: Exception) -> bool:
    """Whether the broker serves, but not this message: its queue's key has another type, or an ACL denies it.

    Messages for other queues are neither to rest nor to wait for repetitions. The reply of a server that does not serve
    now is a `ServerNotReady`, which is no `ResponseError`.
    """
    # kombu wraps what the client of Redis raised.
    return isinstance(error.__cause__ or error, ResponseError)


def _names(bell: Doorbell) -> dict[str, Any]:
    return {"run_id": bell.run_id, "thread_id": bell.thread_id}
