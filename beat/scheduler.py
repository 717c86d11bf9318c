"""A Celery scheduler that skips ticks while earlier ones wait for a worker."""

from typing import Any

import structlog
from celery.beat import ScheduleEntry, Scheduler
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

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

    def _waiting(self) -> int:
        try:
            with self.app.connection_or_acquire() as connection:
                return int(connection.default_channel.client.llen(_QUEUE))
        except (RedisError, OperationalError, OSError):
            # Sending fails too, and reports the error.
            return 0
