"""What many worker processes do to one Postgres and one Valkey: ``python -m tests.bench.scale``.

    python -m tests.bench.scale [--workers 1 8 16 32 64] [--turns-per-s 20] [--markdown FILE]

The load stays the same while workers are added, so that all further work is for the workers themselves. They are whole
processes, forked from one that has imported their modules, and Postgres permits as many sessions as they may open.
"""

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import uvloop
from rich.console import Console

from tests.bench.figures import Breakdown, Figure, Result, percentile
from tests.bench.machine import CpuMeter, Machine, cpu_s, pss_mb, tree_cpu_s
from tests.bench.report import Report
from tests.bench.servers import Servers, bench_servers
from tests.bench.sizes import Sizes
from tests.bench.stage import Bench, Stage, scripted
from tests.bench.window import Gauge, Idle, Window

_SESSIONS = {"max_connections": "1500"}
"""A worker may open 16."""
_TURN_S = 2.0
_SLOTS = 64
_WINDOW_S = 10.0
_IDLE_S = 6.0
_WITHOUT_EMBEDDINGS = {"NOVA_EFFECTS__EMBEDDING_PROVIDER": "off"}
"""Each worker would load a model of its own."""
_COLUMNS = (
    *("workers", "time beyond the turn's 2 s, p50 and p95, ms", "CPU a turn, ms: workers, API, Postgres, Valkey"),
    *("idle cores: workers, Postgres, Valkey", "idle, a second: transactions, Redis commands"),
    *("sessions of Postgres, of a worker", "connections to Redis, of a worker", "memory of a worker, MB"),
)


@dataclass(frozen=True, slots=True)
class _Step:
    workers: int
    idle: Idle
    idle_cores: dict[str, float]
    window: Window
    worker_mb: float


async def measure_scale(servers: Servers, workers: Sequence[int], *, turns_per_s: float) -> Result:
    """Return a result with a line for each number of workers.

    Args:
        servers: Where the fleet runs.
        workers: Numbers of worker processes, ascending.
        turns_per_s: The load, whatever the number of workers.
    """
    bench = Bench(servers, Sizes(), preloaded=True)
    async with (
        bench.stage(slots=_SLOTS, env=_WITHOUT_EMBEDDINGS) as stage,
        Gauge.on(stage.database, servers.redis_url) as gauge,
    ):
        steps = [await _step(stage, gauge, count, turns_per_s) for count in workers]
    last = steps[-1]
    return Result(
        "scale",
        f"{turns_per_s:g} turns of {_TURN_S:g} s each second, {last.workers} workers: beyond the turn",
        (Figure("p50", 1000 * (percentile(last.window.latencies_s, 0.5) - _TURN_S), "ms"),),
        notes=(
            "Memory is the proportional set size; what the workers share of the forked process counts once in all.",
        ),
        breakdown=Breakdown(_COLUMNS, tuple(map(_line, steps))),
    )


async def _step(stage: Stage, gauge: Gauge, workers: int, turns_per_s: float) -> _Step:
    fleet = stage.fleet
    started = [await fleet.start_worker(concurrency=_SLOTS, ready=False) for _ in range(len(fleet.workers), workers)]
    for worker in started:
        await fleet.worker_ready(worker)
    message = scripted({"sleep_s": _TURN_S}, {"say": "Done"})

    async def cycle() -> float:
        answer = await stage.post_and_wait(message)
        return answer.ended_s - answer.began_s

    await stage.until_idle()
    with (meter := _meter(stage)):
        idle = await gauge.idle(_IDLE_S)
    cycles = [cycle] * round(turns_per_s * _TURN_S)
    window = await gauge.under_load(cycles, _meter(stage), idle, cycle_s=_TURN_S, window_s=_WINDOW_S)
    await stage.until_idle()
    cores = {name: used_s / meter.wall_s for name, used_s in meter.used_s.items()}
    return _Step(workers, idle, cores, window, sum(pss_mb(worker.pid) for worker in fleet.workers) / workers)


def _meter(stage: Stage) -> CpuMeter:
    assert stage.fleet.api is not None
    pids = [worker.pid for worker in stage.fleet.workers]
    return CpuMeter(
        {
            "workers": lambda: sum(map(cpu_s, pids)),
            "api": partial(cpu_s, stage.fleet.api.pid),
            "postgres": partial(tree_cpu_s, stage.servers.postgres_pid),
            "valkey": partial(tree_cpu_s, stage.servers.valkey_pid),
        }
    )


def _line(step: _Step) -> tuple[str, ...]:
    window, idle = step.window, step.idle_cores
    beyond = [1000 * (percentile(window.latencies_s, share) - _TURN_S) for share in (0.5, 0.95)]
    cpu_ms = [1000 * window.cores[name] / window.per_s for name in ("workers", "api", "postgres", "valkey")]
    sessions, connections = window.connections["nova-worker"]
    return (
        f"{step.workers}",
        ", ".join(f"{each:.0f}" for each in beyond),
        ", ".join(f"{each:.1f}" for each in cpu_ms),
        ", ".join(f"{idle[name]:.2f}" for name in ("workers", "postgres", "valkey")),
        f"{step.idle.transactions:.0f}, {step.idle.commands:.0f}",
        f"{sessions}, {sessions / step.workers:.1f}",
        f"{connections}, {connections / step.workers:.1f}",
        f"{step.worker_mb:.0f}",
    )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8, 16, 32, 64], help="numbers of processes")
    parser.add_argument("--turns-per-s", type=float, default=20.0, help="the load (default: 20)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table")
    options = parser.parse_args()
    # Without the developer's own settings.
    for name in [name for name in os.environ if name.startswith(("NOVA_", "ANTHROPIC_"))]:
        del os.environ[name]
    machine, began_at, began_s = Machine.this(), datetime.now(UTC), time.perf_counter()
    with bench_servers(postgres_settings=_SESSIONS) as servers:
        result = uvloop.run(measure_scale(servers, sorted(options.workers), turns_per_s=options.turns_per_s))
    report = Report(machine, began_at, time.perf_counter() - began_s, "scale", [result])
    report.print(Console())
    if options.markdown:
        options.markdown.write_text(report.to_markdown(), encoding="utf-8")


if __name__ == "__main__":
    main()
