"""One child process: started in its own process group, its output read, and stopped with its descendants."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process

from nova_workers.devstack.log_lines import LineReader, LineSink
from nova_workers.devstack.process import ProcessSpec

_READY_POLL_S = 0.05
_LAST_LINES_S = 1.0


class Child:
    """A running process; each start creates a new one."""

    def __init__(
        self,
        spec: ProcessSpec,
        process: Process,
        sink: LineSink,
        reader: LineReader,
        transport: asyncio.ReadTransport,
    ) -> None:
        self.spec = spec
        self._process = process
        self._sink = sink
        self._reader = reader
        self._transport = transport
        self._swept = False

    @classmethod
    async def start(cls, spec: ProcessSpec, sink: LineSink) -> Child:
        """Start a process from a spec.

        Call it on the main thread: the kernel's death signal follows the end of the *thread* that forked.
        """
        if spec.prepare is not None:
            spec.prepare()
        # A pipe of our own and not asyncio's: that one cannot be closed while a grandchild holds its other end.
        read_end, write_end = os.pipe()
        transport, reader = await asyncio.get_running_loop().connect_read_pipe(
            lambda: LineReader(spec.name, sink), os.fdopen(read_end, "rb", buffering=0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *spec.command(),
                env=spec.environment(),
                stdin=DEVNULL,
                stdout=write_end,
                stderr=STDOUT,
                # Its own session: Ctrl-C reaches the supervisor only, which stops everything in the right order.
                start_new_session=True,
            )
        except BaseException:
            transport.close()
            raise
        finally:
            os.close(write_end)
        return cls(spec, process, sink, reader, transport)

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.returncode is None

    async def ready(self) -> bool:
        """Wait until it serves; False if it ended first or took longer than the spec allows."""
        if self.spec.ready is None:
            return self.alive
        try:
            async with asyncio.timeout(self.spec.ready_timeout_s):
                while self.alive:
                    if await self.spec.ready():
                        return True
                    await asyncio.sleep(_READY_POLL_S)
        except TimeoutError:
            pass
        return False

    async def ended(self) -> int:
        """Wait for its end and return its exit code, negative for a signal.

        Kills the rest of its group, so that a restart never runs beside an old process.
        """
        code = await self._process.wait()
        if not self._swept:
            self._swept = True
            self._signal_group(signal.SIGKILL)
        # A grandchild in a group of its own may hold the pipe open: do not wait for that.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._reader.ended.wait(), _LAST_LINES_S)
        self._transport.close()
        return code

    async def stop(self) -> None:
        """Send the stop signal; kill the group after the spec's timeout."""
        if self.alive:
            try:
                self._process.send_signal(self.spec.stop_signal)
                await asyncio.wait_for(self._process.wait(), self.spec.stop_timeout_s)
            except ProcessLookupError:
                pass
            except TimeoutError:
                self._sink.say(
                    f"{self.spec.name} did not stop within {self.spec.stop_timeout_s:g} s; killing it", alarm=True
                )
                self.kill()
        await self.ended()

    def kill(self) -> None:
        """Kill its group at once."""
        if self.alive:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # The group is empty; macOS raises the second.
