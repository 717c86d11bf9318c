"""A Celery scheduler that skips ticks while earlier ones wait for a worker."""

import os
import socket
import time
from typing import Any

import structlog
from celery.beat import ScheduleEntry, Scheduler, SchedulingError
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from nova_workers.base.keys import BEAT_TTL_S, BROKER_KEY_PREFIX, beat_tick
from nova_workers.broker.celery_app import RECONNECT

_log = structlog.get_logger(__name__)

_QUEUE = "system"
_RECORD_S = 1.0
"""Most often that a tick is recorded."""
_MOST_WAITING = 50
"""Number of waiting ticks at which further ones are skipped: without a worker they would pile up."""


class TickScheduler(Scheduler):
    """Sends ticks unless too many wait. Keeps no file: due work is recorded in Postgres."""

    _is_cut_off = False
    """Whether the last tick could not be sent."""
    _recorded_s = 0.0

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Send a due tick, or skip it. A tick that the broker does not take is lost: due work stays in Postgres."""
        waiting = self._waiting()
        if waiting >= _MOST_WAITING:
            _log.warning("tick.left_out", outage="worker", task=entry.task, waiting=waiting)
            return
        try:
            # In place of Celery's own, which logs a traceback of thirty lines for each tick.
            self.apply_async(entry, producer=producer, advance=False)
        except SchedulingError as error:
            _log.warning("tick.not_sent", outage="redis", task=entry.task, error=str(error))
            self._is_cut_off = True
            return
        self._record()
        if self._is_cut_off:
            self._is_cut_off = False
            _log.info("broker.is_back")

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

    def _record(self) -> None:
        """Record that a tick was sent, for `nova doctor`."""
        now_s = time.monotonic()
        if now_s - self._recorded_s < _RECORD_S:
            return
        self._recorded_s = now_s
        try:
            with self.app.connection_or_acquire() as connection:
                # This client puts the prefix before the key.
                key = beat_tick().removeprefix(BROKER_KEY_PREFIX)
                connection.default_channel.client.set(key, f"{socket.gethostname()}:{os.getpid()}", ex=BEAT_TTL_S)
        except (RedisError, OperationalError, OSError) as error:
            _log.warning("tick.not_recorded", outage="redis", error=str(error))


def _log_attempt(error: Exception, pause_s: float) -> None:
    _log.warning(
        "broker.unavailable", outage="redis", error=f"{type(error).__name__}: {error}", pause_s=round(pause_s, 1)
    )
