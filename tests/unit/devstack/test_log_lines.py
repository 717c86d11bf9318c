"""The processes' output on one terminal."""

from __future__ import annotations

import io

import pytest

from nova_workers.devstack.log_lines import LineReader, TerminalLines
from tests.support.harness.logs import Writes


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_line_has_its_process_as_prefix_and_no_colour_in_a_pipe() -> None:
    stream = io.StringIO()
    lines = TerminalLines(stream)
    lines.lines("api", ["ready"])
    lines.say("up")
    assert stream.getvalue() == "api      │ ready\nnova     │ up\n"


def test_each_process_has_its_own_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    lines = TerminalLines(stream)
    lines.lines("api", ["one"])
    lines.lines("beat", ["two"])
    lines.lines("api", ["three"])
    colours = [line.split("m")[0] for line in stream.getvalue().splitlines()]
    assert colours[0] == colours[2] != colours[1]


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    TerminalLines(stream).lines("api", ["one"])
    assert "\x1b" not in stream.getvalue()


def test_a_closed_reader_does_not_stop_the_stack() -> None:
    class ClosedPipe(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    lines = TerminalLines(ClosedPipe())
    lines.lines("api", ["one"])
    lines.say("two")


async def test_the_lines_of_one_read_are_written_together() -> None:
    stream = Writes()
    reader = LineReader("api", TerminalLines(stream))
    reader.data_received(b"one\n\ntwo  \r\nthr")
    reader.data_received(b"ee\n")
    assert stream.writes == ["api      │ one\napi      │ two\n", "api      │ three\n"]


async def test_a_character_that_two_reads_share_is_whole() -> None:
    stream = io.StringIO()
    reader = LineReader("api", TerminalLines(stream))
    line = "café €".encode()
    for at in range(len(line)):
        reader.data_received(line[at : at + 1])
    reader.data_received(b"\n\xff\n")
    assert stream.getvalue() == "api      │ café €\napi      │ \ufffd\n"


async def test_the_end_of_a_process_is_the_end_of_its_last_line() -> None:
    stream = io.StringIO()
    reader = LineReader("api", TerminalLines(stream))
    reader.data_received(b"one\ntwo")
    assert not reader.ended.is_set()
    reader.connection_lost(None)
    assert reader.ended.is_set()
    assert stream.getvalue() == "api      │ one\napi      │ two\n"


async def test_a_line_without_end_is_written_in_parts() -> None:
    stream = Writes()
    reader = LineReader("api", TerminalLines(stream))
    for _ in range(100):
        reader.data_received(b"x" * 1_000)
    reader.connection_lost(None)
    assert stream.getvalue().count("x") == 100_000
    assert max(map(len, stream.writes)) < 20_000
