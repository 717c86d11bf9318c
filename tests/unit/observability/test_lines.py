"""When log lines are written: those of a moment together, and none is lost or out of order."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from nova_workers.base.config import TelemetrySettings
from nova_workers.base.observability.lines import gather_lines, write_lines_at_once
from nova_workers.base.observability.logging import configure_logging
from tests.support.harness.logs import Writes, recorded_logs
from tests.support.waiting import until

_log = structlog.get_logger("x")


def _events(stream: Writes) -> list[list[str]]:
    """Return the events of the lines of each write."""
    return [[json.loads(line)["event"] for line in text.splitlines()] for text in stream.writes]


class Moment:
    """The machine's time, with a sleep that a test ends."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self.ends = threading.Event()

    def sleep(self, _: float) -> None:
        """Wait for the end."""
        self.ends.wait(60)


@pytest.fixture
def moment() -> Moment:
    """The moment after the first line."""
    return Moment()


@pytest.fixture
def stream(moment: Moment, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writes]:
    """Where lines go that are gathered after the first."""
    # Longer than a test process is held up on a busy machine.
    monkeypatch.setattr("nova_workers.base.observability.lines._MOMENT_S", 600.0)
    monkeypatch.setattr("nova_workers.base.observability.lines.time", moment)
    writes = Writes()
    with recorded_logs():
        configure_logging(TelemetrySettings(log_format="json"), "worker", stream=writes)
        gather_lines()
        try:
            yield writes
        finally:
            moment.ends.set()
            write_lines_at_once()


async def test_lines_of_a_moment_are_written_together_and_in_their_order(stream: Writes, moment: Moment) -> None:
    _log.info("first")
    _log.info("second")
    logging.getLogger("y").info("third")
    _log.info("fourth")
    assert _events(stream) == [["first"]]
    moment.ends.set()
    await until(lambda: len(stream.writes) > 1, "the lines that wait to be written")
    assert _events(stream) == [["first"], ["second", "third", "fourth"]]
    # The next moments are as the first.
    _log.info("fifth")
    await until(lambda: len(stream.writes) > 2, "the next line to be written")


def test_a_line_after_a_quiet_moment_is_written_at_once(stream: Writes, monkeypatch: pytest.MonkeyPatch) -> None:
    _log.info("first")
    handler = logging.getLogger().handlers[0]
    monkeypatch.setattr(handler, "_written_at_s", 0.0)
    _log.info("second")
    assert _events(stream) == [["first"], ["second"]]


@pytest.mark.parametrize("of_library", [False, True])
def test_a_warning_is_written_at_once_with_all_that_waited(stream: Writes, *, of_library: bool) -> None:
    for event in ("first", "second", "third"):
        _log.info(event)
    (logging.getLogger("y") if of_library else _log).warning("fourth")
    assert _events(stream) == [["first"], ["second", "third", "fourth"]]


def test_lines_that_wait_have_bounded_size(stream: Writes) -> None:
    for number in range(1_000):
        _log.info("long", number=number, text="x" * 1_000)
    assert max(map(len, stream.writes)) < 70_000
    assert sum(map(len, stream.writes)) > 1_000_000 - 70_000


def test_lines_that_wait_are_written_before_the_next_pipeline_takes_over(stream: Writes) -> None:
    for event in ("first", "second", "third"):
        _log.info(event)
    configure_logging(TelemetrySettings(log_format="json"), "worker", stream=stream)
    _log.info("fourth")
    assert _events(stream) == [["first"], ["second", "third"], ["fourth"]]


def test_a_process_that_does_not_gather_writes_each_line_at_once(stream: Writes) -> None:
    write_lines_at_once()
    for event in ("first", "second", "third"):
        _log.info(event)
    assert _events(stream) == [["first"], ["second"], ["third"]]


def test_a_stream_that_fails_is_reported_and_raises_nothing(stream: Writes, capsys: pytest.CaptureFixture[str]) -> None:
    _log.info("first")
    stream.close()
    _log.info("second")
    _log.error("third")
    assert capsys.readouterr().err.count("ValueError: I/O operation on closed file") == 1
    _log.info("fourth")
    write_lines_at_once()
    assert capsys.readouterr().err.count("ValueError: I/O operation on closed file") == 1


_PROGRAM = """
import os, signal, structlog, sys
from nova_workers.base.config import TelemetrySettings
from nova_workers.base.observability.lines import gather_lines, write_lines_at_once
from nova_workers.base.observability.logging import configure_logging
configure_logging(TelemetrySettings(log_format="json"), "worker")
gather_lines()
log = structlog.get_logger()
for event in ("first", "second", "third"):
    log.info(event)
{end}
"""


@pytest.mark.parametrize(
    ("end", "exit_code"),
    [
        pytest.param("", 0, marks=pytest.mark.long),
        ("sys.exit(3)", 3),
        # These ends are of Python, as the one above.
        pytest.param("raise RuntimeError", 1, marks=pytest.mark.long),
        pytest.param("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, marks=pytest.mark.long),
        ("write_lines_at_once(); os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
        ("log.error('fourth'); os._exit(70)", 70),
        # The child has none of its parent's lines, and writes its own.
        pytest.param("if os.fork() == 0: sys.exit()\nos.wait()", 0, marks=pytest.mark.long),
        ("if os.fork() == 0: log.error('fourth'); os._exit(0)\nos.wait()", 0),
    ],
)
def test_no_line_is_lost_or_repeated_at_the_end_of_a_process(end: str, exit_code: int, tmp_path: Path) -> None:
    errors = tmp_path / "stderr"
    with errors.open("wb") as stderr:
        code = _PROGRAM.format(end=end)
        done = subprocess.run([sys.executable, "-c", code], stderr=stderr, env={**os.environ}, check=False)
    assert done.returncode == exit_code, errors.read_text()
    lines = [json.loads(line) for line in errors.read_text().splitlines() if line.startswith("{")]
    expected = ["first", "second", "third", *(["fourth"] if "fourth" in end else [])]
    assert sorted(line["event"] for line in lines) == sorted(expected)
