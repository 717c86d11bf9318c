"""Operations of a run beside many finished ones, and reads of them."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import AsyncGenerator, Sequence

from nova_workers.base.ids import new_id
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.runs import Claim, Submission, TurnFacts
from nova_workers.contracts.steps import StepRecord
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.domain.runs.sql.finish import finish_run
from nova_workers.domain.runs.sql.journal import commit_step
from nova_workers.domain.runs.sql.submit import insert_run
from tests.bench.ends import PLAIN_END
from tests.bench.growth.costs import WARM_UP, Cost, Operation, repeated
from tests.bench.growth.ground import Ground

_SUBMIT = Operation("submit a run")
_CLAIM = Operation("claim it")
_STEP = Operation("commit a step")
_FINISH = Operation("finish it")
_LIST = Operation("GET /v1/runs, 50")
_FAILED = Operation("GET /v1/runs, failed, 50")
_GET = Operation("GET /v1/runs/{id}")

_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id, head_turn_id, fence, next_seq, turn_count)
SELECT 'thr_' || lpad(to_hex(t), 26, '0'), :tenant_id::text, 'nova', 'turn_' || lpad(to_hex(t), 26, '0'), 10, 11, 10
  FROM generate_series((:before::bigint / 10 + 1)::bigint, :size::bigint / 10) AS t
"""
# The head of each thread: the parent of its next turn.
_TURNS = """
INSERT INTO turns (id, tenant_id, thread_id, depth, status, agent_id, agent_version, engine, model, completed_at)
SELECT 'turn_' || lpad(to_hex(t), 26, '0'), :tenant_id::text, 'thr_' || lpad(to_hex(t), 26, '0'), 9, 'succeeded',
       'nova', 1, 'scripted', 'scripted', now()
  FROM generate_series((:before::bigint / 10 + 1)::bigint, :size::bigint / 10) AS t
"""
# One of ten failed, so that the smallest ledger has as many as the list shows.
_RUNS = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, agent_version, seq, content, status, attempt, fence, stop_reason,
                  started_at, finished_at)
SELECT 'run_' || lpad(to_hex(i), 26, '0'), :tenant_id::text, 'thr_' || lpad(to_hex((i - 1) / 10 + 1), 26, '0'), 'nova',
       1, (i - 1) % 10 + 1, '[]', CASE i % 10 WHEN 0 THEN 'failed' ELSE 'succeeded' END, 1, (i - 1) % 10 + 1,
       'end_turn', now(), now() - (i % 8640000) * interval '1 second'
  FROM generate_series(:before::bigint + 1, :size::bigint) AS i
"""

_FACTS = TurnFacts("unified", "sandbox", {})


async def measure_finished_runs(ground: Ground, sizes: Sequence[int]) -> AsyncGenerator[Cost]:
    """Fill the ledger with threads of ten finished runs of one tenant, and measure at each size."""
    before, chance = 0, random.Random(1)
    for size in sizes:
        await ground.write(
            {"threads": _THREADS, "turns": _TURNS, "runs": _RUNS},
            tenant_id=ground.tenant_id, before=before, size=size,
        )  # fmt: skip
        before = size
        threads = [f"thr_{chance.randrange(size // 10) + 1:0>26x}" for _ in range(ground.repeats + WARM_UP)]
        for operation, taken_s in (await cycle_seconds(ground, threads)).items():
            yield Cost.of(operation, size, taken_s)
        for operation, path in (
            (_LIST, "/v1/runs?limit=50"),
            (_FAILED, "/v1/runs?status=failed&limit=50"),
            (_GET, f"/v1/runs/run_{size // 2:0>26x}"),
        ):
            yield Cost.of(operation, size, await repeated(ground.get(path), ground.repeats))


async def cycle_seconds(ground: Ground, threads: Sequence[str]) -> dict[Operation, list[float]]:
    """Execute a run without a model on each thread; return the seconds that each of its statements took.

    The first `WARM_UP` of the threads do not count.
    """
    taken_s: dict[Operation, list[float]] = {}
    for thread_id in threads:
        for operation, took_s in (await _cycle(ground, thread_id)).items():
            taken_s.setdefault(operation, []).append(took_s)
    return {operation: took_s[WARM_UP:] for operation, took_s in taken_s.items()}


async def _cycle(ground: Ground, thread_id: str) -> dict[Operation, float]:
    submission = Submission(ground.tenant_id, (text_block("And again?"),), thread_id=thread_id)
    step = StepRecord(0, (Message("assistant", (text_block("Again."),)),))
    async with ground.database.connection() as connection:
        at_s = [time.perf_counter()]
        await insert_run(connection, submission, new_id("run"))
        at_s.append(time.perf_counter())
        claim = await claim_next(connection, thread_id, worker_id="wkr_growth", lease_ttl_s=3_600, max_attempts=5)
        at_s.append(time.perf_counter())
        assert isinstance(claim, Claim)
        await commit_step(
            connection, claim.run_id, claim.fence, step, seq=1, event_id="1-2", used=TokenUsage(), facts=_FACTS,
            absorb=True,
            clears=False,
        )  # fmt: skip
        at_s.append(time.perf_counter())
        await finish_run(connection, claim, PLAIN_END, seq=2)
        at_s.append(time.perf_counter())
    took_s = (end_s - began_s for began_s, end_s in itertools.pairwise(at_s))
    return dict(zip((_SUBMIT, _CLAIM, _STEP, _FINISH), took_s, strict=True))
