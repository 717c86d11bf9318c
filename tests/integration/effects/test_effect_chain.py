"""The chain of effects is driven by rows: order, retries, crashes, races."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nova_workers.base.config import EffectSettings, RunSettings, TelemetrySettings
from nova_workers.base.errors import Unavailable
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing
from nova_workers.base.vocabulary import EFFECT_KINDS
from nova_workers.domain.effects.sql import (
    ClaimedEffects,
    DueEffect,
    EffectEnd,
    claim_effects,
    release_effects,
    renew_effects,
    settle_effects,
)
from nova_workers.domain.upkeep.sql.overdue import has_due_effects
from nova_workers.ledger.database import Connection, Database
from tests.integration.effects.conftest import MakeRunner, Recorder
from tests.integration.effects.ledger import effect, make_due, seed_run, seed_thread
from tests.requirements import proves
from tests.support.data.reads import entries_read
from tests.support.harness.fault_injection import FaultInjectingDatabase, FaultInjector
from tests.support.waiting import until


def _refuse(_: Sequence[DueEffect]) -> Exception:
    return Unavailable("the model at redis://:hunter2@cache is away")


async def test_a_runs_effects_are_done_in_order(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database)
    first, second = Recorder(), Recorder()
    runner = make_runner({"embeddings": first, "title": second})

    assert await runner.run_due() == 1
    assert (first.runs, second.runs) == ([run.run_id], [])
    assert await runner.run_due() == 1
    assert second.runs == [run.run_id]
    assert await runner.run_due() == 0
    row = await effect(database, run.run_id, "title")
    assert (row["status"], row["attempts"], row["error"]) == ("done", 1, None)
    assert row["done_at"] is not None


async def test_many_runs_share_a_batch(database: Database, make_runner: MakeRunner) -> None:
    for _ in range(25):
        await seed_run(database, effects=["embeddings"])
    handler = Recorder(batch_size=10, at_once=2)
    runner = make_runner({"embeddings": handler})

    assert await runner.run_due() == 20
    assert await runner.run_due() == 5
    assert sorted(len(batch) for batch in handler.batches) == [5, 10, 10]


async def test_a_failed_effect_and_those_after_it_wait(
    database: Database, make_runner: MakeRunner, metrics: Metrics
) -> None:
    run = await seed_run(database)
    before = await database.fetchrow("SELECT * FROM runs WHERE id = :run_id", run_id=run.run_id)
    first, second = Recorder(), Recorder()
    first.fails = _refuse
    runner = make_runner({"embeddings": first, "title": second})

    assert await runner.run_due() == 1
    assert await runner.run_due() == 0
    failed, behind = await effect(database, run.run_id, "embeddings"), await effect(database, run.run_id, "title")
    assert (failed["status"], failed["attempts"]) == ("pending", 1)
    assert failed["error"] == "Unavailable: the model at redis://cache is away"
    assert 0 < float(str(failed["due_in_s"])) <= 5
    assert behind["due_at"] == failed["due_at"]
    assert second.runs == []
    assert await database.fetchrow("SELECT * FROM runs WHERE id = :run_id", run_id=run.run_id) == before
    count = metrics.registry.get_sample_value
    assert count("nova_effects_total", {"kind": "embeddings", "outcome": "retried"}) == 1

    first.fails = lambda _: None
    await make_due(database)
    assert await runner.run_due() == 1
    assert await runner.run_due() == 1
    assert second.runs == [run.run_id]
    assert (await effect(database, run.run_id, "embeddings"))["error"] is None


async def test_an_effect_is_failed_after_its_last_attempt_and_lets_the_next_one_pass(
    database: Database, make_runner: MakeRunner
) -> None:
    run = await seed_run(database)
    first, second = Recorder(), Recorder()
    first.fails = _refuse
    runner = make_runner({"embeddings": first, "title": second}, settings=EffectSettings(max_attempts=3))

    for _ in range(3):
        assert await runner.run_due() == 1
        await make_due(database)
    row = await effect(database, run.run_id, "embeddings")
    assert (row["status"], row["attempts"]) == ("failed", 3)
    assert "is away" in str(row["error"])
    assert await runner.run_due() == 1
    assert second.runs == [run.run_id]
    assert await runner.run_due() == 0
    assert await database.fetchval("SELECT status FROM runs WHERE id = :run_id", run_id=run.run_id) == "succeeded"


async def test_a_failed_effect_is_retried_alone_so_that_it_delays_no_other(
    database: Database, make_runner: MakeRunner
) -> None:
    runs = [await seed_run(database, effects=["embeddings"]) for _ in range(4)]
    poison = runs[1].run_id
    handler = Recorder()
    handler.fails = lambda batch: ValueError("odd") if any(item.run_id == poison for item in batch) else None
    runner = make_runner({"embeddings": handler})

    await runner.run_due()
    await make_due(database)
    await runner.run_due()
    statuses = {run.run_id: (await effect(database, run.run_id, "embeddings"))["status"] for run in runs}
    assert statuses == {run.run_id: "pending" if run.run_id == poison else "done" for run in runs}


@proves("effects.leased")
async def test_an_effect_whose_worker_died_is_done_by_another(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    reached, never = asyncio.Event(), asyncio.Event()

    class Dies(Recorder):
        async def handle(self, effects: Sequence[DueEffect]) -> None:
            reached.set()
            await never.wait()

    dying = asyncio.create_task(make_runner({"embeddings": Dies()}).run_due())
    await reached.wait()
    # A killed process releases nothing: its row stays as it is until the lease has expired.
    other = Recorder()
    runner = make_runner({"embeddings": other})
    assert await runner.run_due() == 0
    lease = await effect(database, run.run_id, "embeddings")
    assert lease["status"] == "running"
    assert 0 < float(str(lease["due_in_s"])) <= 30

    await make_due(database)
    assert await any_effect_due_in(database)
    assert await runner.run_due() == 1
    assert [item.attempt for item in other.batches[0]] == [2]
    never.set()
    await dying
    row = await effect(database, run.run_id, "embeddings")
    assert (row["status"], row["attempts"]) == ("done", 2)


@proves("effects.leased")
async def test_an_effect_that_takes_longer_than_its_lease_is_not_taken_over_while_its_worker_lives(
    database: Database, make_runner: MakeRunner
) -> None:
    run = await seed_run(database, effects=["embeddings"])
    reached, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Recorder):
        async def handle(self, effects: Sequence[DueEffect]) -> None:
            reached.set()
            await go_on.wait()

    working = asyncio.create_task(
        make_runner({"embeddings": Slow()}, leases=RunSettings(lease_ttl_s=30, lease_renew_s=0.05)).run_due()
    )
    await reached.wait()
    # Its lease ends soon, as one that is not renewed would.
    await database.execute("UPDATE effects SET due_at = now() + interval '20 seconds'")
    await until(lambda: _is_leased_for(database, run.run_id, more_than_s=25))
    assert await make_runner({"embeddings": Recorder()}).run_due() == 0
    go_on.set()
    assert await working == 1
    row = await effect(database, run.run_id, "embeddings")
    assert (row["status"], row["attempts"]) == ("done", 1)


@proves("effects.leased")
async def test_the_result_of_an_effect_is_recorded_although_the_database_was_briefly_unavailable(
    database: Database, make_runner: MakeRunner
) -> None:
    run = await seed_run(database, effects=["embeddings"])
    faults = FaultInjector()
    faults.plan("refuse", "settle")
    handler = Recorder()
    runner = make_runner({"embeddings": handler}, database=FaultInjectingDatabase(database, faults))
    assert await runner.run_due() == 1
    row = await effect(database, run.run_id, "embeddings")
    assert (row["status"], row["attempts"], len(handler.batches)) == ("done", 1, 1)


async def _is_leased_for(database: Database, run_id: str, *, more_than_s: float) -> bool:
    return float(str((await effect(database, run_id, "embeddings"))["due_in_s"])) > more_than_s


async def test_a_late_failure_of_a_lost_attempt_changes_nothing(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database, effects=["embeddings"])
    reached, go_on = asyncio.Event(), asyncio.Event()

    class Late(Recorder):
        async def handle(self, effects: Sequence[DueEffect]) -> None:
            reached.set()
            await go_on.wait()
            raise Unavailable("too late")

    late = asyncio.create_task(make_runner({"embeddings": Late()}).run_due())
    await reached.wait()
    await make_due(database)
    await make_runner({"embeddings": Recorder()}).run_due()
    go_on.set()
    await late
    row = await effect(database, run.run_id, "embeddings")
    assert (row["status"], row["error"]) == ("done", None)


async def test_an_effect_that_kills_every_worker_fails(database: Database, make_runner: MakeRunner) -> None:
    run = await seed_run(database)
    await database.execute("UPDATE effects SET attempts = 8, status = 'running' WHERE kind = 'embeddings'")
    handler = Recorder()
    assert await make_runner({"embeddings": handler}).run_due() == 1
    row = await effect(database, run.run_id, "embeddings")
    assert (row["status"], row["attempts"], handler.runs) == ("failed", 8, [])
    assert "lost in each of 8 attempts" in str(row["error"])


async def test_a_stopping_worker_releases_its_effects_without_counting_an_attempt(
    database: Database, make_runner: MakeRunner, metrics: Metrics
) -> None:
    run = await seed_run(database, effects=["embeddings"])
    reached = asyncio.Event()

    class Waits(Recorder):
        async def handle(self, effects: Sequence[DueEffect]) -> None:
            reached.set()
            await asyncio.Event().wait()

    stopped = asyncio.create_task(make_runner({"embeddings": Waits()}).run_due())
    await reached.wait()
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    row = await effect(database, run.run_id, "embeddings")
    assert (row["status"], row["attempts"]) == ("pending", 0)
    assert metrics.registry.get_sample_value("nova_effects_total", {"kind": "embeddings", "outcome": "released"}) == 1
    assert await make_runner({"embeddings": Recorder()}).run_due() == 1


async def test_racing_runners_never_do_an_effect_twice(database: Database, make_runner: MakeRunner) -> None:
    runs = {(await seed_run(database)).run_id for _ in range(40)}
    first, second = Recorder(batch_size=3), Recorder(batch_size=1, at_once=4)

    async def work() -> None:
        runner = make_runner({"embeddings": first, "title": second})
        while await database.fetchval("SELECT count(*) FROM effects WHERE status IN ('pending', 'running')"):
            await runner.run_due()

    await asyncio.gather(*(work() for _ in range(4)))
    assert sorted(first.runs) == sorted(runs)
    assert sorted(second.runs) == sorted(runs)
    assert await database.fetchval("SELECT max(attempts) FROM effects") == 1


async def test_a_kind_without_a_handler_waits_and_holds_up_what_follows_it(
    database: Database, make_runner: MakeRunner
) -> None:
    run = await seed_run(database)
    title = Recorder()
    runner = make_runner({"title": title})
    # The first call puts the title off; the second finds nothing due.
    assert [await runner.run_due(), await runner.run_due()] == [1, 0]
    assert title.runs == []
    assert (await effect(database, run.run_id, "embeddings"))["status"] == "pending"


async def test_an_effect_that_was_put_off_is_due_when_the_earlier_one_has_ended(
    database: Database, make_runner: MakeRunner
) -> None:
    run = await seed_run(database)
    title = Recorder()
    assert await make_runner({"title": title}).run_due() == 1
    put_off = await effect(database, run.run_id, "title")
    assert 5 < float(str(put_off["due_in_s"])) <= 30
    assert (put_off["status"], put_off["attempts"]) == ("pending", 0)

    runner = make_runner({"embeddings": Recorder(), "title": title})
    assert [await runner.run_due(), await runner.run_due()] == [1, 1]
    assert title.runs == [run.run_id]


async def test_disabled_effects_stay_pending(database: Database, make_runner: MakeRunner) -> None:
    await seed_run(database)
    handler = Recorder()
    assert await make_runner({"embeddings": handler}, settings=EffectSettings(enabled=False)).run_due() == 0
    assert handler.runs == []


async def test_each_effect_shows_in_its_runs_trace(database: Database, make_runner: MakeRunner) -> None:
    for trace in ("a", "b"):
        await seed_run(database, effects=["embeddings"], traceparent=f"00-{trace * 32}-{'1' * 16}-01")
    spans = InMemorySpanExporter()
    tracing = Tracing(TelemetrySettings(), "worker", exporter=spans)
    await make_runner({"embeddings": Recorder()}, tracing=tracing).run_due()
    finished = spans.get_finished_spans()
    contexts = [span.get_span_context() for span in finished]
    assert {span.name for span in finished} == {"effect.embeddings"}
    assert {f"{context.trace_id:032x}" for context in contexts if context is not None} == {"a" * 32, "b" * 32}


async def test_closing_the_runner_closes_its_handlers(make_runner: MakeRunner) -> None:
    handler = Recorder()
    await make_runner({"embeddings": handler}).close()
    assert handler.closed


_ADD_RUNS = """
WITH run AS (
    INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, status, content)
    SELECT 'run_' || n, :tenant_id, :thread_id, 'nova', n, 'succeeded', '[]'
      FROM generate_series(:first::int, :last::int) n
    RETURNING *
)
INSERT INTO effects (id, tenant_id, run_id, thread_id, kind, position, status, done_at, due_at)
SELECT 'eff_' || kind || seq, tenant_id, id, thread_id, kind, position, CASE WHEN open THEN 'pending' ELSE 'done' END,
       CASE WHEN NOT open THEN now() END, CASE WHEN later THEN now() + interval '5 minutes' ELSE now() END
  FROM run, (VALUES ('embeddings', 2, :embeddings_open::boolean, false),
                    ('title', 3, :titles_open::boolean, :embeddings_open))
         AS of (kind, position, open, later)
