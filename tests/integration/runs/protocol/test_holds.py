"""A fault of the model provider does not consume runs: they wait, in order, and go on by themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.errors import IllegalTransition, InvalidInput, NotFound, Outage
from nova_workers.contracts.http.wire import BulkRetry
from nova_workers.contracts.runs import Accepted
from nova_workers.ledger.auditing import Actor, acting_as
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.fault_injection import Fault
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness, Worker
from tests.support.waiting import until

REFUSED = Outage("anthropic", "key_refused", "default")
DOWN = Outage("anthropic", "down", "default", "haiku")
LIMITED = Outage("anthropic", "rate_limit", "default", "haiku", retry_after_s=200)


async def _try_again(fleet: Harness) -> None:
    """Let the time of the next try come."""
    await fleet.database.execute("UPDATE runs SET held_until = now() WHERE held_until > now()")
    await fleet.reconciler.reconcile()


async def _until_rung(fleet: Harness) -> None:
    await until(lambda: bool(fleet.bells.waiting), "a doorbell")


async def _settle_until(fleet: Harness, worker: Worker, wanted: dict[str, int]) -> None:
    """Answer doorbells until the runs have these states: a release is rung in the background."""

    async def are_settled() -> bool:
        await fleet.settle(worker)
        return await _statuses(fleet) == wanted

    await until(are_settled, f"runs that are {wanted}")


async def _statuses(fleet: Harness) -> dict[str, int]:
    rows = await fleet.database.fetch("SELECT status, count(*) AS runs FROM runs GROUP BY status")
    return {row["status"]: row["runs"] for row in rows}


async def test_a_run_is_held_while_its_provider_refuses_the_key(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.outage = REFUSED
    first = await harness.submit(plan())
    second = await harness.submit(plan(), first.thread_id)
    await harness.settle(worker)

    held = await harness.run(first.run_id)
    assert (held["status"], held["hold"], held["losses"]) == ("queued", "provider", 0)
    assert held["held_until"] > held["held_since"]
    assert held["hold_detail"]["outage"] == "key_refused"
    # The later message keeps its place behind it.
    assert (await harness.run(second.run_id))["attempt"] == 0
    harness.bells.ring_runs([second.doorbell])
    await harness.settle(worker)
    assert (await harness.run(second.run_id))["attempt"] == 0

    harness.engine.outage = None
    await _try_again(harness)
    await harness.settle(worker)
    for run in (first, second):
        await harness.until(run.run_id, "succeeded")
    assert [call.run_id for call in harness.engine.model_calls][-2:] == [first.run_id, second.run_id]
    ends = await harness.database.fetch("SELECT ended FROM run_attempts ORDER BY attempt")
    assert {row["ended"] for row in ends} == {"held"}


async def test_committed_steps_are_kept_while_a_run_is_held(harness: Harness) -> None:
    worker = harness.worker()
    accepted, slot = await harness.begin(worker, plan(["wait:tool"]), "tool")
    harness.engine.outage = DOWN
    harness.engine.open("tool")
    await slot
    assert (await harness.run(accepted.run_id))["hold"] == "provider"

    harness.engine.outage = None
    await _try_again(harness)
    await harness.settle(worker)
    await harness.until(accepted.run_id, "succeeded")
    assert len(harness.engine.executions) == 1


@proves("runs.holds")
async def test_one_run_tries_for_all_that_wait_for_the_same_provider(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.outage = REFUSED
    runs = [await harness.submit(plan(), queue="background") for _ in range(100)]
    bells = harness.bells.take()
    harness.bells.ring_runs(bells[:1])
    await harness.settle(worker)
    harness.bells.ring_runs(bells[1:])
    await harness.settle(worker)
    assert await _statuses(harness) == {"queued": 100}
    held = await harness.database.fetch("SELECT attempt FROM runs WHERE hold = 'provider'")
    assert sorted(row["attempt"] for row in held) == [0] * 99 + [1]

    for tries in range(2, 5):
        await _try_again(harness)
        await harness.settle(worker)
        assert len(harness.engine.model_calls) == tries
    # What is sent now is not tried either.
    later = await harness.submit(plan())
    await harness.settle(worker)
    assert (await harness.run(later.run_id))["hold"] == "provider"
    assert len(harness.engine.model_calls) == 4

    harness.engine.outage = None
    await _try_again(harness)
    await _settle_until(harness, worker, {"succeeded": len(runs) + 1})
    assert len(harness.engine.model_calls) == 4 + len(runs) + 1


async def test_another_model_is_not_held(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.outage = LIMITED
    await harness.submit(plan(), model="haiku")
    await harness.settle(worker)
    harness.engine.outage = None
    other = await harness.submit(plan(), model="opus")
    await harness.settle(worker)
    assert await harness.status(other.run_id) == "succeeded"


async def test_one_conversation_without_an_answer_holds_no_other(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.outage = DOWN
    bad = await harness.submit(plan(), queue="background")
    await harness.settle(worker)
    for tries in range(2, 7):
        harness.engine.outage = None
        assert await harness.status((await _sent(harness, worker)).run_id) == "succeeded"
        harness.engine.outage = DOWN
        await _try_again(harness)
        await harness.settle(worker)
        assert (await harness.run(bad.run_id))["attempt"] == tries
    assert await harness.status(bad.run_id) == "failed"


async def test_a_second_conversation_without_an_answer_holds_the_others(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.outage = DOWN
    runs = [await _sent(harness, worker) for _ in range(3)]
    assert [(await harness.run(run.run_id))["attempt"] for run in runs] == [1, 1, 0]
    # Not the same one tries each time: it might be the only one that fails.
    await _try_again(harness)
    await harness.settle(worker)
    assert [(await harness.run(run.run_id))["attempt"] for run in runs] == [1, 1, 1]


async def _sent(fleet: Harness, worker: Worker) -> Accepted:
    run = await fleet.submit(plan())
    await fleet.settle(worker)
    return run


@pytest.fixture
async def impatient(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Harness]:
    """A fleet whose interactive runs do not wait for long."""
    runs = settings.runs.model_copy(update={"provider_patience_interactive_s": 0.05})
    harness = Harness(database, redis, settings.model_copy(update={"runs": runs}))
    await harness.open()
    yield harness
    await harness.close()


async def test_an_interactive_run_fails_after_a_while_and_says_how_long_it_waited(impatient: Harness) -> None:
    worker = impatient.worker()
    impatient.engine.outage = REFUSED
    interactive = await impatient.submit(plan())
    background = await impatient.submit(plan(), queue="background")
    await impatient.settle(worker)

    async def has_failed() -> bool:
        await impatient.reconciler.reconcile()
        await impatient.settle(worker)
        return await impatient.status(interactive.run_id) == "failed"

    await until(has_failed, "the end of its patience")
    row = await impatient.run(interactive.run_id)
    assert row["error_kind"] == "auth_failure"
    assert "The run waited" in row["error_message"]
    assert (await impatient.run(background.run_id))["status"] == "queued"


async def test_a_held_run_can_be_canceled_and_interrupted(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.outage = DOWN
    canceled, interrupted = [await harness.submit(plan(), model=model) for model in ("haiku", "opus")]
    await harness.settle(worker)
    await harness.canceller.cancel(harness.tenant_id, canceled.run_id)
    harness.engine.outage = None
    after = await harness.submit(plan(), interrupted.thread_id, on_busy="interrupt")
    await harness.settle(worker)
    assert await harness.status(canceled.run_id) == "canceled"
    assert await harness.status(interrupted.run_id) == "canceled"
    await _try_again(harness)
    await harness.settle(worker)
    assert await harness.status(after.run_id) == "succeeded"


async def test_a_run_that_was_never_begun_is_withdrawn_while_it_is_held(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.outage = REFUSED
    await harness.submit(plan())
    await harness.settle(worker)
    held = await harness.submit(plan())
    await harness.settle(worker)
    assert (await harness.run(held.run_id))["attempt"] == 0
    await harness.canceller.withdraw(harness.tenant_id, held.run_id)
    assert await harness.status(held.run_id) == "canceled"


async def test_a_worker_without_the_key_leaves_the_run_to_one_that_has_it(harness: Harness) -> None:
    lacking = harness.worker()
    having = harness.worker()
    harness.engine.outage = Outage("anthropic", "key_missing")
    run = await harness.submit(plan())
    await harness.settle(lacking)
    row = await harness.run(run.run_id)
    assert (row["hold"], row["held_until"]) == ("provider", None)

    # The worker that lacks the key does not claim it again, nor another one.
    other = await harness.submit(plan())
    harness.bells.ring_runs([run.doorbell])
    await harness.settle(lacking)
    assert (await harness.run(run.run_id))["attempt"] == 1
    assert (await harness.run(other.run_id))["attempt"] == 0
    assert (await harness.run(other.run_id))["hold"] == "provider"

    harness.engine.outage = None
    harness.bells.ring_runs([run.doorbell, other.doorbell])
    await harness.settle(having)
    for each in (run, other):
        assert await harness.status(each.run_id) == "succeeded"


async def test_a_new_worker_tries_at_once(harness: Harness) -> None:
    worker = harness.worker()
    harness.engine.outage = REFUSED
    run = await harness.submit(plan())
    await harness.settle(worker)
    harness.engine.outage = None
    fresh = harness.worker()
    fresh.holds.begin()
    await _until_rung(harness)
    await harness.settle(fresh)
    assert await harness.status(run.run_id) == "succeeded"


async def test_a_worker_that_believes_in_an_outage_after_its_end_does_not_hold_runs(harness: Harness) -> None:
    mistaken, other = harness.worker(), harness.worker()
    harness.engine.outage = LIMITED
    first = await harness.submit(plan())
    await harness.settle(mistaken)
    harness.engine.outage = None
    await _try_again(harness)
    await harness.settle(other)
    assert await harness.status(first.run_id) == "succeeded"

    later = await harness.submit(plan())
    await harness.settle(mistaken)
    assert await harness.status(later.run_id) == "succeeded"


@pytest.mark.parametrize("fault", get_args(Fault))
async def test_a_worker_that_dies_while_it_holds_a_run_loses_nothing(harness: Harness, fault: Fault) -> None:
    worker, heir = harness.worker(), harness.worker()
    harness.engine.outage = DOWN
    run = await harness.submit(plan())
    worker.faults.plan(fault, "hold")
    await harness.settle(worker)
    harness.engine.outage = None
    await harness.recover()
    await _try_again(harness)
    await harness.settle(heir)
    assert await harness.status(run.run_id) == "succeeded"


async def _failed(fleet: Harness, worker: Worker, *messages: str, thread_id: str | None = None) -> Accepted:
    """Return a run that failed since its provider refused the key."""
    fleet.engine.outage = REFUSED
    run = await fleet.submit(messages[0] if messages else plan(), thread_id)
    await fleet.settle(worker)
    await fleet.database.execute("UPDATE runs SET held_since = now() - interval '1 day'")
    await _try_again(fleet)
    await fleet.settle(worker)
    assert await fleet.status(run.run_id) == "failed"
    fleet.engine.outage = None
    return run


@proves("runs.retry")
async def test_a_failed_run_is_tried_again_as_the_same_run(harness: Harness) -> None:
    worker = harness.worker()
    before = await harness.submit(plan())
    await harness.settle(worker)
    failed = await _failed(harness, worker, thread_id=before.thread_id)
    after = await harness.submit(plan(), before.thread_id, start_at=datetime.now(UTC) + timedelta(hours=1))

    with acting_as(Actor("key", "key_1", harness.tenant_id)):
        view = await harness.retrier.retry(harness.tenant_id, failed.run_id)
    [record] = await harness.database.fetch("SELECT action, target_id, fields FROM audit_events")
    assert (record["action"], record["target_id"]) == ("run.updated", failed.run_id)
    assert "status" in record["fields"]
    assert (view.status, view.error, view.finished_at) == ("queued", None, None)
    await harness.settle(worker)
    row = await harness.run(failed.run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 3)
    thread = await harness.database.fetchrow("SELECT * FROM threads WHERE id = :id", id=before.thread_id)
    assert thread is not None
    assert (thread["head_turn_id"], thread["turn_count"]) == (row["turn_id"], 2)
    turn = await harness.database.fetchrow("SELECT * FROM turns WHERE id = :id", id=row["turn_id"])
    assert turn is not None
    assert (turn["status"], turn["parent_turn_id"]) == ("succeeded", (await harness.run(before.run_id))["turn_id"])
    assert await harness.database.fetchval("SELECT count(*) FROM usage WHERE run_id = :id", id=failed.run_id) == 1
    assert await harness.status(after.run_id) == "scheduled"


async def test_a_retried_run_keeps_its_steps_and_repeats_no_call(harness: Harness) -> None:
    worker = harness.worker()
    accepted, slot = await harness.begin(worker, plan(["wait:tool"]), "tool")
    harness.engine.outage = REFUSED
    harness.engine.open("tool")
    await slot
    await harness.database.execute("UPDATE runs SET held_since = now() - interval '1 day'")
    await _try_again(harness)
    await harness.settle(worker)
    assert await harness.status(accepted.run_id) == "failed"

    harness.engine.outage = None
    await harness.retrier.retry(harness.tenant_id, accepted.run_id)
    await harness.settle(worker)
    assert await harness.status(accepted.run_id) == "succeeded"
    assert len(harness.engine.executions) == 1


async def test_a_failure_that_the_thread_was_built_on_is_not_taken_back(harness: Harness) -> None:
    worker = harness.worker()
    old = await _failed(harness, worker)
    newest = await _failed(harness, worker, thread_id=old.thread_id)
    succeeded = await harness.submit(plan())
    await harness.settle(worker)
    for run_id, why in ((old.run_id, "gone on"), (succeeded.run_id, "not failed")):
        with pytest.raises(IllegalTransition, match=why):
            await harness.retrier.retry(harness.tenant_id, run_id)
    with pytest.raises(NotFound):
        await harness.retrier.retry("ten_other", newest.run_id)

    which = BulkRetry(error_kind="auth_failure")
    counted = await harness.retrier.retry_many(harness.tenant_id, which.model_copy(update={"dry_run": True}))
    assert (counted.retried, counted.skipped) == (1, {"not_newest": 1})
    assert await harness.retrier.retry_many(harness.tenant_id, which) == counted
    await harness.settle(worker)
    assert await harness.status(newest.run_id) == "succeeded"
    assert (await harness.retrier.retry_many(harness.tenant_id, which)).retried == 0
    with pytest.raises(InvalidInput):
        await harness.retrier.retry_many(harness.tenant_id, BulkRetry())
