"""Orchestrations: what an agent costs beside a plain run, and how soon a parent goes on after its child's end."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from nova_workers.base.observability.metrics import Metrics
from nova_workers.broker.dispatcher import BrokerDispatcher
from nova_workers.broker.redis_connections import connect
from nova_workers.contracts.events import StreamEnd, Thinking
from nova_workers.contracts.http.started import Started
from nova_workers.contracts.orchestration import OrchestrationLimits
from nova_workers.domain.orchestrations.rules.models.availability import FleetAvailability
from nova_workers.domain.orchestrations.rules.models.catalog import ModelCatalog, RankedModels
from nova_workers.domain.orchestrations.rules.planning import NewOrchestration
from nova_workers.domain.orchestrations.rules.service import Orchestrations
from nova_workers.ledger.work import Work
from tests.bench.figures import Figure, Result, percentile
from tests.bench.stage import Bench, Stage, scripted

_GAP_S = 0.1
_RUNS_ENDED = "SELECT NOT EXISTS (SELECT 1 FROM runs WHERE status IN ('queued', 'running', 'waiting'))"
_CHILD_RUN = """
SELECT run_id FROM orchestration_agents WHERE orchestration_id = :id AND parent_id IS NOT NULL
"""


class _NoNotifier:
    async def apply_interrupt(self, run_id: str) -> None:
        """Do nothing."""

    async def notify_order(self, order_id: str) -> None:
        """Do nothing."""

    def announce_tree(self, news: object) -> None:
        """Do nothing."""

    async def apply_requests(self, requests: Sequence[object]) -> None:
        pass


async def measure_trees(bench: Bench) -> Result:
    """Many orchestrations at once beside as many plain runs; then one after the other on an idle fleet."""
    trees, agents = bench.sizes.trees, bench.sizes.tree_agents
    async with bench.stage() as stage, _service(stage) as service:
        await _run_trees(stage, service, 2, agents)
        plain_s, plain_ms = await _run_plain(stage, trees * agents)
        trees_s, tree_ms = await _run_trees(stage, service, trees, agents)
        latencies_s = [await _latency_s(stage, service) for _ in range(bench.sizes.tree_latencies)]
    return Result(
        "trees",
        f"orchestrations: a parent's next model call after its child's end, idle; {trees * agents} agents at once",
        (
            Figure("p50", percentile(latencies_s, 0.5) * 1000, "ms", bound=25),
            Figure("p95", percentile(latencies_s, 0.95) * 1000, "ms"),
            Figure(f"{trees} trees of {agents} agents", trees_s, "s"),
            Figure(f"{trees * agents} plain runs", plain_s, "s"),
            Figure("CPU an agent", tree_ms, "ms"),
            Figure("CPU a plain run", plain_ms, "ms"),
        ),
        notes=(
            "A master spawns its workers with one call and waits for all; each worker completes its task with a call. "
            "So an agent is two model calls, and a plain run is one. All are submitted at once, by one process.",
        ),
    )


@asynccontextmanager
async def _service(stage: Stage) -> AsyncGenerator[Orchestrations]:
    """Lend the service that starts orchestrations, in this process."""
    redis = connect(stage.fleet.env["NOVA_REDIS_URL"])
    dispatcher = BrokerDispatcher(redis, Metrics(CollectorRegistry()))
    try:
        yield Orchestrations(
            Work(stage.database, dispatcher, _NoNotifier()),
            RankedModels(ModelCatalog(stage.database, FleetAvailability({"scripted"}))),
            Path,
        )
    finally:
        await dispatcher.close()
        await redis.aclose()


async def _start(stage: Stage, service: Orchestrations, task: str) -> Started:
    assert stage.fleet.tenant_id is not None
    limits = OrchestrationLimits(max_concurrent_agents=1_000)
    return await service.start(NewOrchestration(stage.fleet.tenant_id, "nova", task, limits=limits))


def _task(workers: int) -> str:
    children = [
        {"prompt": scripted({"tool": {"name": "task_complete", "input": {"summary": "done"}}}), "name": f"w{at}"}
        for at in range(workers)
    ]
    return scripted({"tool": {"name": "spawn_children_parallel", "input": {"children": children}}}, {"say": "All."})


async def _run_trees(stage: Stage, service: Orchestrations, trees: int, agents: int) -> tuple[float, float]:
    """Run orchestrations at once; return the seconds, and milliseconds of CPU per agent."""
    task = _task(agents - 1)
    with stage.meter() as cpu:
        began_s = time.perf_counter()
        await asyncio.gather(*(_start(stage, service, task) for _ in range(trees)))
        await stage.until(_RUNS_ENDED, timeout_s=120)
        took_s = time.perf_counter() - began_s
        await stage.until_idle(timeout_s=120)
    return took_s, _cpu_ms(cpu.details(trees * agents))


async def _run_plain(stage: Stage, runs: int) -> tuple[float, float]:
    """Run plain messages at once; return the seconds, and milliseconds of CPU per run."""
    with stage.meter() as cpu:
        began_s = time.perf_counter()
        answers = await asyncio.gather(*(stage.client.post("/v1/runs", {"message": "Hello"}) for _ in range(runs)))
        assert {answer.status for answer in answers} == {202}
        await stage.until(_RUNS_ENDED, timeout_s=120)
        took_s = time.perf_counter() - began_s
        await stage.until_idle(timeout_s=120)
    return took_s, _cpu_ms(cpu.details(runs))


def _cpu_ms(details: dict[str, dict[str, float]]) -> float:
    return sum(details["cpu_ms_per_run"].values())


async def _latency_s(stage: Stage, service: Orchestrations) -> float:
    """Return the time from a child's end to its parent's next model call, by the clock of the worker."""
    started = await _start(stage, service, _task(1))
    await stage.fleet.client.runs.result(started.run_id)
    child_run = await stage.database.fetchval(_CHILD_RUN, id=started.orchestration_id)
    ended = [event.at async for _, event in stage.fleet.client.runs.events(child_run) if isinstance(event, StreamEnd)]
    calls = [
        event.at async for _, event in stage.fleet.client.runs.events(started.run_id) if isinstance(event, Thinking)
    ]
    end, call = ended[-1], calls[-1]
    assert end is not None
    assert call is not None
    await asyncio.sleep(_GAP_S)
    return (call - end).total_seconds()
