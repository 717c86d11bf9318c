"""Caps: never more concurrent runs than a tenant or an agent may have, and each run that is held back starts later."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from nova_workers.contracts.runs import Accepted, Claim
from nova_workers.domain.runs.rules.executor import claim_run
from nova_workers.domain.runs.sql.reads import get_run
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import AGENT, Harness

Owner = Literal["tenant", "agent"]
_OWNERS: list[Owner] = ["tenant", "agent"]


async def _cap(harness: Harness, owner: Owner, most: int | None) -> None:
    if owner == "tenant":
        await harness.database.execute(
            "UPDATE tenants SET max_running = :max_running WHERE id = :tenant_id",
            tenant_id=harness.tenant_id,
            max_running=most,
        )
    else:
        spec = {"name": AGENT, "engine": AGENT, "max_running": most}
        await harness.database.execute(
            "UPDATE agents SET spec = :spec WHERE tenant_id = :tenant_id AND id = :agent_id",
            tenant_id=harness.tenant_id,
            agent_id=AGENT,
            spec=spec,
        )


async def _statuses(harness: Harness, runs: list[Accepted]) -> list[str]:
    return [await harness.status(run.run_id) for run in runs]


@pytest.mark.parametrize("owner", _OWNERS)
@proves("fair.cap")
async def test_of_concurrent_claims_as_many_win_as_the_cap_permits(harness: Harness, owner: Owner):
    """Without a Redis lock and without an order: the claim itself guards the cap."""
    await _cap(harness, owner, 3)
    runs = [await harness.submit("hello") for _ in range(12)]

    async def claim(run: Accepted) -> Claim | None:
        claimed = await claim_run(harness.database, run.thread_id, worker_id="wkr", runs=harness.settings.runs)
        return claimed if isinstance(claimed, Claim) else None

    for _ in range(5):
        won = [claim for claim in await asyncio.gather(*map(claim, runs)) if claim is not None]
        assert len(won) == 3
        assert all(claim.capped for claim in won)
        assert [await claim(run) for run in runs] == [None] * 12
        await harness.database.execute("UPDATE runs SET status = 'queued', lease_expires_at = NULL")
        await harness.database.execute("UPDATE threads SET active_run_id = NULL")


@pytest.mark.parametrize("owner", _OWNERS)
@proves("fair.cap-freed")
async def test_the_end_of_a_run_wakes_one_that_was_held_back(harness: Harness, owner: Owner):
    await _cap(harness, owner, 1)
    worker = harness.worker()
    first, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    held = [await harness.submit("hello") for _ in range(4)]
    await harness.settle(worker)
    assert await _statuses(harness, [first, *held]) == ["running"] + ["queued"] * 4
    harness.engine.open("a")
    await slot
    assert len(harness.bells.waiting) == 1, "one has ended, one may begin"
    await harness.settle(worker)
    assert await _statuses(harness, held) == ["succeeded"] * 4


@proves("fair.cap-freed", "suspend.holds-nothing")
async def test_a_waiting_run_does_not_count_under_the_cap(harness: Harness):
    await _cap(harness, "tenant", 1)
    worker = harness.worker()
    asking = await harness.submit(plan(["ask:x"]))
    held = await harness.submit("hello")
    await worker.answer(harness.bells.take()[0])
    await harness.settle(worker)
    assert await _statuses(harness, [asking, held]) == ["waiting", "succeeded"]


@proves("fair.cap-freed")
async def test_an_agent_that_may_have_one_run_asks_itself(harness: Harness):
    """A waiting run does not count under the cap, so a cap of one is no deadlock."""
    await _cap(harness, "agent", 1)
    worker = harness.worker()
    run = await harness.submit(plan(["agent:x"]))
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded"


@pytest.mark.parametrize("owner", _OWNERS)
@proves("fair.cap-freed")
async def test_the_reconciler_wakes_the_next_if_the_worker_dies_at_the_end(harness: Harness, owner: Owner):
    await _cap(harness, owner, 1)
    worker, other = harness.worker(), harness.worker()
    first, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    held = [await harness.submit("hello") for _ in range(3)]
    await harness.settle(other)
    worker.faults.plan("crash_before", "entitled")
    harness.engine.open("a")
    await slot
    assert await harness.status(first.run_id) == "succeeded"
    assert not harness.bells.waiting
    await harness.age_doorbells()
    assert (await harness.reconciler.reconcile()).rerung == 1, "as many as there is room for"
    assert (await harness.reconciler.reconcile()).rerung == 0, "once"
    await harness.settle(other)
    assert await _statuses(harness, held) == ["succeeded"] * 3


@proves("fair.cap-freed")
async def test_under_a_full_cap_no_doorbell_is_rung_and_all_are_once_it_is_gone(harness: Harness):
    await _cap(harness, "tenant", 1)
    worker = harness.worker()
    _, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    held = [await harness.submit("hello") for _ in range(3)]
    harness.bells.take()
    await harness.age_doorbells()
    assert (await harness.reconciler.reconcile()).rerung == 0
    await _cap(harness, "tenant", None)
    assert (await harness.reconciler.reconcile()).rerung == 3
    await harness.settle(worker)
    assert await _statuses(harness, held) == ["succeeded"] * 3
    harness.engine.open("a")
    await slot


@pytest.mark.parametrize("dies", [False, True])
@proves("fair.cap-freed")
async def test_a_long_queue_of_one_thread_holds_no_other_thread_back(harness: Harness, dies: bool):
    await _cap(harness, "agent", 2)
    worker = harness.worker()
    long, first = await harness.begin(worker, plan(["wait:a"]), "a")
    _, second = await harness.begin(worker, plan(["wait:b"]), "b")
    # Doorbells for them were rung at this moment.
    await harness.database.execute(
        "INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content)"
        """ SELECT 'run_' || i, tenant_id, id, agent_id, next_seq + i, '[{"type": "text", "text": "more"}]'"""
        " FROM threads, generate_series(1, 300) i WHERE id = :thread_id",
        thread_id=long.thread_id,
    )
    held = await harness.submit("hello")
    await harness.settle(worker)
    assert await harness.status(held.run_id) == "queued"
    if dies:
        worker.faults.plan("crash_before", "entitled")
    harness.engine.open("b")
    await second
    assert len(harness.bells.waiting) == (0 if dies else 1)
    if dies:
        await harness.database.execute(
            "UPDATE runs SET rang_at = now() - interval '1 hour' WHERE id = :run_id", run_id=held.run_id
        )
        assert (await harness.reconciler.reconcile()).rerung == 1
    await harness.settle(harness.worker())
    assert await harness.status(held.run_id) == "succeeded"
    harness.engine.open("a")
    await first


async def test_a_canceled_run_is_ended_although_the_cap_is_full(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    lost, _ = await harness.begin(worker, plan(["wait:a"]), "a")
    await worker.crash()
    await harness.recover()
    harness.bells.take()
    _, slot = await harness.begin(other, plan(["wait:b"]), "b")
    await _cap(harness, "tenant", 1)
    await harness.canceller.cancel(harness.tenant_id, lost.run_id)
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    await harness.settle(other)
    assert await harness.status(lost.run_id) == "canceled"
    harness.engine.open("b")
    await slot


async def test_a_run_held_back_by_a_cap_shows_the_cap(harness: Harness):
    worker = harness.worker()
    _, slot = await harness.begin(worker, plan(["wait:a"]), "a")
    held = await harness.submit("hello")
    for owner in _OWNERS:
        await _cap(harness, owner, 1)
        async with harness.database.connection() as connection:
            view = await get_run(connection, harness.tenant_id, held.run_id)
        assert view.waiting_for == f"room: its {owner} has as many runs at once as it may"
        await _cap(harness, owner, None)
    harness.engine.open("a")
    await slot


async def test_without_caps_a_claim_is_one_statement(harness: Harness):
    worker = harness.worker()
    await harness.submit("hello")
    await harness.settle(worker)
    assert worker.faults.log.count("claim") == 1
    assert "lock_caps" not in worker.faults.log
    assert "spent" not in worker.faults.log
