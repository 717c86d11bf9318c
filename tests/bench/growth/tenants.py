"""Many tenants, each with an agent and a key."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence

from nova_workers.domain.keys.sql.keys import find_key, hash_secret
from tests.bench.growth.costs import WARM_UP, Cost, Operation, repeated
from tests.bench.growth.ground import Ground
from tests.bench.growth.queues import choose
from tests.bench.http import LoadClient

_KEY = Operation("look a key up")
_FIRST = Operation("GET /v1/agents with a key that is not in the cache")
_CHOOSE_ONE = Operation("choose the next run, one tenant has queued runs")
_CHOOSE_EACH = Operation(
    "choose the next run, each tenant has one queued",
    grows="Each tenant with queued runs is compared with the others: by its running runs, its weight and its turns.",
)

_TENANTS = """
INSERT INTO tenants (id, name)
SELECT 'ten_' || lpad(i::text, 9, '0'), 'growth' FROM generate_series(:before::int + 1, :size::int) AS i
"""
_AGENTS = """
INSERT INTO agents (tenant_id, id, version, spec)
SELECT 'ten_' || lpad(i::text, 9, '0'), 'nova', 1, '{"name": "growth"}'
  FROM generate_series(:before::int + 1, :size::int) AS i
"""
_VERSIONS = """
INSERT INTO agent_versions (tenant_id, agent_id, version, spec, created_by)
SELECT 'ten_' || lpad(i::text, 9, '0'), 'nova', 1, '{"name": "growth"}', 'growth'
  FROM generate_series(:before::int + 1, :size::int) AS i
"""
_KEYS = """
INSERT INTO api_keys (id, tenant_id, name, prefix, hash, scopes)
SELECT 'key_' || lpad(i::text, 9, '0'), 'ten_' || lpad(((i - 1) % :size::int + 1)::text, 9, '0'), 'growth', 'nova_',
       sha256(convert_to('nova_' || lpad(i::text, 43, '0'), 'UTF8')), '{runs,agents}'
  FROM generate_series(:first_key::int, :last_key::int) AS i
"""
_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id, next_seq)
SELECT 'thr_tenant' || i, 'ten_' || lpad(i::text, 9, '0'), 'nova', 2
  FROM generate_series(:before::int + 1, :size::int) AS i
"""
_QUEUED = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content)
SELECT 'run_tenant' || i, 'ten_' || lpad(i::text, 9, '0'), 'thr_tenant' || i, 'nova', 1, '[]'
  FROM generate_series(:first::int, :size::int) AS i
"""
_DELETE_QUEUED = {"runs": "DELETE FROM runs WHERE id LIKE 'run\\_tenant%'"}


async def measure_tenants(ground: Ground, sizes: Sequence[int]) -> AsyncGenerator[Cost]:
    """Make as many tenants, each with a key, and queue a run for one of them, then for each."""
    repeats, before, last_key = ground.repeats, 0, 0
    unused_keys = WARM_UP + repeats
    for size in sizes:
        filling = {
            "tenants": _TENANTS, "agents": _AGENTS, "agent_versions": _VERSIONS, "api_keys": _KEYS, "threads": _THREADS
        }  # fmt: skip
        first_key, last_key = last_key + 1, last_key + size - before + unused_keys
        await ground.write(filling, before=before, size=size, first_key=first_key, last_key=last_key)
        digest = hash_secret(_secret(size // 2))
        look_up = ground.on_connection(lambda connection, digest=digest: find_key(connection, digest))
        yield Cost.of(_KEY, size, await repeated(look_up, repeats))
        # Each once: the API keeps a key that it has seen for some seconds.
        unused = iter(range(last_key - unused_keys + 1, last_key + 1))
        yield Cost.of(_FIRST, size, await repeated(lambda unused=unused: _first_request(ground, unused), repeats))
        for operation, first in ((_CHOOSE_ONE, size), (_CHOOSE_EACH, 1)):
            await ground.write({"runs": _QUEUED}, first=first, size=size)
            yield Cost.of(operation, size, await repeated(ground.on_connection(choose), repeats))
            await ground.write(_DELETE_QUEUED)
        before = size


async def _first_request(ground: Ground, unused: Iterator[int]) -> float:
    client = LoadClient(ground.api_url, _secret(next(unused)))
    try:
        # Opens the connection, which is not measured.
        await client.get("/healthz")
        return await ground.get("/v1/agents?limit=50", client=client)()
    finally:
        client.close()


def _secret(number: int) -> str:
    return f"nova_{number:043}"
