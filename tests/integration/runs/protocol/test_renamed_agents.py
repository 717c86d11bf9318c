"""Renames beside runs: what is queued runs after, what is left is moved by the tick, and threads move whole."""

from __future__ import annotations

import contextlib
import json
from typing import Literal

import pytest

from nova_workers.base.errors import AgentRenamed, Conflict
from nova_workers.contracts.runs import Accepted
from nova_workers.domain.agents.sql.moves import OF_THREADS
from nova_workers.domain.delivery.sql.outbox import take_unrouted
from nova_workers.domain.effects.rules.embeddings import EmbeddingEffect
from nova_workers.domain.effects.sql import DueEffect
from nova_workers.domain.runs.sql.ends import read_run_ends
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.domain.search.rules import History
from nova_workers.domain.search.sql.messages import MessageFilter
from nova_workers.domain.upkeep.rules.agent_moves import AgentMoves
from tests.requirements import proves
from tests.support.harness.fault_injection import Crashed, FaultInjectingDatabase, FaultInjector
from tests.support.harness.planned_engine import plan
from tests.support.harness.renames import begin_rename, move_all, rename
from tests.support.harness.workers import AGENT, Harness

NEW = "renamed"
_THREADS = 120
"""More than two batches."""
_MOST_STATEMENTS = 100


async def _index(harness: Harness, run: Accepted) -> None:
    effect = EmbeddingEffect(harness.database, None, batch_size=32)
    due = [DueEffect("eff_1", harness.tenant_id, run.run_id, run.thread_id, "embeddings", 1)]
    await effect.prepare(due)
    await effect.handle(due)


async def _waiting_for(harness: Harness, run: Accepted) -> str | None:
    async with harness.database.connection() as connection:
        return (await get_run(connection, harness.tenant_id, run.run_id)).waiting_for


async def _seed_threads(harness: Harness, threads: int = _THREADS) -> None:
    """Give the agent threads with two ended runs each and what follows them, by SQL."""
    made = """INSERT INTO threads (id, tenant_id, agent_id, next_seq)
               SELECT 'thr_' || lpad(n::text, 5, '0'), :tenant_id, :agent_id, 3
                 FROM generate_series(1, :threads::int) n"""
    await harness.database.execute(made, tenant_id=harness.tenant_id, agent_id=AGENT, threads=threads)
    for statement in (
        """INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, turn_id)
           SELECT 'run_' || t.id || s, t.tenant_id, t.id, t.agent_id, s, '[]', 'succeeded', 'turn_' || t.id || s
             FROM threads t, generate_series(1, 2) s""",
        """INSERT INTO turns (id, tenant_id, thread_id, run_id, agent_id, status)
           SELECT turn_id, tenant_id, thread_id, id, agent_id, 'succeeded' FROM runs""",
        """INSERT INTO messages (id, tenant_id, thread_id, turn_id, run_id, seq, kind, role, content)
           SELECT 'msg_' || id, tenant_id, thread_id, turn_id, id, 0, 'query', 'user', '[]' FROM runs""",
        """INSERT INTO message_texts (message_id, tenant_id, agent_id, thread_id, role, content, said_at)
           SELECT m.id, m.tenant_id, t.agent_id, m.thread_id, 'user', 'words', now()
             FROM messages m JOIN turns t ON t.id = m.turn_id""",
        """INSERT INTO embeddings (id, tenant_id, agent_id, thread_id, message_id, model, dimensions, embedding)
           SELECT 'emb_' || message_id, tenant_id, agent_id, thread_id, message_id, 'm', 2, '[1, 0]'
             FROM message_texts""",
        """INSERT INTO usage (id, tenant_id, run_id, turn_id, thread_id, agent_id)
           SELECT 'use_' || id, tenant_id, id, turn_id, thread_id, agent_id FROM runs""",
        """INSERT INTO deliveries (id, tenant_id, run_id, agent_id, thread_id, kind, target, payload)
           SELECT 'dlv_' || id, tenant_id, id, agent_id, thread_id, 'notification', 'user', '{}' FROM runs""",
        """INSERT INTO sent_files (id, tenant_id, run_id, agent_id, thread_id, name, media_type, size_bytes, content)
           SELECT 'file_' || id, tenant_id, id, agent_id, thread_id, 'a', 'text/plain', 1, 'a' FROM runs""",
    ):
        await harness.database.execute(statement)


async def _ids_of_threads(harness: Harness) -> dict[str, set[str]]:
    """Return which agents' ids the rows of each thread have."""
    ids: dict[str, set[str]] = {}
    for table in ("threads", *OF_THREADS):
        thread_id = "id" if table == "threads" else "thread_id"
        for row in await harness.database.fetch(f"SELECT DISTINCT {thread_id} AS thread_id, agent_id FROM {table}"):
            ids.setdefault(row["thread_id"], set()).add(row["agent_id"])
    return ids


