"""The Claude Code program as a child process, as a transport of the SDK.

Not the SDK's own transport (0.2.187, `_internal/transport/subprocess_cli.py`), because that one

- starts the program in our process group, so that nothing but the program itself could be killed with it;
- gives it our whole environment, secrets included;
- gives it the system prompt and the headers of MCP servers as arguments, which every user of the machine can read;
- closes by waiting up to ten seconds for the program to end by itself.
"""

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from claude_agent_sdk import Transport

from nova_workers.base.child_process import end_supervised, supervised
from nova_workers.contracts.content import JsonObject
from nova_workers.engines.lines import json_object, read_lines
from nova_workers.shell_sandbox import Enclosed

__all__ = ["KEY_FD_VARIABLE", "ClaudeProcess", "Launch"]

KEY_FD_VARIABLE = "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR"
"""The program reads its key from this descriptor, so that the key is in no environment that a shell could print."""

_STDERR_LINES = 20


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start the program."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: str
    api_key: str | None = None
    confine: Callable[[Sequence[str]], AbstractContextManager[Enclosed]] | None = None
    """Puts the command into the sandbox; None starts it as it is."""


class ClaudeProcess(Transport):
    """One run of the program. `on_message` gets each of its messages first, in order."""

    def __init__(self, launch: Launch, on_message: Callable[[JsonObject], None]) -> None:
        self._launch = launch
        self._on_message = on_message
        self._process: asyncio.subprocess.Process | None = None
        self._writing = asyncio.Lock()
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._stderr_reader: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def complaints(self) -> str:
        """The last lines that the program wrote to stderr."""
        return "\n".join(self._stderr)

    async def connect(self) -> None:
        """Start the program.

        Raises:
            OSError: It cannot be started.
            ConnectionError: The conversation was closed meanwhile.
        """
        if self._closed:
            raise ConnectionError("The conversation was closed before the program started")
        environment = dict(self._launch.environment)
        inherited: tuple[int, ...] = ()
        if self._launch.api_key is not None:
            inherited = (_readable(self._launch.api_key),)
            environment[KEY_FD_VARIABLE] = str(inherited[0])
        confine = self._launch.confine or _as_it_is
        try:
            with confine(self._launch.command) as line:
                self._process = await asyncio.create_subprocess_exec(
                    # In one group with its supervisor, so that `freeze` stops both.
                    *supervised(line.command, environment, own_session=False),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    cwd=self._launch.cwd,
                    env=environment,
                    pass_fds=(*inherited, *line.descriptors),
                    start_new_session=True,
                )
        except ValueError as error:
            raise OSError(str(error)) from error
        finally:
            for descriptor in inherited:
                os.close(descriptor)
        self._stderr_reader = asyncio.create_task(self._read_stderr(), name="claude-stderr")
        if self._closed:
            await self._end()
            raise ConnectionError("The conversation was closed while the program started")

    def is_ready(self) -> bool:
        """Return whether the program runs."""
        return self._process is not None and self._process.returncode is None and not self._closed

    async def write(self, data: str) -> None:
        """Write to the program.

        Raises:
            ConnectionError: It does not read any more.
        """
        async with self._writing:
            if not self.is_ready():
                raise ConnectionError("The Claude Code program has ended")
            stdin = self._running().stdin
            assert stdin is not None  # noqa: S101 - it was asked for as a pipe
            stdin.write(data.encode())
            await stdin.drain()

    async def end_input(self) -> None:
        """Close the program's input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Return the messages that the program writes, until it ends."""
        return self._messages()

    async def _messages(self) -> AsyncIterator[dict[str, Any]]:
        stdout = self._running().stdout
        assert stdout is not None  # noqa: S101 - it was asked for as a pipe
        async for line in read_lines(stdout):
            message = json_object(line)
            if message is not None:
                self._on_message(message)
                yield message
        if not self._closed:
            # The SDK may be waiting for a response; only an error ends that wait.
            raise ConnectionError("The Claude Code program has ended")

    async def _read_stderr(self) -> None:
        stderr = self._running().stderr
        assert stderr is not None  # noqa: S101 - it was asked for as a pipe
        async for line in read_lines(stderr):
            self._stderr.append(line.decode(errors="replace"))

    def freeze(self) -> None:
        """Suspend the program. Returns at once; `close` ends it."""
        if self.is_ready():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._running().pid, signal.SIGSTOP)

    async def close(self) -> None:
        """End the program and all its descendants. Calling it again changes nothing."""
        self._closed = True
        if self._process is not None:
            await self._end()

    async def _end(self) -> None:
        process = self._running()
        end_supervised(process)
        await process.wait()
        if self._stderr_reader is not None:
            await asyncio.wait((self._stderr_reader,))

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            raise ConnectionError("The Claude Code program was not started")
        return self._process


def _as_it_is(command: Sequence[str]) -> AbstractContextManager[Enclosed]:
    return nullcontext(Enclosed(list(command), ()))


def _readable(secret: str) -> int:
    """Return a descriptor from which the secret can be read once."""
    reader, writer = os.pipe()
    try:
        # A key is shorter than a pipe's buffer, so this cannot block.
        os.write(writer, secret.encode())
    finally:
        os.close(writer)
    return reader
