"""Submission: on a busy thread, and repeated."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from nova_workers.base.errors import Gone, IdempotencyMismatch, NotFound, ThreadBusy
from nova_workers.contracts.runs import Claim, RequestKey
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.domain.runs.sql.fleet import Switch, pause, resume
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness


async def test_a_message_becomes_a_run_and_is_answered(harness: Harness):
    worker = harness.worker()
    accepted = await harness.submit("hello")
    await harness.settle(worker)
    row = await harness.run(accepted.run_id)
    assert (row["status"], row["result_text"], row["attempt"]) == ("succeeded", "Step 0. Done.", 1)


@proves("submit.enqueue", "claim.fifo", "finish.next")
async def test_messages_on_a_busy_thread_run_one_after_the_other_in_their_order(harness: Harness):
    worker = harness.worker()
    first, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    others = [await harness.submit(plan(id=str(at)), first.thread_id) for at in range(4)]
    # The bells come in the wrong order, while the thread is busy; nothing more is needed.
    bells = harness.bells.take()
    await asyncio.gather(*(worker.answer(bell) for bell in reversed(bells)))
    assert [await harness.status(other.run_id) for other in others] == ["queued"] * 4
    harness.engine.open("a")
    await slot
    await harness.settle(worker)
    assert [asked.run_id for asked in harness.engine.model_calls if asked.step == 0] == [
        first.run_id,
        *(other.run_id for other in others),
    ]
    assert [other.seq for other in others] == [2, 3, 4, 5]


@proves("submit.reject", "submit.refused-whole")
async def test_a_rejected_message_names_the_active_run_and_writes_nothing(harness: Harness):
    worker = harness.worker()
    first, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    with pytest.raises(ThreadBusy, match=first.run_id) as refusal:
        await harness.submit("me too", first.thread_id, on_busy="reject", **_keyed("k", "me too"))
    assert refusal.value.fields["active_run_id"] == first.run_id
    assert await harness.database.fetchval("SELECT count(*) FROM runs") == 1
    assert await harness.database.fetchval("SELECT count(*) FROM idempotency_keys") == 0
    assert not harness.bells.waiting
    harness.engine.open("a")
    await slot
    # The same key is free: its first submission never happened.
    accepted = await harness.submit("me too", first.thread_id, on_busy="reject", **_keyed("k", "me too"))
    assert not accepted.replayed


async def test_a_queued_run_makes_a_thread_busy_too(harness: Harness):
    first = await harness.submit("hello")
    with pytest.raises(ThreadBusy, match=first.run_id):
        await harness.submit("me too", first.thread_id, on_busy="reject")


@proves("submit.reject")
async def test_a_rejected_message_names_the_next_run(harness: Harness):
    """The one that interrupted goes before those that came first."""
    worker = harness.worker(control=True)
    await harness.wait_for_control_channel()
    first, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    await harness.submit(plan(), first.thread_id)
    async with harness.database.connection() as connection:
        await pause(connection, Switch("tenant", harness.tenant_id), None)
    urgent = await harness.submit(plan(["wait:b"]), first.thread_id, on_busy="interrupt")
    await slot
    with pytest.raises(ThreadBusy) as refusal:
        await harness.submit("me too", first.thread_id, on_busy="reject")
    assert refusal.value.fields["active_run_id"] == urgent.run_id
    async with harness.database.connection() as connection:
        await resume(connection, Switch("tenant", harness.tenant_id))
        claim = await claim_next(connection, first.thread_id, worker_id="wkr_x", lease_ttl_s=30, max_attempts=3)
    assert isinstance(claim, Claim)
    assert claim.run_id == urgent.run_id


@proves("submit.interrupt")
async def test_an_interrupt_stops_the_active_run_keeps_its_text_and_goes_before_the_queue(harness: Harness):
    worker = harness.worker(control=True)
    await harness.wait_for_control_channel()
    first, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    queued = await harness.submit(plan(id="queued"), first.thread_id)
    urgent = await harness.submit(plan(id="urgent"), first.thread_id, on_busy="interrupt")
    assert urgent.interrupted_run_id == first.run_id
    await slot
    row = await harness.run(first.run_id)
    assert (row["status"], row["stop_reason"], row["result_text"]) == ("canceled", "aborted", "Step 0. ")
    await harness.settle(worker)
    order = [asked.run_id for asked in harness.engine.model_calls]
    assert order == [first.run_id, urgent.run_id, queued.run_id]
    # What was said before the interrupt is part of the conversation.
    assert harness.engine.model_calls[1].texts[1].split("\n") == ["Step 0. ", "", "(stopped by user)"]


async def test_an_interrupt_on_an_idle_thread_is_an_ordinary_message(harness: Harness):
    worker = harness.worker()
    thread_id = await harness.thread()
    accepted = await harness.submit("hello", thread_id, on_busy="interrupt")
    assert accepted.interrupted_run_id is None
    await harness.settle(worker)
    assert await harness.status(accepted.run_id) == "succeeded"


async def test_two_interrupts_run_in_their_order(harness: Harness):
    worker = harness.worker(control=True)
    await harness.wait_for_control_channel()
    first, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    urgent = [await harness.submit(plan(id=str(at)), first.thread_id, on_busy="interrupt") for at in range(2)]
    await slot
    await harness.settle(worker)
    assert [asked.run_id for asked in harness.engine.model_calls] == [first.run_id, *(each.run_id for each in urgent)]


async def test_an_interrupt_stops_a_requeued_run(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    first, slot = await harness.begin(worker, plan(["wait:a"], ["x"]), "a")
    worker.drain()
    harness.engine.open("a")
    await slot
    assert await harness.status(first.run_id) == "queued"
    harness.bells.take()
    urgent = await harness.submit(plan(id="urgent"), first.thread_id, on_busy="interrupt")
    assert urgent.interrupted_run_id == first.run_id
    await harness.settle(other)
    assert (await harness.run(first.run_id))["status"] == "canceled"
    assert (await harness.run(urgent.run_id))["status"] == "succeeded"
    assert [execution.tool for execution in harness.engine.executions] == ["wait:a"]


@proves("submit.steer")
async def test_a_steering_message_joins_the_running_turn_at_its_next_step(harness: Harness):
    worker = harness.worker()
    first, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    steering = [await harness.submit(f"also {at}", first.thread_id, on_busy="steer") for at in range(2)]
    harness.engine.open("a")
    await slot
    for each in steering:
        row = await harness.run(each.run_id)
        assert (row["status"], row["merged_into"]) == ("merged", first.run_id)
    assert harness.engine.model_calls[-1].texts[-2:] == ("also 0", "also 1")
    kinds = [row["kind"] for row in await harness.transcript(first.run_id)]
    assert kinds == ["query", "response", "tool_results", "steering", "steering", "response"]
    await harness.settle(worker)
    assert len(harness.engine.model_calls) == 2


@proves("submit.steer-late")
async def test_a_steering_message_whose_turn_ends_first_runs_by_itself(harness: Harness):
    worker = harness.worker()
    first, slot = await harness.begin(worker, plan(doors={0: "a"}), "a")
    late = await harness.submit("also this", first.thread_id, on_busy="steer")
    harness.engine.open("a")
    await slot
    await harness.settle(worker)
    assert [(await harness.run(each.run_id))["status"] for each in (first, late)] == ["succeeded", "succeeded"]
    assert [asked.texts[-1] for asked in harness.engine.model_calls if asked.run_id == late.run_id] == ["also this"]


async def test_a_steering_message_on_an_idle_thread_is_an_ordinary_message(harness: Harness):
    worker = harness.worker()
    accepted = await harness.submit("hello", await harness.thread(), on_busy="steer")
    await harness.settle(worker)
    assert await harness.status(accepted.run_id) == "succeeded"


def _keyed(key: str, body: str) -> dict[str, Any]:
    return {"request": RequestKey(key, hashlib.sha256(body.encode()).digest(), ttl_s=86_400.0)}


@proves("submit.idempotent")
async def test_the_same_key_returns_the_first_run_again_and_rings_no_bell(harness: Harness):
    first = await harness.submit("hello", **_keyed("k", "hello"))
    harness.bells.take()
    again = await harness.submit("hello", **_keyed("k", "hello"))
    assert (again.run_id, again.thread_id, again.replayed) == (first.run_id, first.thread_id, True)
    assert not harness.bells.waiting
    assert await harness.database.fetchval("SELECT count(*) FROM threads") == 1


@proves("submit.idempotent-body")
async def test_the_same_key_with_another_body_is_refused(harness: Harness):
    first = await harness.submit("hello", **_keyed("k", "hello"))
    with pytest.raises(IdempotencyMismatch, match=first.run_id):
        await harness.submit("bye", **_keyed("k", "bye"))
    assert await harness.database.fetchval("SELECT count(*) FROM runs") == 1


async def test_a_key_of_a_deleted_run_is_refused(harness: Harness):
    first = await harness.submit("hello", **_keyed("k", "hello"))
    await harness.database.execute("DELETE FROM runs")
    with pytest.raises(Gone, match=f"^Run {first.run_id!r} was deleted. Use a new Idempotency-Key"):
        await harness.submit("hello", **_keyed("k", "hello"))


async def test_a_key_of_another_tenant_is_another_key(harness: Harness):
    await harness.database.execute("INSERT INTO tenants (id, name) VALUES ('ten_2', 'Other')")
    await harness.database.execute(
        "INSERT INTO agents (tenant_id, id, spec) VALUES ('ten_2', 'planned', :spec)", spec={"name": "P"}
    )
    first = await harness.submit("hello", **_keyed("k", "hello"))
    other = await harness.submit("hello", tenant_id="ten_2", **_keyed("k", "hello"))
    assert first.run_id != other.run_id


@proves("submit.idempotent-concurrent")
async def test_of_concurrent_submissions_with_one_key_one_creates_a_run(harness: Harness):
    accepted = await asyncio.gather(*(harness.submit("hello", **_keyed("k", "hello")) for _ in range(16)))
    assert len({each.run_id for each in accepted}) == 1
    assert sum(not each.replayed for each in accepted) == 1
    assert await harness.database.fetchval("SELECT count(*) FROM runs") == 1
    assert await harness.database.fetchval("SELECT count(*) FROM threads") == 1


@proves("submit.idempotent-expiry")
async def test_an_expired_key_can_be_used_again(harness: Harness):
    first = await harness.submit("hello", **_keyed("k", "hello"))
    await harness.database.execute("UPDATE idempotency_keys SET expires_at = now() - interval '1 second'")
    fresh = await harness.submit("bye", **_keyed("k", "bye"))
    assert not fresh.replayed
    assert fresh.run_id != first.run_id
    again = await harness.submit("bye", **_keyed("k", "bye"))
    assert again.run_id == fresh.run_id


async def test_expired_keys_are_deleted_and_valid_ones_kept(harness: Harness):
    await harness.submit("old", **_keyed("old", "old"))
    await harness.database.execute("UPDATE idempotency_keys SET expires_at = now() - interval '1 second'")
    await harness.submit("new", **_keyed("new", "new"))
    assert await harness.reconciler.upkeep() == 1
    assert await harness.database.fetchval("SELECT key FROM idempotency_keys") == "new"


@proves("input.unknown", "submit.refused-whole")
async def test_unknown_and_foreign_threads_are_refused_alike(harness: Harness):
    mine = await harness.submit("hello")
    for thread_id, tenant_id in (("thr_none", harness.tenant_id), (mine.thread_id, "ten_2")):
        with pytest.raises(NotFound) as refusal:
            await harness.submit("hello", thread_id, tenant_id=tenant_id, **_keyed("k", "x"))
        assert str(refusal.value) == f"There is no thread {thread_id!r}."
    with pytest.raises(NotFound, match="nobody"):
        await harness.submit("hello", agent_id="nobody")
    assert await harness.database.fetchval("SELECT count(*) FROM runs") == 1
    assert await harness.database.fetchval("SELECT count(*) FROM idempotency_keys") == 0


@proves("input.deleted-thread")
async def test_a_deleted_thread_accepts_no_message(harness: Harness):
    first = await harness.submit("hello")
    await harness.database.execute(
        "UPDATE threads SET deleted_at = now() WHERE id = :thread_id", thread_id=first.thread_id
    )
    for on_busy in ("enqueue", "reject", "interrupt", "steer"):
        with pytest.raises(Gone, match=first.thread_id):
            await harness.submit("more", first.thread_id, on_busy=on_busy)
    assert await harness.database.fetchval("SELECT count(*) FROM runs") == 1


@proves("input.deleted-thread")
async def test_queued_runs_of_a_deleted_thread_are_canceled_by_their_claim(harness: Harness):
    worker = harness.worker()
    runs = [await harness.submit("hello")]
    runs.append(await harness.submit("more", runs[0].thread_id))
    await harness.database.execute(
        "UPDATE threads SET deleted_at = now() WHERE id = :thread_id", thread_id=runs[0].thread_id
    )
    await harness.settle(worker)
    assert [(await harness.run(run.run_id))["status"] for run in runs] == ["canceled", "canceled"]
    assert not harness.engine.model_calls


@proves("submit.broker-down")
async def test_a_message_whose_doorbell_is_lost_is_accepted_and_runs_later(harness: Harness):
    worker = harness.worker()
    accepted = await harness.submit("hello")
    harness.bells.take()
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    await harness.settle(worker)
    assert await harness.status(accepted.run_id) == "succeeded"


async def test_a_message_for_a_missing_agent_is_refused_with_the_reason(harness: Harness):
    with pytest.raises(NotFound, match=r"^There is no agent 'nobody'. `nova agents list` or GET /v1/agents"):
        await harness.submit("hello", agent_id="nobody")
    await harness.add_agent("former", {"name": "Former"})
    await harness.database.execute(
        "UPDATE agents SET deleted_at = '2026-03-01 12:30:59+02' WHERE tenant_id = :tenant_id AND id = 'former'",
        tenant_id=harness.tenant_id,
    )
    with pytest.raises(Gone, match=r"^Agent 'former' was deleted at 2026-03-01 10:30 UTC\. `nova agents list`"):
        await harness.submit("hello", agent_id="former")