"""


async def test_a_claim_reads_only_what_it_claims_beside_any_backlog(database: Database) -> None:
    """Also with the plans of a session that knew the table while nothing waited."""
    tenant_id, thread_id = await seed_thread(database)

    async def add(connection: Connection, first: int, last: int, *, embeddings_open: bool, titles_open: bool) -> None:
        await connection.execute(
            _ADD_RUNS,
            tenant_id=tenant_id,
            thread_id=thread_id,
            first=first,
            last=last,
            embeddings_open=embeddings_open,
            titles_open=titles_open,
        )

    async def claim(connection: Connection) -> ClaimedEffects:
        return await claim_effects(connection, [("title", 4)], max_attempts=3, lease=timedelta(seconds=30))

    async with database.transaction() as connection:
        await add(connection, 1, 1000, embeddings_open=False, titles_open=False)
        await connection.execute("ANALYZE effects")
        for _ in range(8):
            await claim(connection)
            await settle_effects(connection, [])
        await add(connection, 1001, 3000, embeddings_open=True, titles_open=True)
        await add(connection, 3001, 3001, embeddings_open=False, titles_open=True)
        before = await entries_read(connection, "effects")
        found = await claim(connection)
        assert [effect.run_id for effect in found.claimed] == ["run_3001"]
        assert await settle_effects(connection, [EffectEnd(found.claimed[0], "done")]) == 1
        assert await entries_read(connection, "effects") - before < 30


async def any_effect_due_in(database: Database) -> bool:
    async with database.connection() as connection:
        return await has_due_effects(connection, EFFECT_KINDS)


async def test_the_reconciler_sees_what_is_due(database: Database, make_runner: MakeRunner) -> None:
    assert not await any_effect_due_in(database)
    await seed_run(database, effects=["embeddings"])
    assert await any_effect_due_in(database)
    await make_runner({"embeddings": Recorder()}).run_due()
    assert not await any_effect_due_in(database)


async def test_a_drain_releases_effects_in_progress_and_claims_no_more(
    database: Database, make_runner: MakeRunner
) -> None:
    run = await seed_run(database, effects=["embeddings"])
    reached = asyncio.Event()

    class Waits(Recorder):
        async def handle(self, effects: Sequence[DueEffect]) -> None:
            reached.set()
            await asyncio.Event().wait()

    runner = make_runner({"embeddings": Waits()})
    working = asyncio.create_task(runner.run_due())
    await reached.wait()
    runner.drain()
    async with asyncio.timeout(60):
        assert await working == 1
    row = await effect(database, run.run_id, "embeddings")
    assert (row["status"], row["attempts"]) == ("pending", 0)
    assert await runner.run_due() == 0
    assert (await effect(database, run.run_id, "embeddings"))["status"] == "pending"


async def test_a_busy_kind_has_few_claimed_batches_and_blocks_no_other_kind(
    database: Database, make_runner: MakeRunner
) -> None:
    free = asyncio.Event()

    class Busy(Recorder):
        async def handle(self, effects: Sequence[DueEffect]) -> None:
            await super().handle(effects)
            await free.wait()

    busy, quick = Busy(batch_size=1, at_once=1), Recorder()
    runner = make_runner({"embeddings": busy, "title": quick})
    for _ in range(12):
        await seed_run(database, effects=["embeddings"])
    # One has the only turn, and eight wait for it.
    rounds: list[asyncio.Task[int]] = []
    for begun in range(1, 10):
        rounds.append(asyncio.create_task(runner.run_due()))
        async with asyncio.timeout(60):
            while await database.fetchval("SELECT count(*) FROM effects WHERE status = 'running'") < begun:  # noqa: ASYNC110 - it waits for rows
                await asyncio.sleep(0.005)
    # The others stay in the ledger.
    assert await runner.run_due() == 0
    assert await database.fetchval("SELECT count(*) FROM effects WHERE status = 'pending'") == 3
    run = await seed_run(database, effects=["title"])
    assert await runner.run_due() == 1
    assert (await effect(database, run.run_id, "title"))["status"] == "done"
    free.set()
    assert sum(await asyncio.gather(*rounds)) == 9
    while await runner.run_due():
        pass
    assert len(busy.runs) == 12
    assert await database.fetchval("SELECT count(*) FROM effects WHERE status <> 'done'") == 0


async def test_a_small_worker_keeps_its_slots_for_runs(database: Database, make_runner: MakeRunner) -> None:
    reached, free = asyncio.Event(), asyncio.Event()

    class Busy(Recorder):
        async def handle(self, effects: Sequence[DueEffect]) -> None:
            await super().handle(effects)
            reached.set()
            await free.wait()

    busy = Busy(batch_size=1, at_once=1)
    runner = make_runner({"embeddings": busy})
    runner.slots = 4
    for _ in range(3):
        await seed_run(database, effects=["embeddings"])
    first = asyncio.create_task(runner.run_due())
    await reached.wait()
    assert await runner.run_due() == 0, "it waits in the ledger, and not in a slot"
    assert await database.fetchval("SELECT count(*) FROM effects WHERE status = 'pending'") == 2
    free.set()
    assert await first == 1, "so the doorbell is rung again"
    while await runner.run_due():
        pass
    assert len(busy.runs) == 3


async def test_a_defect_in_one_batch_does_not_block_the_others(
    database: Database, make_runner: MakeRunner, metrics: Metrics
) -> None:
    runs = [await seed_run(database, effects=["embeddings"]) for _ in range(2)]
    handler = Recorder(batch_size=1)
    handler.fails = lambda batch: ZeroDivisionError("defect") if batch[0].run_id == runs[0].run_id else None
    assert await make_runner({"embeddings": handler}).run_due() == 2
    assert (await effect(database, runs[0].run_id, "embeddings"))["error"] == "ZeroDivisionError: defect"
    assert (await effect(database, runs[1].run_id, "embeddings"))["status"] == "done"
    count = metrics.registry.get_sample_value
    assert count("nova_effect_duration_seconds_count", {"kind": "embeddings"}) == 2


@proves("effects.leased")
@pytest.mark.parametrize("outcome", ["postponed", "released"])
async def test_a_late_write_of_an_attempt_that_gave_its_number_back_changes_nothing(
    database: Database, outcome: str
) -> None:
    run = await seed_run(database, effects=["embeddings"])
    lease = timedelta(seconds=30)

    async def claim(connection: Connection) -> DueEffect:
        (claimed,) = (await claim_effects(connection, [("embeddings", 1)], max_attempts=3, lease=lease)).claimed
        return claimed

    async with database.connection() as connection:
        first = await claim(connection)
        end = EffectEnd(first, "postponed", "away", timedelta())
        await (settle_effects(connection, [end]) if outcome == "postponed" else release_effects(connection, [first]))
        second = await claim(connection)
        assert (first.attempt, second.attempt) == (1, 1)
        # The reply to the first write was lost, so it is repeated.
        assert await settle_effects(connection, [EffectEnd(first, "postponed", "away", timedelta(hours=1))]) == 0
        await release_effects(connection, [first])
        await renew_effects(connection, [first], lease=timedelta(hours=1))
        row = await effect(database, run.run_id, "embeddings")
        assert (row["status"], row["attempts"], float(str(row["due_in_s"])) <= 30) == ("running", 1, True)
        assert await settle_effects(connection, [EffectEnd(second, "done")]) == 1
