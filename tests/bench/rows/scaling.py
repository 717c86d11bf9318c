"""Scaling out: more workers, and more API processes, with turns that sleep, so that cores are not the limit."""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from nova_workers.devstack.commands import api_command
from tests.bench.figures import Breakdown, Figure, Result, bar, percentile
from tests.bench.http import LoadClient
from tests.bench.installed import show_log, until_it_serves
from tests.bench.machine import CpuMeter, cpu_s, tree_cpu_s
from tests.bench.sizes import Sizes
from tests.bench.stage import Bench, Stage, scripted
from tests.bench.window import Gauge, Idle, Window
from tests.support.processes.fleet import FleetProcess, free_port

_LEAST = 0.9
_MORE_CLIENTS = 1.25
"""Than slots, so that a run waits for each slot that becomes free."""
_WITHOUT_EMBEDDINGS = {"NOVA_EFFECTS__EMBEDDING_PROVIDER": "off"}
"""They take 3 ms of CPU a turn, and each worker would load its own model."""

_COLUMNS = (
    *("APIs", "workers", "turns/s", "over linear", "cores: fleet, others, idle (load)", "doorbells a turn"),
    *("Redis commands a turn (idle: a second)", "Postgres transactions a turn (idle: a second)"),
    *("Postgres connections: an API, a worker", "Redis connections: an API, a worker, beat"),
)
_Cycle = Callable[[], Awaitable[float]]


class _Api(NamedTuple):
    client: LoadClient
    process: FleetProcess


@dataclass(frozen=True, slots=True)
class _Step:
    """What one number of processes reached.

    Attributes:
        apis: API processes.
        workers: Worker processes.
        load: Average of the machine over the last minute, at the end.
    """

    apis: int
    workers: int
    load: float
    idle: Idle
    window: Window


async def measure_scaling(bench: Bench) -> Result:
    """Keep the slots of 1, 2, 4 and 8 workers busy; then give 1, 2 and 4 API processes as many clients each."""
    sizes = bench.sizes
    async with (
        bench.stage(slots=sizes.scaling_slots, env=_WITHOUT_EMBEDDINGS) as stage,
        Gauge.on(stage.database, bench.servers.redis_url) as gauge,
    ):
        by_workers = [await _with_workers(sizes, stage, gauge, workers) for workers in sizes.scaling_workers]
        by_apis = await _with_apis(bench, stage, gauge)
    workers = _over_linear(by_workers, lambda step: step.workers)
    apis = _over_linear(by_apis, lambda step: step.apis)
    slots_s = sizes.scaling_slots / sizes.turn_s
    used = ", ".join(f"{100 * step.window.per_s / (step.workers * slots_s):.0f}%" for step in by_workers)
    accepted = ", ".join(f"{percentile(step.window.latencies_s, 0.5) * 1000:.1f}" for step in by_apis)
    return Result(
        "scaling",
        f"turns of {sizes.turn_s:g} s, {sizes.scaling_slots} slots a worker: turns/s over linear",
        (
            *(_figure(f"{step.workers} workers", share) for step, share in workers[1:]),
            *(_figure(f"{step.apis} APIs", share) for step, share in apis[1:]),
        ),
        notes=(
            f"Workers: a queue never ends; of the {slots_s:g} turns/s that the slots of one allow they made {used}. "
            f"APIs: {sizes.scaling_clients} clients each, which send, get the acceptance (p50 {accepted} ms) and wait "
            "for the end. Embeddings are off.",
            f"CPU a turn with {by_workers[-1].workers} workers: {_cpu(by_workers[-1].window)}. If no core was idle, "
            "a figure below its bound says nothing about the fleet.",
        ),
        details={"workers": [asdict(step) for step in by_workers], "apis": [asdict(step) for step in by_apis]},
        breakdown=Breakdown(_COLUMNS, tuple(_line(step, share) for step, share in (*workers, *apis))),
    )


async def _with_workers(sizes: Sizes, stage: Stage, gauge: Gauge, workers: int) -> _Step:
    message = scripted({"sleep_s": sizes.turn_s}, {"say": "Done"})

    async def cycle() -> float:
        answer = await stage.post_and_wait(message)
        return answer.ended_s - answer.began_s

    while len(stage.fleet.workers) < workers:
        await stage.fleet.start_worker(concurrency=sizes.scaling_slots)
    return await _step(sizes, stage, gauge, [cycle] * round(workers * sizes.scaling_slots * _MORE_CLIENTS), ())


