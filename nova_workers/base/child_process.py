"""Runs a program to its end, with limits on time and output, and without leaving processes behind.

On Linux every program runs under a supervisor of its own (`child_supervisor`), which ends the program and all its
descendants, whatever their session, environment or parent: when the program ends, when its time is up, when the caller
is canceled, and when this process is killed. Elsewhere the program leads a process group, which is killed in the first
three cases; processes that left the group, or that run when this process is killed, continue.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nova_workers.base import child_supervisor

_SUPERVISED: Final = sys.platform == "linux"
_CHUNK_BYTES = 65_536
_REAP_S = 2.0
"""A killed program is gone in milliseconds; one that hangs in the kernel (a dead network disk) may never be."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a program may run, and how much of its output is kept: the first and the last bytes."""

    timeout_s: float
    head_bytes: int
    tail_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ChildResult:
    """What came of a program.

    Attributes:
        exit_code: 128 and the number of the signal for a program that a signal ended, as shells have it (negative where
            there is no supervisor); None when its time was up.
        head: The first bytes of what it wrote.
        omitted_bytes: How much is missing between `head` and `tail`.
    """

    exit_code: int | None
    head: bytes
    tail: bytes = b""
    omitted_bytes: int = 0

    def text(self) -> str:
        """Return the output as text, with a note where some is missing."""
        if not self.omitted_bytes:
            return (self.head + self.tail).decode(errors="replace")
        note = f"\n[… {self.omitted_bytes} bytes omitted …]\n"
        return self.head.decode(errors="replace") + note + self.tail.decode(errors="replace")


def supervised(
    command: Sequence[str], env: Mapping[str, str], *, grace_s: float = 0.0, own_session: bool = True
) -> list[str]:
    """Return the command that runs `command` under a supervisor; without one (not Linux), `command` itself.

    It must be started by this process, which the supervisor watches. `end_supervised` ends it.

    Args:
        command: The program and its arguments.
        env: The environment that it will have.
        grace_s: After SIGTERM: how long the program may take to end by itself.
        own_session: Whether the program leads a session of its own, in place of sharing the supervisor's.

    Raises:
        FileNotFoundError: There is no such program.
    """
    program = command[0]
    # A relative path starts at the working directory of the child, not of this process.
    known = os.path.isabs(program) or os.sep not in program
    if known and shutil.which(program, path=env.get("PATH", os.defpath)) is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    if not _SUPERVISED:
        return list(command)
    python = (sys.executable, "-I", "-S", "-B", child_supervisor.__file__)
    return [*python, str(os.getpid()), f"{grace_s:g}", "own" if own_session else "shared", *command]


def end_supervised(process: asyncio.subprocess.Process) -> None:
    """Begin to end a program that was started with `supervised` as the leader of a session, and all that it started.

    Returns at once; `process.wait` says when all is gone.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if not _SUPERVISED:
            # The group may outlive its leader.
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            # Not killed: it is the supervisor that ends the others. It may have been stopped with them.
            process.terminate()
            process.send_signal(signal.SIGCONT)


async def run_child(
    command: Sequence[str],
    bounds: Bounds,
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    given: bytes | None = None,
    passed: Sequence[int] = (),
    with_errors: bool = False,
) -> ChildResult:
    """Run a program and return its result.

    Args:
        command: The program and its arguments; no shell is involved.
        bounds: Time and output.
        env: Its whole environment.
        cwd: Its working directory.
        given: What it reads on its standard input.
        passed: Descriptors that it gets, by the same numbers.
        with_errors: Whether standard error is output too; else it is dropped.

    Raises:
        OSError: It cannot be started.
    """
    supervised_command = supervised(command, env)
    read_end, write_end = os.pipe()
    try:
        # A pipe of our own: asyncio's may keep `wait` until every process that holds the other end is gone.
        process = await asyncio.create_subprocess_exec(
            *supervised_command,
            stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
            stdout=write_end,
            stderr=write_end if with_errors else asyncio.subprocess.DEVNULL,
            env=dict(env),
            cwd=cwd,
            pass_fds=tuple(passed),
            start_new_session=True,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    output = _Output(bounds)
    tasks = [asyncio.create_task(output.collect(read_end))]
    if given is not None:
        tasks.append(asyncio.create_task(_feed(process, given)))
    exit_code: int | None = None
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(bounds.timeout_s):
                exit_code = await process.wait()
    finally:
        await _end(process, tasks)
    return output.result(exit_code)


class _Output:
    """Keeps the first and the last bytes of a stream."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._head = bytearray()
        self._tail = bytearray()
        self._omitted_bytes = 0

    async def collect(self, read_end: int) -> None:
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        pipe = os.fdopen(read_end, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while chunk := await reader.read(_CHUNK_BYTES):
                self._take(chunk)
        finally:
            transport.close()

    def _take(self, chunk: bytes) -> None:
        room = self._bounds.head_bytes - len(self._head)
        self._head += chunk[:room] if room > 0 else b""
        self._tail += chunk[max(room, 0) :]
        excess = len(self._tail) - self._bounds.tail_bytes
        if excess > 0:
            del self._tail[:excess]
            self._omitted_bytes += excess

    def result(self, exit_code: int | None) -> ChildResult:
        return ChildResult(exit_code, bytes(self._head), bytes(self._tail), self._omitted_bytes)


async def _feed(process: asyncio.subprocess.Process, given: bytes) -> None:
    assert process.stdin is not None  # noqa: S101 - it was started with a pipe
    with contextlib.suppress(ConnectionError):
        process.stdin.write(given)
        await process.stdin.drain()
    process.stdin.close()


async def _end(process: asyncio.subprocess.Process, tasks: list[asyncio.Task[None]]) -> None:
    """End all processes of the program and close its pipes. A second cancellation does not interrupt this."""
    end_supervised(process)
    rest = asyncio.create_task(_clear(process, tasks))
    try:
        await asyncio.shield(rest)
    except asyncio.CancelledError:
        await asyncio.wait((rest,))
        raise


async def _clear(process: asyncio.subprocess.Process, tasks: list[asyncio.Task[None]]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REAP_S):
            await process.wait()
    # The pipe is at its end now, unless a process that cannot be killed holds it.
    _, late = await asyncio.wait(tasks, timeout=_REAP_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
