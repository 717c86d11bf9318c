"""Throughput: turns per second in a closed loop, and many slow turns at once."""

import asyncio
import os
import time
from collections.abc import Mapping

from nova_workers.base.config.sections import WorkerSettings
from tests.bench.figures import Figure, Result
from tests.bench.patterns import burst, closed_loop, post_wait
from tests.bench.stage import Bench, Stage, scripted

_WARM_UP = 60
_SPARE_SLOTS = 24
"""Beside the turns: for effects and ticks, which take slots too."""


async def measure_turns(bench: Bench) -> Result:
    """Clients that each send, wait for the result, and send again."""
    sizes = bench.sizes
    async with bench.stage() as stage:
        await _loop(stage, sizes.clients, sizes.turns_s / 5)
        with stage.meter() as cpu:
            turns = await _loop(stage, sizes.clients, sizes.turns_s)
    details = cpu.details(turns)
    per_run_ms: dict[str, float] = details["cpu_ms_per_run"]
    return Result(
        "turns",
        f"whole turns a second, {sizes.clients} clients each waiting, one worker process",
        (
            Figure(
                "",
                turns / cpu.wall_s,
                "/s",
                bound=130,
                at_least=True,
                bare=bench.bare.tasks_per_s if bench.bare else None,
            ),
        ),
        notes=(
            f"CPU a turn: {_list(per_run_ms)}; {sum(per_run_ms.values()):.2f} ms in all, on {os.cpu_count()} cores: "
            "this is what limits it. Embeddings have a process of their own, of low priority. Bare Celery: no-ops of "
            "a full queue, with nothing else to do on the machine.",
        ),
        details=details,
    )


async def measure_concurrent(bench: Bench) -> Result:
    """Many turns that wait for a model, at once."""
    count, bare = bench.sizes.concurrent, bench.bare
    slots = count + _SPARE_SLOTS
    message = scripted({"sleep_s": bench.sizes.turn_s}, {"say": "Done"})
    async with bench.stage(slots=slots) as stage:
        with stage.meter() as cpu:
            began_s = time.perf_counter()
            await asyncio.gather(*(stage.post_and_wait(message) for _ in range(count)))
            wall_s = time.perf_counter() - began_s
    return Result(
        "concurrent-200",
        f"{count:,} turns of {bench.sizes.turn_s:g} s at once, one worker process, wall",
        (Figure("", wall_s, "s", bound=3.2, bare=bare.concurrent_s if bare else None),),
        notes=(
            f"{count:,} clients connect, send and wait at the same instant; the worker has {slots:,} slots. "
            "Bare Celery: as many tasks that sleep, in as many threads.",
        ),
        details=cpu.details(count),
    )


async def measure_many_concurrent(bench: Bench) -> Result:
    """Very many, on the fleet as users start it."""
    count, bare, slots = bench.sizes.many_concurrent, bench.bare, WorkerSettings().concurrency
    async with bench.site() as site:
        await closed_loop(site, post_wait, 4, 2.0, most=_WARM_UP)
        site.client.close()
        with site.meter() as cpu:
            window = await burst(site, count, bench.sizes.turn_s)
    return Result(
        "concurrent-1000",
        f"{count:,} turns of {bench.sizes.turn_s:g} s at once, `nova up`, wall",
        (Figure("", window.wall_s, "s", bound=5.0, bare=bare.many_concurrent_s if bare else None),),
        notes=(
            f"{count:,} clients connect, send and wait at the same instant; the worker has its {slots:,} slots, and no "
            "setting differs from the defaults. Bare Celery: as many tasks that sleep, in as many threads.",
        ),
        details=cpu.details(count),
    )


async def _loop(stage: Stage, clients: int, seconds: float) -> int:
    """Return how many turns ended in time."""
    until_s = time.perf_counter() + seconds
    turns = 0

    async def client() -> None:
        nonlocal turns
        while time.perf_counter() < until_s:
            await stage.post_and_wait("And again")
            turns += 1

    await asyncio.gather(*(client() for _ in range(clients)))
    return turns


def _list(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f} ms" for name, value in values.items() if value >= 0.005)
