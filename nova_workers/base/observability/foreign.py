"""Messages that this fleet did not send: each is dropped, logged and counted, and costs nothing else."""

from __future__ import annotations

from typing import Literal

import structlog

from nova_workers.base.observability.metrics import Metrics

_log = structlog.get_logger(__name__)

Source = Literal["queue", "remote_control", "notification", "event"]
"""Where it was: a queue of doorbells; Celery's remote control; a cancel notification; a stream of live events."""

Reason = Literal["unreadable", "too_large", "unknown_task", "wrong_arguments", "refused_command", "failed"]
"""Why it was dropped. ``failed``: it has the right form, and handling it raised an exception."""


class ForeignMessages:
    """Logs what a process drops, and counts it if the process has metrics."""

    def __init__(self, metrics: Metrics | None) -> None:
        self._metrics = metrics

    def drop(self, source: Source, reason: Reason, **fields: object) -> None:
        """Note that a message was dropped, with fields that help to find its sender."""
        if self._metrics is not None:
            self._metrics.foreign_messages.labels(source, reason).inc()
        _log.warning("message.dropped", source=source, reason=reason, **fields)
