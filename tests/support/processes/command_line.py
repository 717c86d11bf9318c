"""The `nova` command in tests: inside the test process where that is enough, as a process where signals matter."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any
from unittest import mock

from nova_workers.cli.app import main
from tests.support.processes.preloaded import PreloadedProcess, stream_of


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON lines on stdout."""
        return [json.loads(line) for line in self.out.splitlines()]


class Nova:
    """The command with an environment of its own.

    Calling it runs it in this process, which has a loop of its own: only in tests that are not async.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = dict(env)

    def __call__(self, *arguments: str, stdin: str = "", **env: str) -> Done:
        """Run a command to its end."""
        out, err = io.StringIO(), io.StringIO()
        source = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        with (
            mock.patch.dict(os.environ, {**self.env, **env}),
            mock.patch.object(sys, "argv", ["nova", *arguments]),
            mock.patch.object(sys, "stdin", source),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code: object = None
            try:
                main()
            except SystemExit as ended:
                code = ended.code
        return Done(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())

    def good(self, *arguments: str, stdin: str = "", **env: str) -> Done:
        """Run a command that must succeed."""
        done = self(*arguments, stdin=stdin, **env)
        assert done.code == 0, done
        return done

    @contextmanager
    def child(
        self, *arguments: str, stdin: int = subprocess.DEVNULL, program: str = "nova_workers.cli", **env: str
    ) -> Generator["Child"]:
        """Start a command as a process of its own, with its modules imported, which ends with the block."""
        out, err = os.pipe(), os.pipe()
        streams = (stream_of(stdin), stream_of(out[1]), stream_of(err[1]))
        with open(out[0], "rb", buffering=0) as stdout, open(err[0], "rb", buffering=0) as stderr:
            process = PreloadedProcess(
                program, arguments, env={**os.environ, **self.env, **env}, streams=streams, cwd=Path.cwd()
            )
            try:
                yield Child(process, stdout, stderr)
            finally:
                process.kill()
                process.wait()
                for _, end in (out, err):
                    os.close(end)


class Child:
    """A running command."""

    def __init__(self, process: PreloadedProcess, stdout: FileIO, stderr: FileIO) -> None:
        self._process = process
        self._stdout, self._stderr = stdout, stderr
        self._seen: dict[FileIO, bytes] = {self._stdout: b"", self._stderr: b""}
        for stream in self._seen:
            os.set_blocking(stream.fileno(), False)

    def reads(self, text: str, timeout_s: float = 30.0) -> None:
        """Wait until stdout contains a text."""
        wait_for(lambda: text.encode() in self._pull(self._stdout), timeout_s, f"{text!r} on stdout")

    def notes(self, text: str, timeout_s: float = 30.0) -> None:
        """Wait until stderr contains a text."""
        wait_for(lambda: text.encode() in self._pull(self._stderr), timeout_s, f"{text!r} on stderr")

    def stop_reading(self) -> None:
        """Close the far end of its stdout, as `head` does."""
        self._stdout.close()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def terminate(self) -> None:
        """Ask it to end, as a supervisor does."""
        self._process.send_signal(signal.SIGTERM)

    def done(self, timeout_s: float = 30.0) -> Done:
        """Wait for its end."""
        code = self._process.wait(timeout_s)
        return Done(code, self._pull(self._stdout).decode(), self._pull(self._stderr).decode())

    def _pull(self, stream: FileIO) -> bytes:
        while not stream.closed and (chunk := stream.read(65536)):
            self._seen[stream] += chunk
        return self._seen[stream]


def wait_for(done: Callable[[], Any], timeout_s: float = 60.0, what: str = "it") -> Any:
    """Wait until `done` returns something true, and return that."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := done()):
        assert time.monotonic() < deadline_s, f"waited {timeout_s} s for {what}"
        time.sleep(0.02)
    return found
