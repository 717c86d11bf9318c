"""The end of a run is one transaction: all of its rows are written, or none."""

from __future__ import annotations

import pytest

from nova_workers.base.ids import new_id
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.engine import EngineOptions, EngineResult, StepRecord, ToolCall, TrustLevel
from nova_workers.contracts.listener import TurnListener
from nova_workers.contracts.runs import Claim, Submission
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.domain.runs.sql.finish import finish_run
from nova_workers.domain.runs.sql.submit import insert_run
from tests.bench.ends import PLAIN_END
from tests.requirements import proves
from tests.support.harness.invariants import check_settled, thread_state
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness

_MANY_MESSAGES = """
WITH many AS (
    INSERT INTO turns (id, tenant_id, thread_id, agent_id)
    SELECT 'turn_z' || i, tenant_id, id, 'nova' FROM threads, generate_series(1, 5000) AS i WHERE id = :thread_id
    RETURNING id, tenant_id, thread_id
)
INSERT INTO messages (id, tenant_id, thread_id, turn_id, seq, kind, role, content)
SELECT 'msg_' || many.id, tenant_id, thread_id, many.id, 0, 'query', 'user', '[]' FROM many
"""
_PREPARED = """
SELECT name, cardinality(parameter_types) AS parameters
  FROM pg_prepared_statements
 WHERE statement LIKE '%uncounted AS%effects_in AS%' AND statement NOT LIKE '%pg_prepared%'
"""


@proves("finish.whole")
async def test_the_end_writes_turn_run_usage_head_history_and_effects_together(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(["a"], doors={1: "b"}), "b")
    worker.faults.hold("finish")
    harness.engine.open("b")
    await worker.faults.reached()
    before = await thread_state(harness.database, run.thread_id)
    assert await harness.status(run.run_id) == "running"
    assert await harness.database.fetchval("SELECT count(*) FROM usage") == 0
    worker.faults.step("crash_before")
    await slot
    assert await thread_state(harness.database, run.thread_id) == before
    await worker.crash()
    await harness.recover()
    await harness.settle(harness.worker())
    row = await harness.run(run.run_id)
    turn = await harness.database.fetchrow("SELECT * FROM turns WHERE run_id = :run_id", run_id=run.run_id)
    assert turn is not None
    thread = await harness.database.fetchrow("SELECT * FROM threads WHERE id = :thread_id", thread_id=run.thread_id)
    assert thread is not None
    assert (row["status"], row["stop_reason"], turn["status"]) == ("succeeded", "end_turn", "succeeded")
    assert (thread["head_turn_id"], thread["active_run_id"], thread["turn_count"]) == (turn["id"], None, 1)
    assert (turn["steps"], turn["tool_call_count"], turn["engine"]) == (2, 1, "planned")
    effects = await harness.database.fetch(
        "SELECT kind, position FROM effects WHERE run_id = :run_id", run_id=run.run_id
    )
    assert [tuple(effect) for effect in effects] == [("embeddings", 1)]
    await check_settled(harness.database, harness.engine)


async def test_a_canceled_or_failed_run_leaves_no_effects(harness: Harness):
    worker = harness.worker()
    await harness.submit("hello", agent_id=None, thread_id=await harness.thread("scripted"))
    failed = await harness.submit('{"script": [{"error": {"message": "No."}}]}', await harness.thread("scripted"))
    await harness.settle(worker)
    row = await harness.run(failed.run_id)
    assert (row["status"], row["error_kind"], row["error_message"]) == ("failed", "model_error", "No.")
    kinds = await harness.database.fetch("SELECT run_id FROM effects WHERE run_id = :run_id", run_id=failed.run_id)
    assert kinds == []


async def test_a_run_with_an_unknown_engine_fails_with_the_names_of_engines(harness: Harness):
    worker = harness.worker()
    await harness.add_agent("odd", {"name": "Odd", "engine": "abacus"})
    run = await harness.submit("hello", agent_id="odd")
    await harness.settle(worker)
    row = await harness.run(run.run_id)
    assert row["status"] == "failed"
    assert "'abacus'" in row["error_message"]
    assert "'planned'" in row["error_message"]


