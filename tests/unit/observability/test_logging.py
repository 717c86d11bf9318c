"""One pipeline for structlog and the standard library."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from nova_workers.base.config import TelemetrySettings
from nova_workers.base.observability.logging import configure_logging
from nova_workers.base.observability.tracing import Tracing, unrecorded
from tests.support.harness.logs import recorded_logs


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Where lines go; the logging of the test session is put back afterwards."""
    with recorded_logs(log_level="info") as stream:
        yield stream


def _read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_an_event_with_fields(lines: io.StringIO) -> None:
    structlog.get_logger("nova_workers.domain.runs.rules").info("run_claimed", run_id="run_1", attempt=2)
    (line,) = _read(lines)
    timestamp = line.pop("timestamp")
    assert timestamp.endswith("Z")
    assert line == {
        "level": "info",
        "event": "run_claimed",
        "run_id": "run_1",
        "attempt": 2,
        "logger": "nova_workers.domain.runs.rules",
        "process": "worker",
    }


def test_a_rehearsal_logs_warnings_only(lines: io.StringIO) -> None:
    log = structlog.get_logger("nova_workers.domain.runs.rules")
    with unrecorded():
        log.info("run.finished")
        log.warning("run.lost")
    log.info("run.claimed")
    assert [line["event"] for line in _read(lines)] == ["run.lost", "run.claimed"]


def test_lines_of_other_libraries_have_the_same_format(lines: io.StringIO) -> None:
    with structlog.contextvars.bound_contextvars(run_id="run_1", fence=7):
        logging.getLogger("asyncpg").warning("slow %s", "query")
    (line,) = _read(lines)
    assert (line["event"], line["logger"], line["run_id"], line["fence"]) == ("slow query", "asyncpg", "run_1", 7)


def test_secrets_are_redacted_in_fields_messages_and_tracebacks(lines: io.StringIO) -> None:
    try:
        raise ConnectionError("postgresql://nova:hunter2@db")
    except ConnectionError:
        structlog.get_logger("x").exception(
            "database_lost", url="redis://:hunter2@cache", headers={"cookie": "hunter2"}
        )
    logging.getLogger("httpx3").error("sent Authorization: Bearer %s", "hunter2")
    assert "hunter2" not in lines.getvalue()
    crashed, sent = _read(lines)
    assert "ConnectionError" in crashed["exception"]
    assert sent["event"] == "sent Authorization: Bearer [redacted]"


def test_the_active_trace_is_on_the_line(lines: io.StringIO) -> None:
    tracing = Tracing(TelemetrySettings(), "worker")
    with tracing.span("x", parent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"):
        structlog.get_logger("x").info("inside")
    structlog.get_logger("x").info("outside")
    inside, outside = _read(lines)
    assert (inside["trace_id"], inside["span_id"]) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert "trace_id" not in outside


def test_handlers_that_uvicorn_set_up_before_are_replaced(lines: io.StringIO) -> None:
    own = io.StringIO()
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(logging.StreamHandler(own))
    logger.propagate = False
    configure_logging(TelemetrySettings(log_format="json"), "api", stream=lines)
    logger.info("Started %s", "server", extra={"color_message": "\x1b[1mStarted"})
    assert own.getvalue() == ""
    (line,) = _read(lines)
    assert (line["event"], line["process"]) == ("Started server", "api")
    assert "color_message" not in line


def test_lines_below_the_level_and_chatty_libraries_are_left_out(lines: io.StringIO) -> None:
    structlog.get_logger("x").debug("detail")
    logging.getLogger("asyncio").debug("detail")
    logging.getLogger("celery.app.trace").info("Task nova.run_agent[…] succeeded")
    logging.getLogger("uvicorn.access").info("GET /")
    assert lines.getvalue() == ""


def test_values_that_json_does_not_know_are_shown_as_text(lines: io.StringIO) -> None:
    structlog.get_logger("x").info("odd", value=object, nested={1: {2}})
    (line,) = _read(lines)
    assert line["nested"] == {"1": [2]}


def test_console_lines_are_for_people() -> None:
    with recorded_logs("api", log_format="console") as stream:
        structlog.get_logger("x").info("hello", run_id="run_1")
    assert "hello" in stream.getvalue()
    assert "run_id=run_1" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_a_line_that_its_stream_does_not_take_fails_nothing(
    lines: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    full = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    configure_logging(TelemetrySettings(log_format="console"), "api", stream=full)
    structlog.get_logger("x").warning("price", unit="€")
    assert "UnicodeEncodeError" in capsys.readouterr().err
