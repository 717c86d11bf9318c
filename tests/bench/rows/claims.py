"""Cost of a claim with large tables."""

import random
import time

from nova_workers.base.ids import new_id
from nova_workers.contracts.content import text_block
from nova_workers.contracts.runs import Claim, Submission
from nova_workers.domain.agents.sql.records import seed_defaults
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.domain.runs.sql.finish import finish_run
from nova_workers.domain.runs.sql.submit import insert_run
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.bench.ends import PLAIN_END
from tests.bench.figures import Figure, Result, percentile, spread
from tests.bench.servers import filling
from tests.bench.stage import Bench

_TENANT = "ten_bench"
_RUNS_A_THREAD = 10
_WITHIN_PERCENT = 20

# Rows that follow a truncate in their transaction need no log where nothing replicates, and no foreign key is checked,
# since all are made of one series: a million runs with all they left in half a minute.
_SERIES = """
(SELECT i, (i - 1) / :runs_a_thread::int + 1 AS thread, (i - 1) % :runs_a_thread::int AS place
   FROM generate_series(1, :runs::int) AS i) AS series
"""

_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id, head_turn_id, fence, next_seq, turn_count)
SELECT 'thr_' || lpad(to_hex(t), 26, '0'), :tenant_id::text, 'nova',
       'turn_' || lpad(to_hex(t * :runs_a_thread::int), 26, '0'),
       :runs_a_thread::int, :runs_a_thread::int + 1, :runs_a_thread::int
  FROM generate_series(1, :runs::int / :runs_a_thread::int) AS t
"""

_RUNS = f"""
INSERT INTO runs (id, tenant_id, thread_id, agent_id, agent_version, seq, content, status, attempt, fence, worker_id,
                  turn_id, stop_reason, result_text, final_event_id, started_at, finished_at)
SELECT 'run_' || lpad(to_hex(i), 26, '0'), :tenant_id::text, 'thr_' || lpad(to_hex(thread), 26, '0'), 'nova', 1,
       place + 1, '[{{"text": "How long does this take?", "type": "text"}}]', 'succeeded', 1, place + 1,
       'wkr_' || lpad('', 26, '0') || '@host:1', 'turn_' || lpad(to_hex(i), 26, '0'), 'end_turn',
       'You said: How long does this take?', '1-7', now(), now()
  FROM {_SERIES}
"""

_TURNS = f"""
INSERT INTO turns (id, tenant_id, thread_id, run_id, parent_turn_id, depth, status, agent_id, agent_version, engine,
                   model, provider, steps, input_tokens, output_tokens, cost_usd, stop_reason, completed_at)
SELECT 'turn_' || lpad(to_hex(i), 26, '0'), :tenant_id::text, 'thr_' || lpad(to_hex(thread), 26, '0'),
       'run_' || lpad(to_hex(i), 26, '0'), CASE WHEN place > 0 THEN 'turn_' || lpad(to_hex(i - 1), 26, '0') END, place,
       'succeeded', 'nova', 1, 'scripted', 'scripted', 'scripted', 1, 7, 9, 0, 'end_turn', now()
  FROM {_SERIES}
"""

_MESSAGES = f"""
INSERT INTO messages (id, tenant_id, thread_id, turn_id, run_id, seq, step, kind, role, content)
SELECT 'msg_' || lpad(to_hex(i * 2 + m), 26, '0'), :tenant_id::text, 'thr_' || lpad(to_hex(thread), 26, '0'),
       'turn_' || lpad(to_hex(i), 26, '0'), 'run_' || lpad(to_hex(i), 26, '0'), m, NULLIF(m, 0) - 1,
       CASE m WHEN 0 THEN 'query' ELSE 'response' END, CASE m WHEN 0 THEN 'user' ELSE 'assistant' END,
       '[{{"text": "You said: How long does this take?", "type": "text"}}]'
  FROM {_SERIES}, generate_series(0, 1) AS m
