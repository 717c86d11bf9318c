"""One run of a program: its home, its process, its tools, and what they report in one queue."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from nova_workers.base.errors import EngineFailure
from nova_workers.engines.lines import LineTooLong
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.programs.bridge import Bridge
from nova_workers.engines.programs.frames import Announced, BridgeCall, Ended, Frame
from nova_workers.engines.programs.home import Home
from nova_workers.engines.programs.process import Launch, ProgramProcess
from nova_workers.engines.programs.vendor import Vendor


class ProgramRun:
    """Must be closed, which also removes the home."""

    def __init__(
        self, vendor: Vendor, home: Home, tools: Callable[[], Awaitable[Mapping[str, ToolDefinition]]]
    ) -> None:
        self.waiting: tuple[BridgeCall, ...] = ()
        """The calls of the last step, for whose results the program waits."""
        self._vendor = vendor
        self._home = home
        self._bridge = Bridge(tools, self._on_call)
        self._process: ProgramProcess | None = None
        self._follower: asyncio.Task[None] | None = None
        self._frames: asyncio.Queue[Frame] = asyncio.Queue()
        self._announced = 0
        self._received = 0

    @property
    def announces_more(self) -> bool:
        """Whether the program has not yet written about each call that came through the bridge."""
        return self._announced < self._received

    async def start(self, launch: Launch) -> None:
        """Start the program. A caller that gets an error closes the run.

        Raises:
            EngineFailure: It cannot be started.
        """
        try:
            await self._bridge.open(self._home.socket)
            self._process = process = ProgramProcess(launch)
            await process.start()
        except OSError as error:
            raise EngineFailure(
                f"The program of the engine {self._vendor.name!r} cannot be started: {error}. Try "
                f"{launch.command[0]!r} on this worker.",
                kind="unknown",
                retryable=True,
            ) from error
        self._follower = asyncio.create_task(self._follow(process, launch.given), name="program-output")

    async def next(self, timeout_s: float) -> Frame | None:
        """Wait for the next report; None if there is none in time."""
        try:
            async with asyncio.timeout(timeout_s):
                frame = await self._frames.get()
        except TimeoutError:
            return None
        if isinstance(frame, Announced):
            self._announced += 1
        elif isinstance(frame, BridgeCall):
            self._received += 1
        return frame

    def freeze(self) -> None:
        """Suspend the program. Returns at once."""
        if self._process is not None:
            self._process.freeze()

    async def close(self) -> None:
        """End the program and all that it started. A second cancellation does not interrupt this."""
        closing = asyncio.create_task(self._close(), name="program-close")
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait((closing,))
            raise

    async def _close(self) -> None:
        if self._process is not None:
            await self._process.close()
        if self._follower is not None:
            await asyncio.wait((self._follower,))
        await self._bridge.close()
        await asyncio.to_thread(self._home.remove)

    def _on_call(self, call: BridgeCall) -> None:
        self._frames.put_nowait(call)

    async def _follow(self, process: ProgramProcess, given: str) -> None:
        """Report each message of the program, and then its end."""
        _, problem = await asyncio.gather(_feed(process, given), self._read(process))
        exit_code = await process.wait()
        self._frames.put_nowait(Ended(exit_code, "\n".join(filter(None, (process.complaints, problem)))))

    async def _read(self, process: ProgramProcess) -> str | None:
        try:
            async for message in process.messages():
                for frame in self._vendor.frames(message):
                    self._frames.put_nowait(frame)
        except LineTooLong as error:
            process.end()
            return str(error)
        return None


async def _feed(process: ProgramProcess, given: str) -> None:
    with contextlib.suppress(ConnectionError):
        await process.write(given.encode(errors="replace"))
    process.end_input()
