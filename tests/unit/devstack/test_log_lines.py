"""The processes' output on one terminal."""

from __future__ import annotations

import io

import pytest

from nova_workers.devstack.log_lines import TerminalLines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_line_has_its_process_as_prefix_and_no_colour_in_a_pipe() -> None:
    stream = io.StringIO()
    lines = TerminalLines(stream)
    lines.line("api", "ready")
    lines.say("up")
    assert stream.getvalue() == "api      │ ready\nnova     │ up\n"


def test_each_process_has_its_own_colour_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    lines = TerminalLines(stream)
    lines.line("api", "one")
    lines.line("beat", "two")
    lines.line("api", "three")
    colours = [line.split("m")[0] for line in stream.getvalue().splitlines()]
    assert colours[0] == colours[2] != colours[1]


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    TerminalLines(stream).line("api", "one")
    assert "\x1b" not in stream.getvalue()


def test_a_closed_reader_does_not_stop_the_stack() -> None:
    class ClosedPipe(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    lines = TerminalLines(ClosedPipe())
    lines.line("api", "one")
    lines.say("two")
