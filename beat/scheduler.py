"""Celery's scheduler, which leaves a tick out while ticks wait that nobody took."""

from typing import Any

import structlog
from celery.beat import ScheduleEntry, Scheduler
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

__all__ = ["TickScheduler"]

_log = structlog.get_logger(__name__)

_QUEUE = "system"
_MOST_WAITING = 50
"""While no worker takes ticks they would pile up by the hour. A tick more does nothing that those before it do not."""


class TickScheduler(Scheduler):
    """Rings unless so many ticks wait. Keeps no file: what is due stands in Postgres."""

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Ring for what is due, or leave it out."""
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
            # Ringing will fail too, and say so.
            return 0
