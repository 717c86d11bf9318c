"""The choice of the next run among many queued ones, and operations beside them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from nova_workers.domain.runs.sql.fairness import find_entitled
from nova_workers.ledger.database import Connection
from tests.bench.growth.costs import WARM_UP, Cost, Operation, repeated
from tests.bench.growth.finished_runs import cycle_seconds
from tests.bench.growth.ground import Ground

_CHOOSE = Operation("choose the next run, each on its own thread")
_PASSED_OVER = "Each queued run of a thread that runs is passed over."
_HELD = {
    1: Operation("choose, all of them on one thread that runs", grows=_PASSED_OVER),
    300: Operation("choose, all of them on 300 threads that run", grows=_PASSED_OVER),
}
_LAST = Operation("GET /v1/runs/{id}, the last of one thread", grows="The runs before it are counted, up to 1,000.")
_BESIDE = Operation("submit, claim and end a run of another thread, with plans of an empty queue")
# As many as there are at the smallest size: each size has the same page.
_OPEN = Operation("GET /v1/runs, queued, 10")

_BESIDE_THREAD = """
INSERT INTO threads (id, tenant_id, agent_id) VALUES ('thr_beside', :tenant_id, 'nova') ON CONFLICT DO NOTHING
"""
# Of a fleet that is not new: plans for a table of a few rows read all of it.
_HISTORY = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, finished_at)
SELECT 'run_before' || i, :tenant_id, 'thr_before' || i / 10, 'nova', i, '[]', 'succeeded', now()
  FROM generate_series(1, 10000) AS i
"""
_OWN_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id, next_seq)
SELECT 'thr_queued' || i, :tenant_id, 'nova', 2 FROM generate_series(1, :size::int) AS i
"""
_ON_OWN_THREADS = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, queued_at)
SELECT 'run_queued' || lpad(i::text, 9, '0'), :tenant_id, 'thr_queued' || i, 'nova', 1, '[]',
       now() + i * interval '1 microsecond'
  FROM generate_series(1, :size::int) AS i
"""
_HELD_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id, next_seq, active_run_id, fence)
SELECT 'thr_queued' || t, :tenant_id, 'nova', 2, 'run_held' || t, 1 FROM generate_series(0, :threads::int - 1) AS t
"""
_RUNNING = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, lease_expires_at, fence)
SELECT 'run_held' || t, :tenant_id, 'thr_queued' || t, 'nova', 1, '[]', 'running', now() + interval '1 hour', 1
  FROM generate_series(0, :threads::int - 1) AS t
"""
_ON_HELD_THREADS = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, queued_at)
SELECT 'run_queued' || lpad(i::text, 9, '0'), :tenant_id, 'thr_queued' || i % :threads::int, 'nova', i + 1, '[]',
       now() + i * interval '1 microsecond'
  FROM generate_series(1, :size::int) AS i
"""
_NOTHING = "SELECT"
_DELETE = {
    "runs": "DELETE FROM runs WHERE tenant_id = :tenant_id AND status IN ('queued', 'running')",
    "threads": "DELETE FROM threads WHERE tenant_id = :tenant_id AND id LIKE 'thr\\_queued%'",
}


async def choose(connection: Connection) -> None:
    """Choose the next run of the fleet."""
    await find_entitled(connection, "interactive")


async def _beside(ground: Ground) -> list[float]:
    """Lead runs from submission to end on one thread; return how long each took."""
    by_operation = await cycle_seconds(ground, ["thr_beside"] * (WARM_UP + ground.repeats))
    return [sum(taken_s) for taken_s in zip(*by_operation.values(), strict=True)]


async def measure_queues(ground: Ground, sizes: Sequence[int]) -> AsyncGenerator[Cost]:
    """Queue as many runs of one tenant on as many threads, then on one thread."""
    tenant_id, repeats = ground.tenant_id, ground.repeats
    await ground.write({"threads": _BESIDE_THREAD, "runs": _HISTORY}, tenant_id=tenant_id)
    for size in sizes:
        await _beside(ground)
        filling = {"threads": _OWN_THREADS, "runs": _ON_OWN_THREADS}
        await ground.write(filling, vacuum=False, tenant_id=tenant_id, size=size)
        yield Cost.of(_BESIDE, size, await _beside(ground))
        await ground.write({"threads": _NOTHING, "runs": _NOTHING})
        yield Cost.of(_CHOOSE, size, await repeated(ground.on_connection(choose), repeats))
        yield Cost.of(_OPEN, size, await repeated(ground.get("/v1/runs?status=queued&limit=10"), repeats))
        await ground.write(_DELETE, tenant_id=tenant_id)
        for threads, held in _HELD.items():
            await ground.write({"threads": _HELD_THREADS}, tenant_id=tenant_id, threads=threads)
            await ground.write({"runs": _RUNNING}, tenant_id=tenant_id, threads=threads)
            await ground.write({"runs": _ON_HELD_THREADS}, tenant_id=tenant_id, threads=threads, size=size)
            yield Cost.of(held, size, await repeated(ground.on_connection(choose), repeats))
            if threads == 1:
                last = ground.get(f"/v1/runs/run_queued{size:09}")
                yield Cost.of(_LAST, size, await repeated(last, repeats))
            await ground.write(_DELETE, tenant_id=tenant_id)
