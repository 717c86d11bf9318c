"""Many agents of one tenant."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from tests.bench.growth.costs import Cost, Operation, repeated
from tests.bench.growth.ground import Ground
from tests.bench.growth.queues import choose

_LIST = Operation("GET /v1/agents, 50")
_GET = Operation("GET /v1/agents/{id}")
_CHOOSE = Operation(
    "choose the next run, one queued for each agent",
    grows="Each agent with queued runs is compared with the others: by priority, running runs and when it was served.",
)

_AGENTS = """
INSERT INTO agents (tenant_id, id, version, spec)
SELECT :tenant_id, 'agent-' || i, 1, '{"name": "growth"}' FROM generate_series(:before::int + 1, :size::int) AS i
"""
_VERSIONS = """
INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
SELECT :tenant_id, 'agent-' || i, 1, '{"name": "growth"}', 'growth'
  FROM generate_series(:before::int + 1, :size::int) AS i
"""
_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id, next_seq)
SELECT 'thr_agent' || i, :tenant_id, 'agent-' || i, 2 FROM generate_series(:before::int + 1, :size::int) AS i
"""
_RUNS = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content)
SELECT 'run_agent' || i, :tenant_id, 'thr_agent' || i, 'agent-' || i, 1, '[]'
  FROM generate_series(:before::int + 1, :size::int) AS i
"""
_DELETE_RUNS = "DELETE FROM runs WHERE tenant_id = :tenant_id AND id LIKE 'run\\_agent%'"


async def measure_agents(ground: Ground, sizes: Sequence[int]) -> AsyncGenerator[Cost]:
    """Make as many agents, and queue a run for each."""
    tenant_id, repeats, before = ground.tenant_id, ground.repeats, 0
    for size in sizes:
        filling = {"agents": _AGENTS, "agent_versions": _VERSIONS, "threads": _THREADS, "runs": _RUNS}
        await ground.write(filling, tenant_id=tenant_id, before=before, size=size)
        before = size
        yield Cost.of(_LIST, size, await repeated(ground.get("/v1/agents?limit=50"), repeats))
        yield Cost.of(_GET, size, await repeated(ground.get(f"/v1/agents/agent-{size // 2}"), repeats))
        yield Cost.of(_CHOOSE, size, await repeated(ground.on_connection(choose), repeats))
    await ground.write({"runs": _DELETE_RUNS}, tenant_id=tenant_id)