async def test_an_end_tells_the_times_of_the_run_also_when_its_reply_was_lost(harness: Harness):
    thread_id = await harness.thread("scripted")
    run = await harness.submit("Hello", thread_id)
    async with harness.database.connection() as connection:
        claim = await claim_next(connection, thread_id, worker_id="wkr_1", lease_ttl_s=60, max_attempts=5)
        assert isinstance(claim, Claim)
        await connection.execute("UPDATE runs SET cancel_requested_at = now() WHERE id = :run_id", run_id=run.run_id)
        first = await finish_run(connection, claim, PLAIN_END, seq=1)
        again = await finish_run(connection, claim, PLAIN_END, seq=1)
    row = await harness.run(run.run_id)
    stored = (row["started_at"], row["finished_at"], row["cancel_requested_at"])
    assert None not in stored
    assert (first.started_at, first.finished_at, first.cancel_requested_at) == stored
    assert (again.started_at, again.finished_at, again.cancel_requested_at) == stored


async def test_the_end_of_a_run_looks_its_message_up_once_beside_thousands_of_others(harness: Harness):
    """With ids after that of the run's turn, it seems cheap to Postgres to read the index from its start."""
    thread_id = await harness.thread("scripted")
    await harness.database.execute(_MANY_MESSAGES, thread_id=thread_id)
    row = await harness.database.fetchrow("SELECT tenant_id FROM threads WHERE id = :thread_id", thread_id=thread_id)
    assert row is not None
    async with harness.database.connection() as connection:
        submission = Submission(row["tenant_id"], (text_block("Hello"),), thread_id=thread_id)
        await insert_run(connection, submission, new_id("run"))
        claim = await claim_next(connection, thread_id, worker_id="wkr_1", lease_ttl_s=60, max_attempts=5)
        assert isinstance(claim, Claim)
        await finish_run(connection, claim, PLAIN_END, seq=2)
        await connection.execute("ANALYZE turns, messages, runs")
        finish = await connection.fetchrow(_PREPARED)
        assert finish is not None
        # The plan that serves all calls from the sixth on.
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        nulls = ", ".join(["NULL"] * finish["parameters"])
        plan = [line[0] for line in await connection.fetch(f"EXPLAIN EXECUTE {finish['name']}({nulls})")]
        await connection.execute("RESET plan_cache_mode")
    lookups = [number for number, line in enumerate(plan) if " Scan " in line and " on messages " in line]
    assert len(lookups) == 1, "\n".join(plan)
    assert "turn_id = " in plan[lookups[0] + 1]


class _CutShort:
    """An engine whose first response is cut after the provider counted its input, and which then calls a tool."""

    name = "cut"
    usage = TokenUsage(input_tokens=10, output_tokens=1, cost_usd=0.25)

    def __init__(self, said: str) -> None:
        self._said = said
        self.turns = 0

    async def run(
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        assert callbacks is not None
        self.turns += 1
        if self.turns == 1:
            messages = (_says(self._said),) if self._said else ()
            await callbacks.on_step(StepRecord(0, messages, (), self.usage, "m", final=True))
            return EngineResult(text=self._said, stop_reason="timeout", model="m")
        assert options.journal == ()
        call = ToolCall("a", "f", {}, step=0, sequence=0, status="completed", result=(text_block("x"),))
        use, result = {"type": "tool_use", "id": "a", "name": "f", "input": {}}, {"type": "tool_result"}
        asked = (Message("assistant", (use,)), Message("user", ({**result, "tool_use_id": "a", "content": "x"},)))
        await callbacks.on_step(StepRecord(0, asked, (call,), self.usage, "m"))
        await callbacks.on_step(StepRecord(1, (_says("Well."),), (), self.usage, "m", final=True))
        return EngineResult(text="Well.", stop_reason="end_turn", model="m")

    async def close(self) -> None: ...


def _says(text: str) -> Message:
    return Message("assistant", (text_block(text),))


@pytest.mark.parametrize("said", ["", "We"])
@proves("finish.whole")
async def test_a_response_that_is_cut_is_billed_and_is_a_step_only_if_it_said_something(harness: Harness, said: str):
    harness.engines["cut"] = _CutShort(said)
    await harness.add_agent("cut", {"name": "Cut", "engine": "cut"})
    worker = harness.worker()
    run = await harness.submit("go", agent_id="cut")
    await harness.settle(worker)

    async def counts() -> tuple[object, ...]:
        row = await harness.database.fetchrow(
            "SELECT r.status, t.steps, t.tool_call_count, u.model_calls, u.input_tokens, u.cost_usd::float8"
            "  FROM runs r JOIN turns t ON t.run_id = r.id JOIN usage u ON u.run_id = r.id WHERE r.id = :run_id",
            run_id=run.run_id,
        )
        assert row is not None
        return tuple(row)

    assert await counts() == ("failed", len(await harness.transcript(run.run_id)) - 1, 0, 1, 10, 0.25)
    await harness.retrier.retry(harness.tenant_id, run.run_id)
    await harness.settle(worker)
    assert await counts() == ("succeeded", 2, 1, 2, 30, 0.75)
