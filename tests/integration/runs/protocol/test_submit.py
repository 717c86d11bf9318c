"""A message becomes a run: what it does when the thread is busy, and when it comes twice."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from nova_workers.contracts.runs import Claim
from nova_workers.errors import Gone, IdempotencyMismatch, NotFound, ThreadBusy
from nova_workers.ledger.runs.claim import claim_next
from nova_workers.ledger.runs.fleet import Switch, pause, resume
from tests.requirements import proves
from tests.support.executor import Floor
from tests.support.puppet import plan


async def test_a_message_becomes_a_run_and_is_answered(floor: Floor):
    worker = floor.worker()
    accepted = await floor.submit("hello")
    await floor.settle(worker)
    row = await floor.run(accepted.run_id)
    assert (row["status"], row["result_text"], row["attempt"]) == ("succeeded", "Step 0. Done.", 1)


@proves("submit.enqueue", "claim.fifo", "finish.next")
async def test_messages_on_a_busy_thread_run_one_after_the_other_in_their_order(floor: Floor):
    worker = floor.worker()
    first, slot = await floor.begin(worker, plan(["wait:a"]), "a")
    others = [await floor.submit(plan(id=str(at)), first.thread_id) for at in range(4)]
    # The bells come in the wrong order, while the thread is busy; nothing more is needed.
    bells = floor.bells.take()
    await asyncio.gather(*(worker.answer(bell) for bell in reversed(bells)))
    assert [await floor.status(other.run_id) for other in others] == ["queued"] * 4
    floor.puppet.open("a")
    await slot
    await floor.settle(worker)
    assert [asked.run_id for asked in floor.puppet.asked if asked.step == 0] == [
        first.run_id,
        *(other.run_id for other in others),
    ]
    assert [other.seq for other in others] == [2, 3, 4, 5]


@proves("submit.reject", "submit.refused-whole")
async def test_a_rejected_message_names_the_active_run_and_leaves_nothing(floor: Floor):
    worker = floor.worker()
    first, slot = await floor.begin(worker, plan(["wait:a"]), "a")
    with pytest.raises(ThreadBusy, match=first.run_id) as refusal:
        await floor.submit("me too", first.thread_id, on_busy="reject", idempotency_key="k", body_hash=b"1")
    assert refusal.value.fields["active_run_id"] == first.run_id
    assert await floor.database.fetchval("SELECT count(*) FROM runs") == 1
    assert await floor.database.fetchval("SELECT count(*) FROM idempotency_keys") == 0
    assert not floor.bells.waiting
    floor.puppet.open("a")
    await slot
    # The same key is free: its first submission never happened.
    accepted = await floor.submit("me too", first.thread_id, on_busy="reject", idempotency_key="k", body_hash=b"1")
    assert not accepted.replayed


async def test_a_run_in_line_makes_a_thread_busy_too(floor: Floor):
    first = await floor.submit("hello")
    with pytest.raises(ThreadBusy, match=first.run_id):
        await floor.submit("me too", first.thread_id, on_busy="reject")


@proves("submit.reject")
async def test_a_rejected_message_names_the_run_that_goes_next(floor: Floor):
    """The one that interrupted goes before those that came first."""
    worker = floor.worker(control=True)
    await floor.hears_nudges()
    first, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    await floor.submit(plan(), first.thread_id)
    async with floor.database.connection() as connection:
        await pause(connection, Switch("tenant", floor.tenant_id), None)
    urgent = await floor.submit(plan(["wait:b"]), first.thread_id, on_busy="interrupt")
    await slot
    with pytest.raises(ThreadBusy) as refusal:
        await floor.submit("me too", first.thread_id, on_busy="reject")
    assert refusal.value.fields["active_run_id"] == urgent.run_id
    async with floor.database.connection() as connection:
        await resume(connection, Switch("tenant", floor.tenant_id))
        claim = await claim_next(connection, first.thread_id, worker_id="wkr_x", lease_ttl_s=30, max_attempts=3)
    assert isinstance(claim, Claim)
    assert claim.run_id == urgent.run_id


@proves("submit.interrupt")
async def test_an_interrupt_stops_the_active_run_keeps_its_text_and_goes_before_the_line(floor: Floor):
    worker = floor.worker(control=True)
    await floor.hears_nudges()
    first, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    queued = await floor.submit(plan(id="queued"), first.thread_id)
    urgent = await floor.submit(plan(id="urgent"), first.thread_id, on_busy="interrupt")
    assert urgent.interrupted_run_id == first.run_id
    await slot
    row = await floor.run(first.run_id)
    assert (row["status"], row["stop_reason"], row["result_text"]) == ("canceled", "aborted", "Step 0. ")
    await floor.settle(worker)
    order = [asked.run_id for asked in floor.puppet.asked]
    assert order == [first.run_id, urgent.run_id, queued.run_id]
    # What was said before the interrupt is part of the conversation.
    assert floor.puppet.asked[1].texts[1].split("\n") == ["Step 0. ", "", "(stopped by user)"]


async def test_an_interrupt_on_an_idle_thread_is_an_ordinary_message(floor: Floor):
    worker = floor.worker()
    thread_id = await floor.thread()
    accepted = await floor.submit("hello", thread_id, on_busy="interrupt")
    assert accepted.interrupted_run_id is None
    await floor.settle(worker)
    assert await floor.status(accepted.run_id) == "succeeded"


async def test_two_interrupts_run_in_their_order(floor: Floor):
    worker = floor.worker(control=True)
    await floor.hears_nudges()
    first, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    urgent = [await floor.submit(plan(id=str(at)), first.thread_id, on_busy="interrupt") for at in range(2)]
    await slot
    await floor.settle(worker)
    assert [asked.run_id for asked in floor.puppet.asked] == [first.run_id, *(each.run_id for each in urgent)]


async def test_an_interrupt_stops_a_run_that_was_begun_and_stands_in_line_again(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    first, slot = await floor.begin(worker, plan(["wait:a"], ["x"]), "a")
    worker.drain()
    floor.puppet.open("a")
    await slot
    assert await floor.status(first.run_id) == "queued"
    floor.bells.take()
    urgent = await floor.submit(plan(id="urgent"), first.thread_id, on_busy="interrupt")
    assert urgent.interrupted_run_id == first.run_id
    await floor.settle(other)
    assert (await floor.run(first.run_id))["status"] == "canceled"
    assert (await floor.run(urgent.run_id))["status"] == "succeeded"
    assert [execution.tool for execution in floor.puppet.executions] == ["wait:a"]


@proves("submit.steer")
async def test_a_steering_message_joins_the_running_turn_at_its_next_step(floor: Floor):
    worker = floor.worker()
    first, slot = await floor.begin(worker, plan(["wait:a"]), "a")
    steering = [await floor.submit(f"also {at}", first.thread_id, on_busy="steer") for at in range(2)]
    floor.puppet.open("a")
    await slot
    for each in steering:
        row = await floor.run(each.run_id)
        assert (row["status"], row["merged_into"]) == ("merged", first.run_id)
    assert floor.puppet.asked[-1].texts[-2:] == ("also 0", "also 1")
    kinds = [row["kind"] for row in await floor.transcript(first.run_id)]
    assert kinds == ["query", "response", "tool_results", "steering", "steering", "response"]
    await floor.settle(worker)
    assert len(floor.puppet.asked) == 2


@proves("submit.steer-late")
async def test_a_steering_message_whose_turn_ends_first_runs_by_itself(floor: Floor):
    worker = floor.worker()
    first, slot = await floor.begin(worker, plan(doors={0: "a"}), "a")
    late = await floor.submit("also this", first.thread_id, on_busy="steer")
    floor.puppet.open("a")
    await slot
    await floor.settle(worker)
    assert [(await floor.run(each.run_id))["status"] for each in (first, late)] == ["succeeded", "succeeded"]
    assert [asked.texts[-1] for asked in floor.puppet.asked if asked.run_id == late.run_id] == ["also this"]


async def test_a_steering_message_on_an_idle_thread_is_an_ordinary_message(floor: Floor):
    worker = floor.worker()
    accepted = await floor.submit("hello", await floor.thread(), on_busy="steer")
    await floor.settle(worker)
    assert await floor.status(accepted.run_id) == "succeeded"


def _keyed(key: str, body: str) -> dict[str, Any]:
    return {"idempotency_key": key, "body_hash": hashlib.sha256(body.encode()).digest()}


@proves("submit.idempotent")
async def test_the_same_key_returns_the_first_run_again_and_rings_no_bell(floor: Floor):
    first = await floor.submit("hello", **_keyed("k", "hello"))
    floor.bells.take()
    again = await floor.submit("hello", **_keyed("k", "hello"))
    assert (again.run_id, again.thread_id, again.replayed) == (first.run_id, first.thread_id, True)
    assert not floor.bells.waiting
    assert await floor.database.fetchval("SELECT count(*) FROM threads") == 1


@proves("submit.idempotent-body")
async def test_the_same_key_with_another_body_is_refused(floor: Floor):
    first = await floor.submit("hello", **_keyed("k", "hello"))
    with pytest.raises(IdempotencyMismatch, match=first.run_id):
        await floor.submit("bye", **_keyed("k", "bye"))
    assert await floor.database.fetchval("SELECT count(*) FROM runs") == 1


async def test_a_key_of_another_tenant_is_another_key(floor: Floor):
    await floor.database.execute("INSERT INTO tenants (id, name) VALUES ('ten_2', 'Other')")
    await floor.database.execute(
        "INSERT INTO agents (tenant_id, id, spec) VALUES ('ten_2', 'puppet', $1)", {"name": "P"}
    )
    first = await floor.submit("hello", **_keyed("k", "hello"))
    other = await floor.submit("hello", tenant_id="ten_2", **_keyed("k", "hello"))
    assert first.run_id != other.run_id


@proves("submit.idempotent-concurrent")
async def test_of_many_submissions_with_one_key_at_once_one_makes_a_run(floor: Floor):
    accepted = await asyncio.gather(*(floor.submit("hello", **_keyed("k", "hello")) for _ in range(16)))
    assert len({each.run_id for each in accepted}) == 1
    assert sum(not each.replayed for each in accepted) == 1
    assert await floor.database.fetchval("SELECT count(*) FROM runs") == 1
    assert await floor.database.fetchval("SELECT count(*) FROM threads") == 1


@proves("submit.idempotent-expiry")
async def test_a_key_that_expired_is_taken_over(floor: Floor):
    first = await floor.submit("hello", **_keyed("k", "hello"))
    await floor.database.execute("UPDATE idempotency_keys SET expires_at = now() - interval '1 second'")
    fresh = await floor.submit("bye", **_keyed("k", "bye"))
    assert not fresh.replayed
    assert fresh.run_id != first.run_id
    again = await floor.submit("bye", **_keyed("k", "bye"))
    assert again.run_id == fresh.run_id


async def test_expired_keys_are_deleted_and_living_ones_kept(floor: Floor):
    await floor.submit("old", **_keyed("old", "old"))
    await floor.database.execute("UPDATE idempotency_keys SET expires_at = now() - interval '1 second'")
    await floor.submit("new", **_keyed("new", "new"))
    assert await floor.reconciler.upkeep() == 1
    assert await floor.database.fetchval("SELECT key FROM idempotency_keys") == "new"


@proves("input.unknown", "submit.refused-whole")
async def test_unknown_and_foreign_threads_are_not_found_alike(floor: Floor):
    mine = await floor.submit("hello")
    for thread_id, tenant_id in (("thr_none", floor.tenant_id), (mine.thread_id, "ten_2")):
        with pytest.raises(NotFound) as refusal:
            await floor.submit("hello", thread_id, tenant_id=tenant_id, **_keyed("k", "x"))
        assert str(refusal.value) == f"No thread {thread_id!r}."
    with pytest.raises(NotFound, match="nobody"):
        await floor.submit("hello", agent_id="nobody")
    assert await floor.database.fetchval("SELECT count(*) FROM runs") == 1
    assert await floor.database.fetchval("SELECT count(*) FROM idempotency_keys") == 0


@proves("input.deleted-thread")
async def test_a_deleted_thread_takes_no_message(floor: Floor):
    first = await floor.submit("hello")
    await floor.database.execute("UPDATE threads SET deleted_at = now() WHERE id = $1", first.thread_id)
    for on_busy in ("enqueue", "reject", "interrupt", "steer"):
        with pytest.raises(Gone, match=first.thread_id):
            await floor.submit("more", first.thread_id, on_busy=on_busy)
    assert await floor.database.fetchval("SELECT count(*) FROM runs") == 1


@proves("input.deleted-thread")
async def test_what_stands_in_line_of_a_deleted_thread_is_canceled_by_its_claim(floor: Floor):
    worker = floor.worker()
    runs = [await floor.submit("hello")]
    runs.append(await floor.submit("more", runs[0].thread_id))
    await floor.database.execute("UPDATE threads SET deleted_at = now() WHERE id = $1", runs[0].thread_id)
    await floor.settle(worker)
    assert [(await floor.run(run.run_id))["status"] for run in runs] == ["canceled", "canceled"]
    assert not floor.puppet.asked


@proves("submit.broker-down")
async def test_a_message_whose_doorbell_is_lost_is_accepted_and_runs_later(floor: Floor):
    worker = floor.worker()
    accepted = await floor.submit("hello")
    floor.bells.take()
    await floor.age_doorbells()
    await floor.reconciler.reconcile()
    await floor.settle(worker)
    assert await floor.status(accepted.run_id) == "succeeded"


async def test_a_message_for_an_agent_that_is_not_there_says_why(floor: Floor):
    with pytest.raises(NotFound, match=r"^No agent 'nobody'. `nova agents list` or GET /v1/agents"):
        await floor.submit("hello", agent_id="nobody")
    await floor.add_agent("former", {"name": "Former"})
    await floor.database.execute(
        "UPDATE agents SET deleted_at = '2026-03-01 12:30:59+02' WHERE tenant_id = $1 AND id = 'former'",
        floor.tenant_id,
    )
    with pytest.raises(Gone, match=r"^Agent 'former' was deleted at 2026-03-01 10:30 UTC\. `nova agents list`"):
        await floor.submit("hello", agent_id="former")
