"""A vendor's program as a child process that writes one JSON object a line."""

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from nova_workers.base.child_process import end_supervised, supervised
from nova_workers.base.observability.redaction import REDACTED, hide
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject
from nova_workers.engines.lines import LineTooLong, json_object, read_lines
from nova_workers.shell_sandbox import Enclosed

_STDERR_LINES = 20
_STDERR_LINE_CHARS = 1_000


def _as_it_is(command: Sequence[str]) -> AbstractContextManager[Enclosed]:
    return nullcontext(Enclosed(list(command), ()))


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a program.

    Attributes:
        given: What it reads on its standard input.
        secrets: What must not be in a message, such as the key.
        handed: Secrets that it reads from descriptors, by the variable with the number of the descriptor: in no
            environment that a shell could print.
        confine: Puts the command into the sandbox.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str
    given: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    handed: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    confine: Callable[[Sequence[str]], AbstractContextManager[Enclosed]] = _as_it_is


class ProgramProcess:
    """One run of a program, in a process group of its own. Must be closed."""

    def __init__(self, launch: Launch) -> None:
        """Start nothing yet."""
        self._launch = launch
        self._process: asyncio.subprocess.Process | None = None
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._stderr_reader: asyncio.Task[None] | None = None

    @property
    def complaints(self) -> str:
        """The last lines that the program wrote to stderr, without secrets."""
        text = "\n".join(self._stderr)
        for secret in (*self._launch.secrets, *self._launch.handed.values()):
            text = text.replace(secret, REDACTED)
        return hide(text)

    @property
    def runs(self) -> bool:
        """Whether the program was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the program.

        Raises:
            OSError: It cannot be started.
        """
        launch = self._launch
        descriptors = {variable: _readable(secret) for variable, secret in launch.handed.items()}
        environment = {**launch.environment, **{name: str(number) for name, number in descriptors.items()}}
        try:
            with launch.confine(launch.command) as line:
                self._process = await asyncio.create_subprocess_exec(
                    # In one group with its supervisor, so that `freeze` stops both.
                    *supervised(line.command, environment, own_session=False),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    cwd=launch.cwd,
                    env=environment,
                    pass_fds=(*descriptors.values(), *line.descriptors),
                    start_new_session=True,
                )
        except ValueError as error:
            raise OSError(str(error)) from error
        finally:
            for descriptor in descriptors.values():
                os.close(descriptor)
        self._stderr_reader = asyncio.create_task(self._read_stderr(), name="program-stderr")

    async def write(self, data: bytes) -> None:
        """Write to the program.

        Raises:
            ConnectionError: It does not read any more.
        """
        stdin = self._started().stdin
        assert stdin is not None  # noqa: S101 - it was asked for as a pipe
        stdin.write(data)
        await stdin.drain()

    def end_input(self) -> None:
        """Close the program's input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def messages(self) -> AsyncIterator[JsonObject]:
        """Yield the messages that the program writes, until it ends.

        Raises:
            LineTooLong: A line is over the limit.
        """
        stdout = self._started().stdout
        assert stdout is not None  # noqa: S101 - it was asked for as a pipe
        async for line in read_lines(stdout):
            message = json_object(line)
            if message is not None:
                yield message

    def freeze(self) -> None:
        """Suspend the program and all of its group. Returns at once; `close` ends it."""
        if self.runs:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._started().pid, signal.SIGSTOP)

    def end(self) -> None:
        """Begin to end the program and all its descendants. Returns at once."""
        if self._process is not None:
            end_supervised(self._process)

    async def wait(self) -> int:
        """Wait until the program has ended, and return its exit code."""
        exit_code = await self._started().wait()
        if self._stderr_reader is not None:
            await asyncio.wait((self._stderr_reader,))
        return exit_code

    async def close(self) -> None:
        """End the program and all its descendants. Calling it again changes nothing."""
        if self._process is not None:
            self.end()
            await self.wait()

    async def _read_stderr(self) -> None:
        stderr = self._started().stderr
        assert stderr is not None  # noqa: S101 - it was asked for as a pipe
        with contextlib.suppress(LineTooLong):
            async for line in read_lines(stderr):
                self._stderr.append(line.decode(errors="replace")[:_STDERR_LINE_CHARS])

    def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise ConnectionError("The program was not started")
        return self._process


@contextmanager
def frozen_by(abort: AbortSignal | None, freeze: Callable[[], None]) -> Generator[None]:
    """Suspend programs, within the block, as soon as their turn is aborted, whatever it is doing."""
    release = abort.subscribe(lambda _: freeze()) if abort is not None else None
    try:
        yield
    finally:
        if release is not None:
            release()


def _readable(secret: str) -> int:
    """Return a descriptor from which the secret can be read once."""
    reader, writer = os.pipe()
    try:
        # A key is shorter than a pipe's buffer, so this cannot block.
        os.write(writer, secret.encode())
    finally:
        os.close(writer)
    return reader