async def _with_apis(bench: Bench, stage: Stage, gauge: Gauge) -> list[_Step]:
    sizes = bench.sizes
    message = scripted({"sleep_s": sizes.turn_s}, {"say": "Done"})
    assert stage.fleet.api is not None
    apis, steps = [_Api(stage.client, stage.fleet.api)], list[_Step]()
    with tempfile.TemporaryDirectory(prefix="nova-bench-") as logs, ExitStack() as stack:
        for count in sizes.scaling_apis:
            while len(apis) < count:
                apis.append(await _start_api(bench, stage, Path(logs) / f"api-{len(apis)}.log", stack))
            cycles: list[_Cycle] = [partial(_accept_then_wait, api.client, message) for api in apis]
            steps.append(await _step(sizes, stage, gauge, cycles * sizes.scaling_clients, apis))
    return steps


async def _start_api(bench: Bench, stage: Stage, log: Path, stack: ExitStack) -> _Api:
    """Start one more API as `nova api` does, on a port of its own; the stack ends it."""
    port = free_port()
    url, command = f"http://127.0.0.1:{port}", api_command(host="127.0.0.1", port=port, log_level="info")
    process = FleetProcess(log.stem, command, stage.fleet.env, log, preloaded=bench.preloaded)
    stack.callback(process.kill)
    stack.push(partial(show_log, process))
    await until_it_serves(f"{url}/readyz")
    client = LoadClient(url, stage.fleet.api_key)
    stack.callback(client.close)
    return _Api(client, process)


async def _accept_then_wait(client: LoadClient, message: str) -> float:
    """Return how long the acceptance took."""
    posted = await client.post("/v1/runs", {"message": message})
    assert posted.status == 202, (posted.status, posted.body)
    ended = await client.get(f"/v1/runs/{posted.json()['id']}/wait")
    assert ended.status == 200, (ended.status, ended.body)
    assert b'"status":"succeeded"' in ended.body, ended.body
    return posted.ended_s - posted.began_s


async def _step(sizes: Sizes, stage: Stage, gauge: Gauge, cycles: Sequence[_Cycle], apis: Sequence[_Api]) -> _Step:
    # All at once, so that each new worker loads its engine and each new API connects before the window.
    await asyncio.gather(*(cycle() for cycle in cycles))
    await stage.until_idle()
    idle = await gauge.idle(sizes.scaling_idle_s)
    window = await gauge.under_load(
        cycles, _meter(stage, apis), idle, cycle_s=sizes.turn_s, window_s=sizes.scaling_window_s
    )
    await stage.until_idle()
    return _Step(max(1, len(apis)), len(stage.fleet.workers), os.getloadavg()[0], idle, window)


def _meter(stage: Stage, apis: Sequence[_Api]) -> CpuMeter:
    """Return a meter of all processes of a kind together."""
    fleet, servers = stage.fleet, stage.servers
    assert fleet.api is not None
    assert fleet.beat is not None
    api_pids = {fleet.api.pid, *(api.process.pid for api in apis)}
    worker_pids = [worker.pid for worker in fleet.workers]
    return CpuMeter(
        {
            "api": lambda: sum(map(cpu_s, api_pids)),
            "worker": lambda: sum(map(tree_cpu_s, worker_pids)),
            "beat": partial(cpu_s, fleet.beat.pid),
            "postgres": partial(tree_cpu_s, servers.postgres_pid),
            "valkey": partial(tree_cpu_s, servers.valkey_pid),
        }
    )


def _over_linear(steps: Sequence[_Step], processes: Callable[[_Step], int]) -> list[tuple[_Step, float]]:
    """Return turns a second over those of the first step times its processes."""
    one_s = steps[0].window.per_s / processes(steps[0])
    return [(step, step.window.per_s / (one_s * processes(step))) for step in steps]


def _figure(label: str, share: float) -> Figure:
    return Figure(label, share, "", bound=_LEAST, at_least=True)


def _cpu(window: Window) -> str:
    return ", ".join(f"{name} {1000 * cores / window.per_s:.1f} ms" for name, cores in window.cores.items())


def _line(step: _Step, share: float) -> tuple[str, ...]:
    window, held = step.window, step.window.connections
    (api, api_redis), (worker, worker_redis) = held["nova-api"], held["nova-worker"]
    return (
        f"{step.apis}",
        f"{step.workers}",
        f"{window.per_s:.2f}",
        f"{bar(share)} {share:.2f}",
        f"{sum(window.cores.values()):.2f}, {window.others:.2f}, {window.idle_cores:.2f} ({step.load:.0f})",
        f"{window.doorbells:.2f}",
        f"{window.commands['all']:.1f} ({step.idle.commands:.0f})",
        f"{window.transactions:.1f} ({step.idle.transactions:.0f})",
        f"{api / step.apis:.1f}, {worker / step.workers:.1f}",
        f"{api_redis / step.apis:.1f}, {worker_redis / step.workers:.1f}, {held['nova-beat'][1]}",
    )