@proves("agents.rename-resumed")
async def test_a_rename_whose_process_died_is_finished_by_ticks_and_threads_move_whole(harness: Harness) -> None:
    await _seed_threads(harness)
    # The process that renames dies right after its first commit, and each later one after one batch.
    await begin_rename(harness, AGENT, NEW)
    queued = await harness.submit("hello", "thr_00001")
    fresh = await harness.submit("hello", agent_id=NEW)
    worker = harness.worker()
    batches = 0
    while await AgentMoves(harness.work).step():
        batches += 1
        ids = await _ids_of_threads(harness)
        assert {len(of_thread) for of_thread in ids.values()} == {1}
        for run in (queued, fresh):
            assert await _waiting_for(harness, run) == "its agent is being renamed"
        await harness.settle(worker)
        assert {await harness.status(run.run_id) for run in (queued, fresh)} == {"queued"}
    assert batches > 2
    assert set.union(*(await _ids_of_threads(harness)).values()) == {NEW}
    await harness.settle(worker)
    assert {await harness.status(run.run_id) for run in (queued, fresh)} == {"succeeded"}


@proves("agents.rename-resumed")
async def test_a_canceled_move_leaves_the_rest_to_the_tick(harness: Harness) -> None:
    await _seed_threads(harness)
    moves = AgentMoves(harness.work)
    done = await moves.start(await begin_rename(harness, AGENT, NEW), patience_s=0)
    await moves.close()
    assert not done
    await move_all(harness)
    assert set.union(*(await _ids_of_threads(harness)).values()) == {NEW}


@proves("agents.rename-resumed")
# What a process leaves that dies before a statement is what one leaves that died after the statement before it.
@pytest.mark.parametrize("fault", [pytest.param("crash_before", marks=pytest.mark.long), "crash_after"])
async def test_a_process_that_dies_at_any_statement_of_a_rename_leaves_it_undone_or_to_the_tick(
    harness: Harness, fault: Literal["crash_before", "crash_after"]
) -> None:
    await _seed_threads(harness, 3)
    ids = (AGENT, NEW)
    for nth in range(1, _MOST_STATEMENTS):
        faults = FaultInjector()
        faults.plan(fault, "other", nth=nth)
        dying = FaultInjectingDatabase(harness.database, faults)
        with contextlib.suppress(Crashed):
            await begin_rename(harness, *ids, database=dying)
            await move_all(harness, database=dying)
        of_threads = await _ids_of_threads(harness)
        assert all(len(of_thread) == 1 for of_thread in of_threads.values())
        # Repeating the request begins what did not happen, and nothing else.
        await begin_rename(harness, *ids)
        await move_all(harness)
        assert set.union(*(await _ids_of_threads(harness)).values()) == {ids[1]}
        run = await harness.submit("hello", agent_id=ids[1])
        await harness.settle(*(harness.workers or [harness.worker()]))
        assert await harness.status(run.run_id) == "succeeded"
        if not faults.dead:
            return
        ids = (ids[1], ids[0])
    raise AssertionError(f"A rename has more than {_MOST_STATEMENTS} statements.")


async def test_a_question_goes_to_an_agent_under_its_id_now(harness: Harness) -> None:
    question = {"question": "Which?", "expires_in_s": 9, "escalate_to": AGENT}
    await harness.add_agent("asker", {"name": "a", "engine": "scripted", "capabilities": {"user": {}, "agents": {}}})
    worker = harness.worker()
    tool = {"script": [{"tool": {"name": "ask_user", "input": question}}, {"say": "settled"}]}
    asking = await harness.submit(json.dumps(tool), agent_id="asker")
    await harness.settle(worker)
    await rename(harness, AGENT, NEW)
    read = "SELECT request ->> 'escalate_to' FROM run_waits"
    assert await harness.database.fetchval(read) == NEW
    # A wait of a call that was checked before the rename.
    await harness.database.execute(
        "UPDATE run_waits SET due_at = now(), request = jsonb_set(request, '{escalate_to}', to_jsonb(:agent::text))",
        agent=AGENT,
    )
    await harness.waiting.sweep()
    child = "SELECT agent_id FROM runs WHERE parent_run_id = :run_id"
    assert await harness.database.fetchval(child, run_id=asking.run_id) == NEW
    await harness.settle(worker)
    assert (await harness.run(asking.run_id))["result_text"] == "settled"


@proves("agents.rename")
async def test_a_renamed_agent_continues_its_conversation_and_finds_its_past(harness: Harness) -> None:
    worker = harness.worker()
    first = await harness.submit("the password is tangerine")
    await harness.settle(worker)
    await _index(harness, first)
    queued = await harness.submit("what was it?", first.thread_id)
    harness.bells.take()
    await rename(harness, AGENT, NEW)
    await harness.settle(worker)
    row = await harness.run(queued.run_id)
    assert (row["status"], row["agent_id"]) == ("succeeded", NEW)
    assert harness.engine.model_calls[-1].texts[0] == "the password is tangerine"
    history = History(harness.database, None)
    found = await history.search(MessageFilter(harness.tenant_id, NEW), "tangerine", limit=5)
    assert [hit.thread_id for hit in found.items] == [first.thread_id]
    with pytest.raises(AgentRenamed):
        await harness.submit("hello", agent_id=AGENT)


