"""`nova chat`, in a pipe and on a terminal."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator

import pytest

from tests.support.command_line import Nova, wait_for

pytestmark = [pytest.mark.fleet, pytest.mark.xdist_group("cli_fleet")]

Script = Callable[..., str]


class Terminal:
    """A child on a terminal of its own, as a person would use it."""

    def __init__(self, nova: Nova, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        env = {**os.environ, **nova.env, "TERM": "xterm", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nova_workers.cli", *arguments],
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            close_fds=True,
        )
        os.close(slave)
        os.set_blocking(self._master, False)
        self.screen = ""

    def shows(self, text: str, timeout_s: float = 30.0) -> None:
        """Wait until the terminal shows this, and forget everything up to it."""
        wait_for(lambda: text in self._pull(), timeout_s, f"{text!r} on a terminal that shows {self.screen!r}")
        self.screen = self.screen.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C: the session has no controlling terminal, so the signal is sent by hand."""
        self.process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        """Wait for its end, and return its exit code."""

        def look() -> bool:
            self._pull()
            return self.process.poll() is not None

        wait_for(look, what="its end")
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _pull(self) -> str:
        try:
            while data := os.read(self._master, 65536):
                # Readline switches modes of the terminal; what is shown is what counts.
                self.screen += re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", data.decode())
        except OSError:
            pass  # Nothing to read now, or the other end is closed.
        return self.screen


@pytest.fixture
def terminal(nova: Nova) -> Generator[Terminal]:
    terminal = Terminal(nova, "chat")
    terminal.shows("> ")
    yield terminal
    terminal.close()


def test_each_line_of_a_pipe_is_a_turn_on_one_thread(nova: Nova) -> None:
    done = nova.good("chat", stdin="one\n\ntwo\n")
    assert done.out == "You said: one\nYou said: two\n"
    thread = re.search(r"--thread (thr_\w+)", done.err)
    assert thread is not None
    runs = nova.good("runs", "list", "--thread", thread[1], "--json").json["items"]
    assert len(runs) == 2
    assert nova.good("chat", "--thread", thread[1], stdin="three\n").out == "You said: three\n"


def test_chat_in_json_is_lines_only(nova: Nova) -> None:
    lines = nova.good("chat", "--json", stdin="one\n").lines
    assert lines[0]["type"] == "stream_start"
    assert lines[-1]["text"] == "You said: one"


def test_slash_commands_are_obeyed(nova: Nova) -> None:
    done = nova.good("chat", stdin="/thread\n/help\n/nonsense\none\n/new\ntwo\n/quit\nthree\n")
    assert done.out == "You said: one\nYou said: two\n"
    assert "none yet" in done.err
    assert "'/nonsense' is not a command" in done.err


def test_a_chat_that_cannot_begin_ends_at_once(nova: Nova) -> None:
    assert nova("chat", "--agent", "nobody", stdin="x\n").code == 1
    assert nova("chat", "--thread", "thr_nowhere", stdin="x\n").code == 1
    assert nova("chat", stdin="x\n", NOVA_API_URL="http://127.0.0.1:9").code == 1


def test_a_turn_on_a_terminal_streams_and_ctrl_d_leaves(terminal: Terminal) -> None:
    terminal.type("hello\n")
    terminal.shows("You said: hello")
    terminal.shows("tokens in")
    terminal.shows("> ")
    terminal.type("\x04")
    assert terminal.ended() == 0
    assert "nova chat --thread thr_" in terminal.screen


def test_ctrl_c_cancels_the_turn_and_stays_in_the_chat(terminal: Terminal, script: Script) -> None:
    terminal.type(script({"say": "Working on it."}, {"sleep_s": 60}) + "\n")
    terminal.shows("Working on it.")
    terminal.interrupt()
    terminal.shows("canceled")
    terminal.shows("> ")
    terminal.type("still there\n")
    terminal.shows("You said: still there")
    terminal.shows("> ")
    terminal.type("/quit\n")
    assert terminal.ended() == 0


def test_ctrl_c_at_the_prompt_drops_the_line_and_stays(terminal: Terminal) -> None:
    terminal.interrupt()
    terminal.shows("Ctrl-D leaves")
    terminal.shows("> ")
    terminal.type("hello\n")
    terminal.shows("You said: hello")
    terminal.shows("> ")
    terminal.type("\x04")
    assert terminal.ended() == 0


def test_a_line_typed_while_a_turn_runs_joins_it(terminal: Terminal, script: Script) -> None:
    work = [{"tool": {"name": "work", "sleep_s": 0.3}} for _ in range(8)]
    terminal.type(script(*work, {"say": "finished"}) + "\n")
    terminal.shows("✓ work")
    terminal.type("by the way\n")
    terminal.shows("joined this turn")
    terminal.shows("(steered: by the way)")
    terminal.shows("finished")
    terminal.shows("> ")
