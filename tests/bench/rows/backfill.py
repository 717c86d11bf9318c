"""Throughput of the backfill, and its cost without work."""

import time
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import EffectSettings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.domain.effects.rules.local import LocalEmbeddings
from nova_workers.domain.upkeep.rules.backfill import Backfill, Backfilled
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.bench.figures import Figure, Result, percentile
from tests.bench.rows.claims import fill_ledger
from tests.bench.servers import filling
from tests.bench.stage import Bench

_TENANT = "ten_bench"
_IDLE_MS = 20

_USAGE = """
INSERT INTO usage (id, tenant_id, run_id, turn_id, thread_id, agent_id, created_at)
SELECT 'use_' || right(id, 26), tenant_id, id, turn_id, thread_id, agent_id,
       now() - interval '90 days' + row_number() OVER (ORDER BY id) * interval '10 ms'
  FROM runs
"""

_FROM_THE_BEGINNING = "UPDATE upkeep_cursors SET passed_at = NULL, passed_id = NULL, due_at = now()"
_AT_THE_END = """
UPDATE upkeep_cursors
   SET passed_at = (SELECT max(created_at) FROM usage), passed_id = (SELECT max(id) FROM usage), behind = false,
       due_at = now(), variant = '', worked_at = now() - interval '1 hour'
"""


@dataclass(frozen=True)
class _Work:
    """The result of one tick, and its duration."""

    done: Backfilled
    took_s: float

    def per_s(self, many: int) -> float:
        return many / self.took_s


async def measure_backfill(bench: Bench) -> Result:
    """Make words, walk over what is made, make vectors; then tick with nothing to do."""
    sizes = bench.sizes
    async with bench.servers.fresh_database() as url:
        await fill_ledger(url, sizes.backfilled_runs, tenant_id=_TENANT)
        await _add_usage(url)
        database, redis = PostgresDatabase(url, pool_size=2), Redis.from_url(bench.servers.redis_url)
        local = LocalEmbeddings()
        try:
            words = await _work(database, redis, None, sizes.backfill_s)
            await database.execute(_FROM_THE_BEGINNING)
            walk = await _work(database, redis, None, sizes.backfill_s / 4)
            await database.execute(f"{_AT_THE_END}")
            looks_s = [await _look(database, redis) for _ in range(sizes.idle_ticks)]
            idle_s = [(await _work(database, redis, None, 1)).took_s for _ in range(sizes.idle_ticks)]
            await database.execute("DELETE FROM upkeep_cursors")
            vectors = await _work(database, redis, local, sizes.backfill_s)
        finally:
            await local.close()
            await redis.aclose()
            await database.close()
    idle_p50, look_p50 = percentile(idle_s, 0.5) * 1000, percentile(looks_s, 0.5) * 1000
    messages = sizes.backfilled_runs * 2
    return Result(
        "backfill",
        f"tick of the backfill over {messages:,} messages when nothing is due",
        (
            Figure("p50", idle_p50, "ms", bound=_IDLE_MS),
            Figure("p50 of a look that finds nothing new", look_p50, "ms"),
            Figure("messages that get their words", words.per_s(words.done.words), "a second"),
            Figure("and their vector, by the local model", vectors.per_s(vectors.done.vectors), "a second"),
            Figure("messages passed that have all", walk.per_s(min(walk.done.runs * 2, words.done.words)), "a second"),
        ),
        notes=("One process, one tenant, short messages. Vectors are made by one child process of low priority.",),
        details={"words": words.done.words, "vectors": vectors.done.vectors, "walked_runs": walk.done.runs},
    )


async def _look(database: Database, redis: Redis) -> float:
    await database.execute("UPDATE upkeep_cursors SET due_at = now()")
    return (await _work(database, redis, None, 1)).took_s


async def _work(database: Database, redis: Redis, embedder: LocalEmbeddings | None, for_s: float) -> _Work:
    settings = EffectSettings(backfill_every_s=for_s, backfill_busy=1)
    backfill = Backfill(database, redis, embedder, settings, Metrics(CollectorRegistry()), clock=SystemClock())
    began_s = time.perf_counter()
    done = await backfill.tick()
    return _Work(done, time.perf_counter() - began_s)


async def _add_usage(url: str) -> None:
    async with filling(url) as database:
        await database.execute(_USAGE)
        await database.execute("VACUUM ANALYZE usage")
