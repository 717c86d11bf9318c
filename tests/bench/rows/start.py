"""How long the fleet takes to start, and its memory then: `nova up` as users run it, and what its processes import."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from nova_workers.base.keys import provider_reports
from nova_workers.devstack.home import read_state
from tests.bench.figures import Figure, Result
from tests.bench.imports import UNUSED_SERVERS
from tests.bench.installed import PROCESSES, installed_environment
from tests.bench.machine import pss_mb, rss_mb
from tests.bench.stage import Bench
from tests.support.processes.inspection import command_lines, descendants
from tests.support.waiting import until

_WARM_S = 7.0
_API_IMPORT_S = 1.2
_WORKER_IMPORT_S = 2.5
_SEND_S = 0.15
_SENDS = 5
_IDLE_MB: Mapping[str, float] = {"api": 90.0}
"""The worker's are in the row `first`: it loads its engine soon after the start."""
_TRIED_S = 60.0
"""Longest wait for the first try of providers, which comes within 30 s."""

_IMPORT = """
from nova_workers.base.program import collect_seldom
collect_seldom()
import time, {module}
print(time.process_time())
"""
_OURS = ("api", "worker", "beat", "flower", "console")


@dataclass(frozen=True, slots=True)
class _Start:
    """How long a start took, and the memory of each process of ours after it.

    Attributes:
        seconds: Until the fleet was up.
        resident_mb: When the fleet was up; or, if it was waited for, when workers had tried their providers.
        proportional_mb: At the same time.
        send_s: How long `nova send --no-wait` took, the shortest of several times; 0 if the fleet was not waited for.
    """

    seconds: float
    resident_mb: Mapping[str, float]
    proportional_mb: Mapping[str, float]
    send_s: float = 0.0


async def measure_start(bench: Bench) -> Result:
    """Start the whole fleet on an empty home, then again on the same, and import what its processes import."""
    sizes = bench.sizes
    with tempfile.TemporaryDirectory(prefix="nova-bench-") as folder:
        home = Path(folder)
        first = await _start(bench, home)
        idle_at = sizes.warm_starts - 1
        warm = [await _start(bench, home, idle=at == idle_at) for at in range(sizes.warm_starts)] or [first]
    api_s, worker_s = [
        min([await _import_cpu_s(module) for _ in range(sizes.imports)])
        for module in ("api.app", "nova_workers.worker.app")
    ]
    return Result(
        "start",
        "`nova up` until the fleet is up, with data of an earlier start",
        (
            Figure("", min(start.seconds for start in warm), "s", bound=_WARM_S),
            Figure("first start, on an empty home", first.seconds, "s"),
            Figure("CPU of importing the API", api_s, "s", bound=_API_IMPORT_S),
            Figure("CPU of importing the worker's app", worker_s, "s", bound=_WORKER_IMPORT_S),
            Figure("`nova send`, until its message is accepted", warm[-1].send_s, "s", bound=_SEND_S),
            *(
                Figure(f"idle, resident: {name}", mb, "MB", bound=_IDLE_MB.get(name))
                for name, mb in warm[-1].resident_mb.items()
            ),
        ),
        notes=(
            f"The best of {sizes.warm_starts} starts, of {sizes.imports} imports and of {_SENDS} commands, but for the "
            "first start. Python's bytecode is compiled already. Memory is that after the first try of providers, with "
            "a key for Anthropic. With its share, in place of all, of what it shares with others (proportional set "
            "size): " + ", ".join(f"{name} {mb:.0f} MB" for name, mb in warm[-1].proportional_mb.items()) + ".",
        ),
    )


async def _start(bench: Bench, home: Path, *, idle: bool = False) -> _Start:
    began_s = time.perf_counter()
    async with bench.up(home):
        seconds = time.perf_counter() - began_s
        if idle:
            await _until_providers_are_tried(home)
        lines = command_lines(descendants(os.getpid()))
        found = {name: next((pid for pid, line in lines.items() if PROCESSES[name] in line), None) for name in _OURS}
        pids = {name: pid for name, pid in found.items() if pid is not None}
        assert pids.keys() == set(_OURS), f"`nova up` runs only {sorted(pids)} of {_OURS}: {lines}"
        return _Start(
            seconds,
            resident_mb={name: rss_mb(pid) for name, pid in pids.items()},
            proportional_mb={name: pss_mb(pid) for name, pid in pids.items()},
            send_s=min([await _send_s(home) for _ in range(_SENDS)]) if idle else 0.0,
        )


async def _until_providers_are_tried(home: Path) -> None:
    state = read_state(home)
    assert state is not None
    async with Redis.from_url(state.redis_url) as redis:
        await until(lambda: redis.exists(provider_reports()), "the first try of providers", timeout_s=_TRIED_S)


async def _send_s(home: Path) -> float:
    """Send a message from the command line, and return how long the whole command took."""
    began_s = time.perf_counter()
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nova_workers.cli", "send", "Hello", "--no-wait"),
        env=installed_environment({"NOVA_HOME": str(home)}),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await child.wait() == 0
    return time.perf_counter() - began_s


async def _import_cpu_s(module: str) -> float:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _IMPORT.format(module=module)),
        env=installed_environment(UNUSED_SERVERS),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    return float(out)
