"""A command on a pseudo-terminal, for tests of what a person sees and types."""

import os
import pty
import re
import signal
import subprocess
import termios
from pathlib import Path

from tests.support.processes.command_line import Nova, wait_for
from tests.support.processes.preloaded import PreloadedProcess, stream_of

PROMPT = "(the prompt reads)"
"""Appears on the screen where a prompt begins to read."""


class Terminal:
    """A command on a pseudo-terminal of its own.

    Args:
        nova: The command's environment.
        arguments: Of the command.
        columns: Width of the terminal.
        program: The module that Python runs with the arguments.
        stdin: Whether stdin is the terminal too.
    """

    def __init__(
        self,
        nova: Nova,
        *arguments: str,
        columns: int = 200,
        program: str = "nova_workers.cli",
        stdin: bool = True,
    ) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (40, columns))
        # These would replace the size of this terminal.
        inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        # This terminal does not answer queries for the cursor position.
        self.env = {**inherited, **nova.env, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        streams = (stream_of(slave if stdin else subprocess.DEVNULL), stream_of(slave), stream_of(slave))
        self.process = PreloadedProcess(program, arguments, env=self.env, streams=streams, cwd=Path.cwd())
        self._slave = slave
        os.set_blocking(self._master, False)
        self.screen = ""
        self.log = ""

    def shows(self, text: str, timeout_s: float = 30.0) -> None:
        """Wait until the terminal shows this, and forget everything up to it."""
        try:
            wait_for(lambda: text in self._pull(), timeout_s)
        except AssertionError:
            raise AssertionError(f"{text!r} is not on a terminal that shows {self.screen!r}") from None
        self.screen = self.screen.partition(text)[2]

    def type(self, text: str) -> None:
        """Press keys; Enter is a carriage return."""
        os.write(self._master, text.replace("\n", "\r").encode())

    def paste(self, text: str) -> None:
        """Paste text, as a terminal brackets it."""
        os.write(self._master, f"\x1b[200~{text}\x1b[201~".encode())

    def interrupt(self) -> None:
        """Press Ctrl-C: the session has no controlling terminal, so the signal is sent by hand."""
        self.process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        """Wait for its end, and return its exit code."""

        def look() -> bool:
            self._pull()
            return self.process.poll() is not None

        wait_for(look, what="its end")
        return self.process.wait()

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, as it does when no prompt reads."""
        return bool(termios.tcgetattr(self._slave)[3] & termios.ECHO)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    def _pull(self) -> str:
        try:
            while data := os.read(self._master, 65536):
                # A prompt that reads asks for pastes in brackets; other switches of the terminal do not count.
                shown = data.decode().replace("\x1b[?2004h", PROMPT)
                plain = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", shown)
                self.screen += plain
                self.log += plain
        except OSError:
            pass  # Nothing to read now, or the other end is closed.
        return self.screen
