"""Time to fire many triggers that are due in one second, and the cost of a tick without due triggers."""

import asyncio
import time

from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.bootstrap.model_choice import build_model_chooser
from nova_workers.bootstrap.orchestrations import build_starter
from nova_workers.bootstrap.triggers import build_trigger_ticker
from nova_workers.domain.runs.rules.applying import CancelApplier
from nova_workers.domain.runs.rules.control import ControlChannel
from nova_workers.domain.streams.rules.publisher import EventPublisher
from nova_workers.domain.triggers.rules.firing import TriggerTicker
from nova_workers.ledger.database import Database, PostgresDatabase
from nova_workers.ledger.work import Work
from tests.bench.figures import Figure, Result, percentile
from tests.bench.servers import filling
from tests.bench.stage import Bench

_TENANT = "ten_bench"
_IDLE_MS = 20
_AGENTS = 200

_AGENT_ROWS = """
INSERT INTO agents (tenant_id, id, version, spec)
SELECT :tenant_id, 'agent-' || n, 1, '{"name": "bench"}' FROM generate_series(0, :agents::int - 1) n
"""
# Sixty lines in four zones, as people write them.
_TRIGGERS = """
INSERT INTO triggers (id, tenant_id, agent_id, kind, schedule, timezone, prompt, created_by, next_slot_at, next_fire_at)
SELECT 'trg_' || lpad(n::text, 26, '0'), :tenant_id, 'agent-' || n % :agents::int, 'cron', n % 60 || ' * * * *',
       ('{UTC,Europe/Berlin,America/New_York,Asia/Tokyo}'::text[])[n % 4 + 1], 'Look for new orders.', 'person',
       now() + :due_in_s::float8 * interval '1 second', now() + :due_in_s::float8 * interval '1 second'
  FROM generate_series(1, :count::int) n
"""


async def measure_triggers(bench: Bench) -> Result:
    """Tick over triggers that are not due, then over as many as are."""
    sizes = bench.sizes
    async with bench.servers.fresh_database() as url:
        database, redis = PostgresDatabase(url, pool_size=4), Redis.from_url(bench.servers.redis_url)
        try:
            await _fill(url, sizes.idle_triggers, due_in_s=86_400)
            ticker = _ticker(database, redis)
            await ticker.tick()
            idle_s = [await _timed(ticker) for _ in range(sizes.idle_ticks)]
            await database.execute("TRUNCATE triggers CASCADE")
            await _fill(url, sizes.due_triggers, due_in_s=0)
            began_s = time.perf_counter()
            ticked = await asyncio.gather(ticker.tick(), _ticker(database, redis).tick())
            fired_s = time.perf_counter() - began_s
            occurrences = await database.fetchval(
                "SELECT count(DISTINCT (trigger_id, scheduled_for)) FROM trigger_firings"
            )
            runs = await database.fetchval("SELECT count(*) FROM runs")
        finally:
            await redis.aclose()
            await database.close()
    assert sum(each.fired for each in ticked) == occurrences == runs == sizes.due_triggers, (ticked, occurrences, runs)
    return Result(
        "triggers",
        f"tick over {sizes.idle_triggers:,} triggers of which none is due",
        (
            Figure("p50", percentile(idle_s, 0.5) * 1000, "ms"),
            Figure("p95", percentile(idle_s, 0.95) * 1000, "ms", bound=_IDLE_MS),
            Figure(f"{sizes.due_triggers:,} due in one second, all fired once in", fired_s, "s"),
        ),
        notes=("Two ticks at once in one process, on an empty ledger; each firing is a row, a thread and a run.",),
        details={"fired_each": [each.fired for each in ticked]},
    )


def _ticker(database: Database, redis: Redis) -> TriggerTicker:
    settings, metrics = Settings(), Metrics(CollectorRegistry())
    publisher = EventPublisher(redis, flush_ms=20, clock=SystemClock())
    notifier = CancelApplier(Work(database), ControlChannel(redis), publisher)
    work = Work(database, notifier=notifier)
    planner = build_starter(work, build_model_chooser(database, redis, settings), settings)
    return build_trigger_ticker(work, settings, metrics, planner=planner)


async def _timed(ticker: TriggerTicker) -> float:
    began_s = time.perf_counter()
    ticked = await ticker.tick()
    assert (ticked.fired, ticked.skipped) == (0, 0)
    return time.perf_counter() - began_s


async def _fill(url: str, count: int, *, due_in_s: float) -> None:
    async with filling(url) as database, database.connection() as connection:
        await connection.execute(
            "INSERT INTO tenants (id, name) VALUES (:tenant_id, 'bench') ON CONFLICT DO NOTHING", tenant_id=_TENANT
        )
        if not await connection.fetchval("SELECT count(*) FROM agents"):
            await connection.execute(_AGENT_ROWS, tenant_id=_TENANT, agents=_AGENTS)
        await connection.execute(_TRIGGERS, tenant_id=_TENANT, count=count, due_in_s=float(due_in_s), agents=_AGENTS)
        await connection.execute("VACUUM ANALYZE triggers")
