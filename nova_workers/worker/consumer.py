"""A Celery consumer that sends events in batches and fetches a message as soon as a worker slot is free.

Celery flushes task events at every tick of its hub, one publish for one or two events: a fifth of a worker's CPU under
load (docs/decisions/0005-celery-settings.md). Flower shows seconds, so 0.1 s more delay is invisible.

Without prefetch a worker with no free slot does not listen to the broker until its hub ticks next, up to a second after
a slot became free. Here the end of a task makes the hub tick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.worker import state
from celery.worker.consumer import Consumer

__all__ = ["CONSUMER", "BatchingConsumer"]

CONSUMER = f"{__name__}:BatchingConsumer"
"""The class's name for Celery's `worker_consumer`."""

_GATHER_S = 0.1


class BatchingConsumer(Consumer):
    """A consumer that collects task events for a moment before it sends them."""

    _flush_due = False
    _wakes = False
    _full = False
    """All worker slots are busy, as far as the hub knows, so it does not listen."""

    def register_with_event_loop(self, hub: Any) -> None:
        """Join the hub. Called by Celery at each connection to the broker."""
        super().register_with_event_loop(hub)
        if not self._wakes:
            self._wakes = True
            pool: Any = self.pool
            pool.on_apply = self._waking(pool, pool.on_apply)

    def _waking(self, pool: Any, apply: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function that passes tasks to the pool, so that the hub ticks when a task has left its slot."""

        def on_apply(*args: Any, **options: Any) -> Any:
            result = apply(*args, **options)
            self._full = len(state.reserved_requests) >= pool.num_processes
            result.f.add_done_callback(self._wake)
            return result

        return on_apply

    def _wake(self, _: object) -> None:
        if self._full and self.hub:
            self._full = False
            # Called on the task's thread; `call_soon` of the hub is thread-safe.
            self.hub.call_soon(_tick)

    def on_send_event_buffered(self) -> None:
        """Schedule a flush of the buffered events. Called by Celery after each event."""
        if self.hub and not self._flush_due:
            self._flush_due = True
            self.hub.call_later(_GATHER_S, self._flush_gathered)

    def _flush_gathered(self) -> None:
        self._flush_due = False
        self._flush_events()


def _tick() -> None:
    """Do nothing: the hub checks its slots at every tick."""
