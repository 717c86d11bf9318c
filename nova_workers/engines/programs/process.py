"""A vendor's program as a child process that writes one JSON object a line."""

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nova_workers.base.child_process import end_supervised, supervised
from nova_workers.base.observability.redaction import REDACTED, hide
from nova_workers.contracts.content import JsonObject
from nova_workers.engines.lines import LineTooLong, json_object, read_lines

__all__ = ["Launch", "ProgramProcess"]

_STDERR_LINES = 20
_STDERR_LINE_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a program.

    Attributes:
        given: What it reads on its standard input.
        secrets: What must not be in a message, such as the key.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str
    given: str
    secrets: tuple[str, ...] = field(default=(), repr=False)


class ProgramProcess:
    """One run of a program, in a process group of its own. Must be closed."""

    def __init__(
        self, launch: Launch, on_message: Callable[[JsonObject], None], on_end: Callable[[int, str], None]
    ) -> None:
        """Start nothing yet.

        Args:
            launch: How to start it.
            on_message: Receives each object that it writes.
            on_end: Receives, once, its exit code and the end of its stderr, after all messages.
        """
        self._launch = launch
        self._on_message = on_message
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._follower: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the program.

        Raises:
            OSError: It cannot be started.
        """
        launch = self._launch
        self._process = await asyncio.create_subprocess_exec(
            # In one group with its supervisor, so that `freeze` stops both.
            *supervised(launch.command, launch.environment, own_session=False),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=launch.cwd,
            env=dict(launch.environment),
            start_new_session=True,
        )
        self._follower = asyncio.create_task(self._follow(self._process), name="program-output")

    def freeze(self) -> None:
        """Suspend the program and all of its group. Returns at once; `close` ends it."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGSTOP)

    async def close(self) -> None:
        """End the program and all its descendants. Calling it again changes nothing."""
        if self._process is None or self._follower is None:
            return
        end_supervised(self._process)
        await asyncio.wait((self._follower,))

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        _, problem, _ = await asyncio.gather(self._feed(process), self._read(process), self._read_stderr(process))
        exit_code = await process.wait()
        complaints = "\n".join((*self._stderr, *((problem,) if problem else ())))
        for secret in self._launch.secrets:
            complaints = complaints.replace(secret, REDACTED)
        self._on_end(exit_code, hide(complaints))

    async def _feed(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None  # noqa: S101 - it was asked for as a pipe
        with contextlib.suppress(ConnectionError):
            process.stdin.write(self._launch.given.encode(errors="replace"))
            await process.stdin.drain()
        process.stdin.close()

    async def _read(self, process: asyncio.subprocess.Process) -> str | None:
        assert process.stdout is not None  # noqa: S101 - it was asked for as a pipe
        try:
            async for line in read_lines(process.stdout):
                message = json_object(line)
                if message is not None:
                    self._on_message(message)
        except LineTooLong as error:
            end_supervised(process)
            return str(error)
        return None

    async def _read_stderr(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None  # noqa: S101 - it was asked for as a pipe
        with contextlib.suppress(LineTooLong):
            async for line in read_lines(process.stderr):
                self._stderr.append(line.decode(errors="replace")[:_STDERR_LINE_CHARS])