async def test_a_run_that_waits_continues_after_the_rename(harness: Harness) -> None:
    worker = harness.worker()
    asks = await harness.submit(plan(["agent:scripted"], []), agent_id=AGENT)
    (bell,) = harness.bells.take()
    await worker.answer(bell)
    assert await harness.status(asks.run_id) == "waiting"
    await rename(harness, AGENT, NEW)
    await harness.settle(worker)
    row = await harness.run(asks.run_id)
    assert (row["status"], row["agent_id"]) == ("succeeded", NEW)


async def test_a_run_that_became_running_as_the_rename_began_ends_before_its_thread_moves(harness: Harness) -> None:
    worker = harness.worker()
    run = await harness.submit(plan(["wait:a"], []))
    await begin_rename(harness, AGENT, NEW)
    # The claim's snapshot is older than the rename.
    held = await harness.database.fetch("DELETE FROM switches RETURNING *")
    slot = await harness.start_next(worker)
    await harness.engine.reached("a")
    hold = "INSERT INTO switches (scope, tenant_id, target) VALUES (:scope, :tenant_id, :target)"
    for row in held:
        await harness.database.execute(hold, scope=row["scope"], tenant_id=row["tenant_id"], target=row["target"])
    await move_all(harness)
    assert await _ids_of_threads(harness) == {run.thread_id: {AGENT}}
    with pytest.raises(Conflict, match="being renamed"):
        await begin_rename(harness, NEW, "third")
    harness.engine.open("a")
    await slot
    await move_all(harness)
    assert await _ids_of_threads(harness) == {run.thread_id: {NEW}}
    row = await harness.run(run.run_id)
    assert (row["status"], row["agent_id"]) == ("succeeded", NEW)


async def test_a_run_that_a_late_transaction_leaves_under_the_former_id_waits_until_the_tick_moves_it(
    harness: Harness,
) -> None:
    worker = harness.worker()
    await rename(harness, AGENT, NEW)
    thread = await harness.thread(AGENT)
    late = await harness.submit("hello", thread)
    await harness.settle(worker)
    assert await harness.status(late.run_id) == "queued"
    await move_all(harness)
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    await harness.settle(worker)
    row = await harness.run(late.run_id)
    assert (row["status"], row["agent_id"]) == ("succeeded", NEW)


async def test_what_ended_before_a_rename_is_delivered_under_the_new_id(harness: Harness) -> None:
    run = await harness.submit("hello")
    await harness.settle(harness.worker())
    insert = """INSERT INTO deliveries (id, tenant_id, run_id, agent_id, thread_id, kind, target, payload)
                SELECT 'dlv_1', tenant_id, id, agent_id, thread_id, 'notification', 'user', '{}' FROM runs"""
    await harness.database.execute(insert)
    await begin_rename(harness, AGENT, NEW)
    async with harness.database.connection() as connection:
        assert [end.agent_id for end in await read_run_ends(connection, [run.run_id])] == [NEW]
        assert [item.agent_id for item in await take_unrouted(connection, limit=5)] == [NEW]


async def test_a_queued_run_of_an_agent_that_is_being_renamed_can_be_canceled(harness: Harness) -> None:
    run = await harness.submit("hello")
    await begin_rename(harness, AGENT, NEW)
    await harness.database.execute("UPDATE runs SET cancel_requested_at = now(), cancel_reason = 'cancel'")
    await harness.settle(harness.worker())
    assert await harness.status(run.run_id) == "canceled"
    await move_all(harness)
    assert (await harness.run(run.run_id))["agent_id"] == NEW


async def test_a_renamed_agent_keeps_its_directory(harness: Harness) -> None:
    await harness.add_agent("careful", {"name": "careful", "engine": "scripted", "trust": "controlled"})
    worker = harness.worker()
    for old, new in (("careful", "tidy"), ("tidy", "neat")):
        await rename(harness, old, new)
    run = await harness.submit("hello", agent_id="neat")
    await harness.settle(worker)
    path = await harness.database.fetchval("SELECT workspace_path FROM turns WHERE run_id = :run_id", run_id=run.run_id)
    assert path == str(harness.settings.agent_directory(harness.tenant_id, "careful"))


_ROWS_READ = """
SELECT sum(seq_tup_read + idx_tup_fetch)::int FROM pg_stat_user_tables WHERE relname IN ('turns', 'usage')
"""


@proves("agents.rename")
async def test_a_rename_reads_each_row_of_a_long_past_a_few_times(harness: Harness) -> None:
    threads = 500
    await _seed_threads(harness, threads)
    for table in ("threads", "runs", "turns", "usage"):
        await harness.database.execute(f"ANALYZE {table}")

    async def rows_read() -> int:
        await harness.database.execute("SELECT pg_stat_force_next_flush()")
        return await harness.database.fetchval(_ROWS_READ) or 0

    before = await rows_read()
    await rename(harness, AGENT, NEW)
    # Ten batches may each scan the two tables for some of their statements, but not for each thread.
    assert await rows_read() - before < 200 * threads
