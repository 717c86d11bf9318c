"""What the processes of a fleet log, written by their own pipeline in the test process."""

from __future__ import annotations

import io
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import structlog

from nova_workers.base.config import TelemetrySettings
from nova_workers.base.observability.logging import configure_logging


class Writes(io.StringIO):
    """A stream that records each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str, /) -> int:
        self.writes.append(text)
        return super().write(text)


@contextmanager
def recorded_logs(
    process: str = "worker", *, log_format: Literal["json", "console"] = "json", log_level: str = "debug"
) -> Generator[io.StringIO]:
    """Log as a process of the fleet does for a block; the logging of the tests is restored after it."""
    configured = structlog.get_config()
    before = {logger: (logger.level, list(logger.handlers), logger.propagate) for logger in _loggers()}
    stream = io.StringIO()
    settings = TelemetrySettings.model_validate({"log_format": log_format, "log_level": log_level})
    try:
        configure_logging(settings, process, stream=stream)
        yield stream
    finally:
        for logger in _loggers():
            level, logger.handlers[:], logger.propagate = before.get(logger, (logging.NOTSET, [], True))
            logger.setLevel(level)
        logging.captureWarnings(False)
        structlog.configure(**configured)


def _loggers() -> list[logging.Logger]:
    named = (each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger))
    return [logging.root, *named]
