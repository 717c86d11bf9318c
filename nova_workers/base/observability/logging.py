"""One log pipeline a process: structlog's lines and the standard library's, in one form, on stderr.

A line is an event name and fields. ``run_id``, ``thread_id``, ``attempt``, ``fence`` and ``tenant_id`` are on
every line of a run: bind them once with `structlog.contextvars.bound_contextvars`, and each coroutine and
thread that carries the context logs them. While a span is active, its ``trace_id`` and ``span_id`` are
on the line too.

Call it before the first line of a process. Celery leaves logging alone when something is connected to its
``setup_logging`` signal; what uvicorn set up before it loaded the application is undone here.
"""

import logging
import sys
from functools import partial
from typing import Any, TextIO

import orjson
import structlog
from opentelemetry import trace
from structlog.typing import EventDict, Processor, WrappedLogger

from nova_workers.base.observability.lines import LineHandler, StructuredLines, write_lines_at_once
from nova_workers.base.observability.outages import OneLineAState
from nova_workers.base.observability.plain_console import plain_console
from nova_workers.base.observability.ports import TelemetryConfig
from nova_workers.base.observability.redaction import frames_of, redact_secrets
from nova_workers.base.observability.tracing import is_unrecorded

_QUIET = {
    # The access log is ours (`observability.asgi`), with the route and without query strings.
    "uvicorn.access": logging.WARNING,
    # One line a request to the model, with no field that ours lacks.
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "httpcore": logging.WARNING,
    "httpcore2": logging.WARNING,
    "mcp": logging.WARNING,
    # Two lines a doorbell.
    "celery.app.trace": logging.WARNING,
    "celery.worker.strategy": logging.WARNING,
    # One line a tick.
    "celery.beat": logging.WARNING,
}


_CALM = frozenset({"debug", "info"})
_SELF_WILLED = ("uvicorn", "uvicorn.error", "uvicorn.access", "celery", "celery.task")
"""Loggers to which their libraries give handlers of their own; a line would come twice, or past the redaction."""


def configure_logging(settings: TelemetryConfig, process: str, *, stream: TextIO | None = None) -> None:
    """Send every log line of this process through one pipeline. Calling it again replaces the former one.

    Args:
        settings: The form (JSON through orjson, or console) and the lowest level.
        process: What this process is (``api``, ``worker``, ``beat``); on every line.
        stream: Where lines go; stderr when left out.
    """
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    target = stream or sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _ProcessName(process),
        _add_trace,
    ]
    final: list[Processor] = [
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        redact_secrets,
        # After the redaction, which need not look at it.
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        *_renderers(settings, target),
    ]
    write_lines_at_once()
    handler = LineHandler(target)
    structlog.configure(
        processors=[_only_warnings_where_unrecorded, OneLineAState(), *shared, *final],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=partial(StructuredLines, handler),
        cache_logger_on_first_use=False,
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), _drop_twins, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _without_lost_message,
                *final,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(True)
    for name in _SELF_WILLED:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name, lowest in _QUIET.items():
        logging.getLogger(name).setLevel(max(level, lowest))


def _renderers(settings: TelemetryConfig, target: TextIO) -> list[Processor]:
    if settings.log_format == "json":
        return [structlog.processors.JSONRenderer(serializer=_to_json)]
    if target.isatty():
        return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    return [plain_console()]


def _to_json(event_dict: EventDict, **_: Any) -> str:
    head = {key: event_dict.pop(key, None) for key in ("timestamp", "level", "event")}
    return orjson.dumps({**head, **event_dict}, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def _only_warnings_where_unrecorded(logger: WrappedLogger, name: str, event_dict: EventDict) -> EventDict:
    if name in _CALM and is_unrecorded():
        raise structlog.DropEvent
    return event_dict


def _drop_twins(logger: WrappedLogger, name: str, event_dict: EventDict) -> EventDict:
    event_dict.pop("color_message", None)  # uvicorn's message once more, with escape codes
    return event_dict


def _without_lost_message(logger: WrappedLogger, name: str, event_dict: EventDict) -> EventDict:
    """Log exceptions that no code retrieved by their type and frames.

    asyncio reports them when their task is freed. Whether it worked on an order, whose content no log may have, is not
    known then; and its description of the task quotes the message.
    """
    if event_dict.get("logger") != "asyncio":
        return event_dict
    exc_info = event_dict.pop("exc_info", None)
    event_dict["event"] = str(event_dict["event"]).partition("\n")[0]
    if exc_info and exc_info[1] is not None:
        event_dict["error_type"], event_dict["frames"] = type(exc_info[1]).__name__, frames_of(exc_info[1])
    return event_dict


def _add_trace(logger: WrappedLogger, name: str, event_dict: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event_dict["trace_id"] = trace.format_trace_id(context.trace_id)
        event_dict["span_id"] = trace.format_span_id(context.span_id)
    return event_dict


class _ProcessName:
    """Puts the name of the process on every line."""

    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, logger: WrappedLogger, name: str, event_dict: EventDict) -> EventDict:
        event_dict.setdefault("process", self._process)
        return event_dict
