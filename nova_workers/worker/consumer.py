"""Celery's consumer, with events sent in batches, and awake as soon as a slot is free.

Celery flushes task events at every tick of its hub, one publish for one or two events: a fifth of a worker's CPU under
load (docs/decisions/0005-celery-settings.md). Flower shows seconds; a tenth of one more is not seen.

Without prefetch a worker whose slots are all busy does not listen to the broker, and looks whether one is free when its
hub ticks next: up to a second after the slot was free. Here the end of a task makes it tick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.worker import state
from celery.worker.consumer import Consumer

__all__ = ["CONSUMER", "BatchingConsumer"]

CONSUMER = f"{__name__}:BatchingConsumer"
"""The class's name, as Celery's `worker_consumer` wants it."""

_GATHER_S = 0.1


class BatchingConsumer(Consumer):
    """A consumer that gathers task events for a moment before it sends them."""

    _flush_due = False
    _wakes = False
    _full = False
    """Every slot is taken, as far as the hub knows: it does not listen."""

    def register_with_event_loop(self, hub: Any) -> None:
        """Join the hub. Called by Celery at each connection to the broker."""
        super().register_with_event_loop(hub)
        if not self._wakes:
            self._wakes = True
            pool: Any = self.pool
            pool.on_apply = self._waking(pool, pool.on_apply)

    def _waking(self, pool: Any, apply: Callable[..., Any]) -> Callable[..., Any]:
        """Return what hands tasks to the pool, and has the hub look for the next one when a task has left its slot."""

        def on_apply(*args: Any, **options: Any) -> Any:
            result = apply(*args, **options)
            self._full = len(state.reserved_requests) >= pool.num_processes
            result.f.add_done_callback(self._wake)
            return result

        return on_apply

    def _wake(self, _: object) -> None:
        if self._full and self.hub:
            self._full = False
            # From the task's thread; the hub takes calls from others.
            self.hub.call_soon(_tick)

    def on_send_event_buffered(self) -> None:
        """Have what is buffered sent soon. Called by Celery after each event."""
        if self.hub and not self._flush_due:
            self._flush_due = True
            self.hub.call_later(_GATHER_S, self._flush_gathered)

    def _flush_gathered(self) -> None:
        self._flush_due = False
        self._flush_events()


def _tick() -> None:
    """Do nothing: the hub looks at its slots at every tick."""
