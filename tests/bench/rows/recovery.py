"""Recovery of runs whose worker is killed."""

import asyncio
import time

from tests.bench.figures import Figure, Result
from tests.bench.stage import Bench, Stage, scripted

_SLOTS = 256

# Their step before the kill is committed: it is the point from which the next worker continues.
_ALL_IN_SECOND_STEP = """
SELECT count(*) = cardinality(:run_ids::text[]) FROM turns
 WHERE run_id = ANY(:run_ids::text[]) AND steps = 1 AND status = 'running'
"""

_HELD = (
    "SELECT id FROM runs WHERE id = ANY(:run_ids::text[]) AND status = 'running' AND worker_id LIKE '%:' || :pid::text"
)

_ALL_RESUMED = """
SELECT count(*) = cardinality(:run_ids::text[]) FROM runs
 WHERE id = ANY(:run_ids::text[]) AND attempt > 1 AND status IN ('running', 'succeeded')
"""

# A run that was executed twice has a claim too many, a second turn, a tool that was called again, or a second bill.
_TWICE = """
SELECT count(*)
  FROM runs r
 WHERE r.id = ANY(:run_ids::text[])
   AND (r.status <> 'succeeded'
        OR r.attempt <> CASE WHEN r.id = ANY(:lost::text[]) THEN 2 ELSE 1 END
        OR (SELECT count(*) FROM run_attempts a WHERE a.run_id = r.id AND a.ended = 'lost') <> r.attempt - 1
        OR (SELECT count(*) FROM turns t WHERE t.run_id = r.id AND t.steps = 2) <> 1
        OR (SELECT count(*) FROM tool_calls c WHERE c.turn_id = r.turn_id) <> 1
        OR (SELECT count(*) FROM usage u WHERE u.run_id = r.id) <> 1)
"""


async def measure_recovery(bench: Bench) -> Result:
    """Kill one of two workers with runs in their second step, and wait until the other one has them all."""
    sizes = bench.sizes
    env = {"NOVA_RUNS__LEASE_TTL_S": str(sizes.lease_ttl_s), "NOVA_RUNS__LEASE_RENEW_S": str(sizes.lease_ttl_s / 3)}
    async with bench.stage(slots=_SLOTS, env=env) as stage:
        other = await stage.fleet.start_worker(concurrency=_SLOTS)
        runs = await _start_runs(stage, sizes.lost_runs, sizes.lost_turn_s)
        # Of a few runs one worker may have taken all; the one that holds some is the one to kill.
        for victim in (stage.worker, other):
            lost: list[str] = [
                row["id"] for row in await stage.database.fetch(_HELD, run_ids=runs, pid=str(victim.pid))
            ]
            if lost:
                break
        killed_s = time.monotonic()
        victim.kill()
        await stage.until(_ALL_RESUMED, run_ids=lost, timeout_s=sizes.lease_ttl_s * 3 + 30)
        resumed_s = time.monotonic() - killed_s
        await stage.until_idle()
        twice = int(await stage.database.fetchval(_TWICE, run_ids=runs, lost=lost))
    return Result(
        "recovery",
        f"recovery after kill -9 of a worker with {len(lost)} runs, until all are resumed",
        (
            Figure("all resumed", resumed_s, "s", bound=45),
            Figure("run twice", twice, "runs", bound=0),
        ),
        notes=(
            f"The lease is {sizes.lease_ttl_s:g} s{'' if sizes.lease_ttl_s == 30 else ' (not the default 30)'}. "
            f"The other worker held {len(runs) - len(lost)} more, none of which was touched. Each resumed run went on "
            "after its last committed step; its tool was not called again.",
        ),
        details={"lost": len(lost), "survived": len(runs) - len(lost), "lease_ttl_s": sizes.lease_ttl_s},
    )


async def _start_runs(stage: Stage, count: int, seconds: float) -> list[str]:
    """Start runs that have committed a step with a tool and are long in their second; return their ids."""
    message = scripted({"tool": {"name": "note"}}, {"sleep_s": seconds}, {"say": "Done"})
    answers = await asyncio.gather(*(stage.client.post("/v1/runs", {"message": message}) for _ in range(count)))
    runs: list[str] = [answer.json()["id"] for answer in answers]
    await stage.until(_ALL_IN_SECOND_STEP, run_ids=runs, timeout_s=seconds)
    return runs
