"""The wait of one message beside another tenant's thousands, and the cost of choosing the next run."""

import asyncio
import time

from nova_workers.domain.runs.sql.fairness import find_entitled
from nova_workers.ledger.database import Database
from tests.bench.figures import Figure, Result, percentile
from tests.bench.http import LoadClient
from tests.bench.stage import Bench, Stage, scripted
from tests.support.data.queued_runs import queue_runs
from tests.support.processes.fleet import add_api_key

_SLOTS = 8
_TURN_S = 0.2
_SLACK_S = 0.1

_STARTED_AFTER = "SELECT EXTRACT(EPOCH FROM started_at - created_at)::float8 FROM runs WHERE id = :run_id"
# Runs claimed while the measured run was queued: in the length of a turn, each slot takes one.
_WENT_BEFORE = """
SELECT count(*)
  FROM runs mine JOIN runs other ON other.started_at >= mine.created_at AND other.started_at < mine.started_at
 WHERE mine.id = :run_id
"""

_LEFT = "SELECT count(*) FROM runs WHERE status = 'queued'"


async def measure_fairness(bench: Bench) -> Result:
    """Keep a worker busy with one tenant's backlog, and send messages of another one by one."""
    sizes = bench.sizes
    async with bench.stage(slots=_SLOTS) as stage:
        assert stage.fleet.tenant_id is not None
        message = scripted({"sleep_s": _TURN_S}, {"say": "Done"})
        await queue_runs(stage.database, bench.servers.redis_url, stage.fleet.tenant_id, sizes.queued, message)
        waited_s, went_before = await _send(stage, sizes.beside_a_backlog)
        left = int(await stage.database.fetchval(_LEFT))
        picks_s = await _pick(stage.database, sizes.picks)
    return Result(
        "fairness",
        f"start of a message beside {sizes.queued:,} runs of another tenant, each of {_TURN_S:g} s",
        (
            Figure("p50", percentile(waited_s, 0.5) * 1000, "ms"),
            Figure("p95", percentile(waited_s, 0.95) * 1000, "ms", bound=(_TURN_S + _SLACK_S) * 1000),
            Figure("slowest", max(waited_s) * 1000, "ms"),
            Figure("most others before it", max(went_before), "runs", bound=_SLOTS),
            Figure("whose turn it is, p50", percentile(picks_s, 0.5) * 1000, "ms", bound=5),
        ),
        notes=(
            f"From the run's row to its claim; one worker with {_SLOTS} slots, all of them busy; {len(waited_s)} "
            f"messages, each after the one before it has ended. {left:,} runs were still queued at the end.",
        ),
        details={"waited_ms": [each * 1000 for each in waited_s], "left": left},
    )


async def _send(stage: Stage, count: int) -> tuple[list[float], list[int]]:
    key, _ = await add_api_key(stage.fleet.env["NOVA_DATABASE_URL"])
    client = LoadClient(stage.fleet.api_url, key)
    waited_s: list[float] = []
    went_before: list[int] = []
    try:
        for at in range(count):
            # Not synchronous with the turns of the backlog.
            await asyncio.sleep(_TURN_S * (at % 7) / 7)
            answer = await client.post("/v1/runs/wait", {"message": "hello"})
            run_id = answer.json()["id"]
            waited_s.append(await stage.database.fetchval(_STARTED_AFTER, run_id=run_id))
            went_before.append(await stage.database.fetchval(_WENT_BEFORE, run_id=run_id))
    finally:
        client.close()
    return waited_s, went_before


async def _pick(database: Database, count: int) -> list[float]:
    picks_s: list[float] = []
    async with database.connection() as connection:
        for _ in range(count):
            began_s = time.perf_counter()
            await find_entitled(connection, "interactive")
            picks_s.append(time.perf_counter() - began_s)
    return picks_s