"""


async def measure_claims(bench: Bench) -> Result:
    """Claim alternately from a small and a large ledger, so that other load on the machine affects both."""
    sizes = bench.sizes
    async with bench.servers.fresh_database() as few_url, bench.servers.fresh_database() as many_url:
        began_s = time.perf_counter()
        for url, runs in ((few_url, sizes.few_finished_runs), (many_url, sizes.finished_runs)):
            await fill_ledger(url, runs, tenant_id=_TENANT)
        filled_s = time.perf_counter() - began_s
        few, many = PostgresDatabase(few_url, pool_size=1), PostgresDatabase(many_url, pool_size=1)
        try:
            few_s, many_s = await _claim_in_turns(
                (few, sizes.few_finished_runs), (many, sizes.finished_runs), sizes.claims
            )
        finally:
            await few.close()
            await many.close()
    few_p50, many_p50 = (percentile(times_s, 0.5) * 1000 for times_s in (few_s, many_s))
    return Result(
        "claims",
        f"claim cost with {sizes.finished_runs:,} finished runs in the table, beside {sizes.few_finished_runs:,}",
        (
            Figure("", (many_p50 / few_p50 - 1) * 100, "% more", bound=_WITHIN_PERCENT),
            Figure(f"p50 with {sizes.few_finished_runs:,}", few_p50, "ms"),
            Figure(f"p50 with {sizes.finished_runs:,}", many_p50, "ms"),
        ),
        notes=(
            f"One statement and its commit, as the worker sends it, on threads taken at random; {sizes.claims} claims "
            "of each ledger, one by one in turns. Each finished run has its turn and two messages.",
        ),
        details={
            "few_ms": {figure.label: figure.value for figure in spread(few_s, bounds_ms={})},
            "many_ms": {figure.label: figure.value for figure in spread(many_s, bounds_ms={})},
            "filled_in_s": filled_s,
        },
    )


async def fill_ledger(url: str, runs: int, *, tenant_id: str) -> None:
    """Fill an empty database with threads of ten runs that succeeded, each with its turn and two messages."""
    async with filling(url) as database:
        async with database.transaction() as connection:
            await ensure_tenant(connection, tenant_id, "bench")
            await seed_defaults(connection, tenant_id)
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute("TRUNCATE threads, runs, turns, messages CASCADE")
            for statement in (_THREADS, _RUNS, _TURNS, _MESSAGES):
                await connection.execute(statement, runs=runs, runs_a_thread=_RUNS_A_THREAD, tenant_id=tenant_id)
        await database.execute("VACUUM ANALYZE threads, runs, turns, messages")


async def _claim_in_turns(
    few: tuple[Database, int], many: tuple[Database, int], count: int
) -> tuple[list[float], list[float]]:
    # The same threads at every run of the bench.
    chance = random.Random(1)
    for database, runs in (few, many):
        for _ in range(count // 5):
            await _claim(database, runs, chance)
    few_s: list[float] = []
    many_s: list[float] = []
    for _ in range(count):
        few_s.append(await _claim(*few, chance))
        many_s.append(await _claim(*many, chance))
    return few_s, many_s


async def _claim(ledger: Database, runs: int, chance: random.Random) -> float:
    """Submit, claim and finish one run on some thread; return how long the claim took."""
    thread_id = f"thr_{chance.randrange(runs // _RUNS_A_THREAD) + 1:0>26x}"
    submission = Submission(_TENANT, (text_block("And again?"),), thread_id=thread_id)
    async with ledger.connection() as connection:
        await insert_run(connection, submission, new_id("run"))
        began_s = time.perf_counter()
        claim = await claim_next(connection, thread_id, worker_id="wkr_bench", lease_ttl_s=30, max_attempts=5)
        took_s = time.perf_counter() - began_s
        assert isinstance(claim, Claim)
        await finish_run(connection, claim, PLAIN_END, seq=1)
    return took_s
