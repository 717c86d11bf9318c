"""What recorded changes cost a turn: CPU time of Postgres, with the triggers of `models/changes.py` and without."""

import statistics
from pathlib import Path

from nova_workers.base.ids import new_id
from nova_workers.contracts.content import text_block
from nova_workers.contracts.runs import Claim, Submission
from nova_workers.domain.agents.sql.records import seed_defaults
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.domain.runs.sql.finish import finish_run
from nova_workers.domain.runs.sql.submit import insert_run_on_new_thread
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.bench.ends import PLAIN_END
from tests.bench.figures import Figure, Result
from tests.bench.stage import Bench

_TENANT = "ten_bench"
_BOUND_MS = 0.2
_WARM_UP = 20
"""Turns until all plans of the connection are generic ones."""


async def measure_changes(bench: Bench) -> Result:
    """Execute turns of one connection, in blocks with and without the triggers, one after the other."""
    with_ms: list[float] = []
    without_ms: list[float] = []
    async with bench.servers.fresh_database() as url:
        ledger, owner = PostgresDatabase(url, pool_size=1), PostgresDatabase(url, pool_size=1)
        try:
            async with ledger.transaction() as connection:
                await ensure_tenant(connection, _TENANT, "bench")
                await seed_defaults(connection, _TENANT)
            backend = await ledger.fetchval("SELECT pg_backend_pid()")
            for _ in range(bench.sizes.change_blocks):
                for verb, taken_ms in (("ENABLE", with_ms), ("DISABLE", without_ms)):
                    for operation in ("insert", "update"):
                        await owner.execute(f"ALTER TABLE runs {verb} TRIGGER record_{operation}")
                    await _turns(ledger, _WARM_UP)
                    before_s = _cpu_s(backend)
                    await _turns(ledger, bench.sizes.change_turns)
                    taken_ms.append((_cpu_s(backend) - before_s) * 1000 / bench.sizes.change_turns)
            # As many as the turns with triggers, each queued, running and ended.
            recorded = await ledger.fetchval("SELECT count(*) FROM changes")
        finally:
            await ledger.close()
            await owner.close()
    turns = bench.sizes.change_blocks * (bench.sizes.change_turns + _WARM_UP)
    assert recorded == 3 * turns, (recorded, turns)
    more_ms = statistics.median(a - b for a, b in zip(with_ms, without_ms, strict=True))
    return Result(
        "changes",
        "CPU a turn for its recorded changes",
        (
            Figure("", more_ms, "ms", bound=_BOUND_MS),
            Figure("submit, claim and end with it", min(with_ms), "ms"),
            Figure("without it", min(without_ms), "ms"),
        ),
        notes=(
            f"Of the server process of one connection: median over {bench.sizes.change_blocks} pairs of blocks of "
            f"{bench.sizes.change_turns} turns. No other process does anything for them until a client follows.",
        ),
        details={"with_ms": with_ms, "without_ms": without_ms},
    )


async def _turns(ledger: Database, count: int) -> None:
    for _ in range(count):
        submission = Submission(_TENANT, (text_block("And again?"),), agent_id="nova")
        async with ledger.connection() as connection:
            accepted = await insert_run_on_new_thread(connection, submission, new_id("run"))
            assert accepted is not None
            claim = await claim_next(
                connection, accepted.thread_id, worker_id="wkr_bench", lease_ttl_s=30, max_attempts=5
            )
            assert isinstance(claim, Claim)
            await finish_run(connection, claim, PLAIN_END, seq=1)


def _cpu_s(pid: int) -> float:
    """Return the time that a process of one thread has been on a processor, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
