"""A Celery scheduler that skips ticks while earlier ones wait for a worker."""

from typing import Any

import structlog
from celery.beat import ScheduleEntry, Scheduler
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from nova_workers.broker.celery_app import RECONNECT

__all__ = ["TickScheduler"]

_log = structlog.get_logger(__name__)

_QUEUE = "system"
_MOST_WAITING = 50
"""Number of waiting ticks at which further ones are skipped: without a worker they would pile up."""


class TickScheduler(Scheduler):
    """Sends ticks unless too many wait. Keeps no file: due work is recorded in Postgres."""

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send a due tick, or skip it."""
        waiting = self._waiting()
        if waiting < _MOST_WAITING:
            super().apply_entry(entry, producer)
        else:
            _log.info("tick.left_out", task=entry.task, waiting=waiting)

    def _ensure_connected(self) -> Any:
        """Connect to the broker, however long it is away. Called by Celery before the first tick."""
        return self.connection.ensure_connection(_log_attempt, **RECONNECT)

    def _waiting(self) -> int:
        try:
            with self.app.connection_or_acquire() as connection:
                return int(connection.default_channel.client.llen(_QUEUE))
        except (RedisError, OperationalError, OSError):
            # Sending fails too, and reports the error.
            return 0


def _log_attempt(error: Exception, pause_s: float) -> None:
    _log.warning("broker.unavailable", error=f"{type(error).__name__}: {error}", pause_s=round(pause_s, 1))
