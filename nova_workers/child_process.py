"""Runs a program to its end, in bounds: of time, of output, and of what it leaves behind.

Every program is the leader of a session of its own, so that it and all that it starts are one group and die together:
when it ends, when its time is up, and when the caller is cancelled. What leaves the group (``setsid``, a daemon) is
found by a mark in its environment, where the system shows environments (Linux).
"""

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Bounds", "ChildResult", "run_child"]

_MARK = "CHILD_GROUP"
_CHUNK_BYTES = 65_536
_REAP_S = 2.0
"""A killed program is gone in milliseconds; one that hangs in the kernel (a dead network disk) may never be."""
_HUNTS = 3
"""A process may fork while it is being looked for."""


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
        exit_code: As the system has it, negative for a signal; None when its time was up.
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


async def run_child(
    command: Sequence[str],
    bounds: Bounds,
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    given: bytes | None = None,
    passed: Sequence[int] = (),
    with_errors: bool = False,
    hunt: bool = False,
) -> ChildResult:
    """Run a program and return what came of it.

    Args:
        command: The program and its arguments; no shell is involved.
        bounds: Time and output.
        env: Its whole environment.
        cwd: Its working directory.
        given: What it reads on its standard input.
        passed: Descriptors that it gets, by the same numbers.
        with_errors: Whether standard error is output too; else it is dropped.
        hunt: Whether to look for processes that left the group, and end them as well.

    Raises:
        OSError: It cannot be started.
    """
    mark = secrets.token_hex(16)
    read_end, write_end = os.pipe()
    try:
        # A pipe of our own: asyncio's may keep `wait` until every process that holds the other end is gone.
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
            stdout=write_end,
            stderr=write_end if with_errors else asyncio.subprocess.DEVNULL,
            env={**env, _MARK: mark},
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
        await _end(process, mark if hunt else None, tasks)
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


async def _end(process: asyncio.subprocess.Process, mark: str | None, tasks: list[asyncio.Task[None]]) -> None:
    """End the whole group, whatever state it is in, and let go of its pipes. Not cut short by another cancellation."""
    _kill_group(process.pid)
    rest = asyncio.create_task(_clear(process, mark, tasks))
    try:
        await asyncio.shield(rest)
    except asyncio.CancelledError:
        await asyncio.wait((rest,))
        raise


async def _clear(process: asyncio.subprocess.Process, mark: str | None, tasks: list[asyncio.Task[None]]) -> None:
    if mark is not None:
        await asyncio.to_thread(_hunt, f"{_MARK}={mark}".encode())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REAP_S):
            await process.wait()
    # The pipe is at its end now, unless somebody whom we cannot see holds it.
    _, late = await asyncio.wait(tasks, timeout=_REAP_S)
    for task in late:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _kill_group(leader: int) -> None:
    # The group may outlive its leader, and a group that is gone is what we want.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _hunt(mark: bytes) -> None:
    for _ in range(_HUNTS):
        found = [pid for pid in _pids() if mark in _environment(pid)]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        # Gone, or another user's.
        return b""
