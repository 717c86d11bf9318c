"""Starts processes in order, keeps them running, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from nova_workers.base.errors import NovaError
from nova_workers.devstack.child import Child
from nova_workers.devstack.log_lines import LineSink
from nova_workers.devstack.process import ProcessSpec

_MAX_DOUBLINGS = 30


class ProcessGaveUp(NovaError):
    """A process failed too often; the operator must act. ``fields['process']`` names it."""

    code = "process_gave_up"


@dataclass(frozen=True)
class RestartPolicy:
    """When an ended process is restarted.

    Attributes:
        first_delay_s: Pause before the first restart; doubled with each consecutive failure.
        longest_delay_s: Bound of the pause.
        healthy_after_s: A process that ran this long starts a new count of failures.
        give_up_after: Consecutive failures after which the supervisor stops restarting a process that is not optional.
    """

    first_delay_s: float = 0.5
    longest_delay_s: float = 15.0
    healthy_after_s: float = 20.0
    give_up_after: int = 6

    def delay_s(self, failures: int) -> float:
        """Return the pause before the restart after the n-th consecutive failure, from 1."""
        # Without the bound of the exponent, the thousandth pause would be too large for a float.
        return min(self.first_delay_s * 2 ** min(failures - 1, _MAX_DOUBLINGS), self.longest_delay_s)


class _Kept:
    """A process that is kept running: its current child, and the task that replaces it."""

    def __init__(self, spec: ProcessSpec) -> None:
        self.spec = spec
        self.child: Child | None = None
        self.keeper: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()
        self.stopping = asyncio.Event()
        self.replacing = False


class Supervisor:
    """Keeps groups of processes running until `stop`."""

    def __init__(self, sink: LineSink, policy: RestartPolicy | None = None) -> None:
        self._sink = sink
        self._policy = policy or RestartPolicy()
        self._groups: list[list[_Kept]] = []
        self._failure: asyncio.Future[ProcessGaveUp] = asyncio.get_running_loop().create_future()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of what runs now, by name."""
        return {kept.spec.name: kept.child.pid for kept in self._all() if kept.child is not None and kept.child.alive}

    async def start(self, *groups: Sequence[ProcessSpec]) -> None:
        """Start processes concurrently; return when all of them serve, or have failed too often and are optional.

        Args:
            groups: `stop` goes through the groups of all calls in the reverse order.

        Raises:
            ProcessGaveUp: A process, of this call or an earlier one, failed too often.
        """
        await self._all_ready(self._launch(groups))

    def begin(self, *groups: Sequence[ProcessSpec]) -> None:
        """Start processes concurrently, as `start` does, and wait for none of them: see `all_serve`."""
        self._launch(groups)

    async def all_serve(self) -> None:
        """Return when all processes serve, or have failed too often and are optional.

        Raises:
            ProcessGaveUp: A process failed too often.
        """
        await self._all_ready(self._all())

    async def replace(self, specs: Sequence[ProcessSpec]) -> None:
        """Restart processes that run, without a pause; return when the new ones serve.

        Args:
            specs: The processes, as they were given to `start`. One that waits for its restart is left to it.

        Raises:
            ProcessGaveUp: A process failed too often.
        """
        names = {spec.name for spec in specs}
        chosen = [kept for kept in self._all() if kept.spec.name in names]
        running = [(kept, kept.child) for kept in chosen if kept.child is not None and kept.child.alive]
        for kept, _ in running:
            kept.replacing = True
            kept.ready.clear()
        await asyncio.gather(*(child.stop() for _, child in running))
        await self._all_ready(chosen)

    async def failed(self) -> ProcessGaveUp:
        """Wait until a process fails too often, and return the error for the operator."""
        return await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Stop all processes, the last group first. Returns when none is left."""
        while self._groups:
            await asyncio.gather(*(self._stop_one(kept) for kept in self._groups[-1]))
            self._groups.pop()

    def kill(self) -> None:
        """Kill all processes at once; a running `stop` then ends soon."""
        for kept in self._all():
            kept.stopping.set()
            if kept.child is not None:
                kept.child.kill()

    def _launch(self, groups: Sequence[Sequence[ProcessSpec]]) -> list[_Kept]:
        started = [[_Kept(spec) for spec in group] for group in groups]
        self._groups += started
        news = [kept for group in started for kept in group]
        for kept in news:
            kept.keeper = asyncio.create_task(self._keep(kept), name=f"keeper of {kept.spec.name}")
        return news

    async def _all_ready(self, chosen: Sequence[_Kept]) -> None:
        everyone = asyncio.create_task(_all_set([kept.ready for kept in chosen]))
        try:
            await asyncio.wait({everyone, self._failure}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            everyone.cancel()
        if self._failure.done():
            raise self._failure.result()

    def _all(self) -> list[_Kept]:
        return [kept for group in self._groups for kept in group]

    async def _stop_one(self, kept: _Kept) -> None:
        kept.stopping.set()
        if kept.child is not None:
            await kept.child.stop()
        if kept.keeper is not None:
            # Awaited rather than canceled: a process that it is starting would be orphaned.
            await kept.keeper

    async def _keep(self, kept: _Kept) -> None:
        name, failures = kept.spec.name, 0
        while not kept.stopping.is_set():
            began_s = time.monotonic()
            try:
                what = await self._run_once(kept)
            except OSError as error:
                what = f"could not be started ({error})"
            if kept.stopping.is_set():
                return
            if kept.replacing:
                kept.replacing, failures = False, 0
                continue
            failures = 1 if time.monotonic() - began_s > self._policy.healthy_after_s else failures + 1
            if failures >= self._policy.give_up_after:
                if not kept.spec.optional:
                    self._give_up(name, f"{name} {what}, {failures} times in a row")
                    return
                # `start` waits no longer for a process that the others do without.
                kept.ready.set()
            delay_s = self._policy.delay_s(failures)
            self._sink.say(f"{name} {what}; starting it again in {delay_s:g} s", alarm=True)
            await asyncio.wait({stopping := asyncio.create_task(kept.stopping.wait())}, timeout=delay_s)
            stopping.cancel()

    async def _run_once(self, kept: _Kept) -> str:
        """Run a process until it ends, and return how it ended, as text."""
        child = kept.child = await Child.start(kept.spec, self._sink)
        if kept.stopping.is_set():
            child.kill()  # `stop` was called while it started
        if await child.ready():
            kept.ready.set()
            return f"ended with {_exit_text(await child.ended())}"
        if child.alive and not kept.stopping.is_set():
            await child.stop()
            return f"was not ready after {kept.spec.ready_timeout_s:g} s"
        return f"ended with {_exit_text(await child.ended())} before it was ready"

    def _give_up(self, name: str, what: str) -> None:
        if not self._failure.done():
            self._failure.set_result(
                ProcessGaveUp(f"{what}. Its last lines above say why; fix that and start again.", process=name)
            )


async def _all_set(events: Sequence[asyncio.Event]) -> None:
    for event in events:
        await event.wait()


def _exit_text(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
