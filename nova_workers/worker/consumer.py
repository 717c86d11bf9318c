"""Celery's consumer, with events sent in batches.

Celery flushes task events at every tick of its hub, one publish for one or two events: a fifth of a worker's CPU under
load (docs/decisions/0005-celery-settings.md). Flower shows seconds; a tenth of one more is not seen.
"""

from __future__ import annotations

from celery.worker.consumer import Consumer

__all__ = ["CONSUMER", "BatchingConsumer"]

CONSUMER = f"{__name__}:BatchingConsumer"
"""The class's name, as Celery's `worker_consumer` wants it."""

_GATHER_S = 0.1


class BatchingConsumer(Consumer):
    """A consumer that gathers task events for a moment before it sends them."""

    _flush_due = False

    def on_send_event_buffered(self) -> None:
        """Have what is buffered sent soon. Called by Celery after each event."""
        if self.hub and not self._flush_due:
            self._flush_due = True
            self.hub.call_later(_GATHER_S, self._flush_gathered)

    def _flush_gathered(self) -> None:
        self._flush_due = False
        self._flush_events()
