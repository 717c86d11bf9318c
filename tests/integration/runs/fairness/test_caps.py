"""Caps: never more runs at once than a tenant or an agent may have, and nobody who is held back is forgotten."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from nova_workers.contracts.runs import Accepted, Claim
from nova_workers.ledger.runs.reads import get_run
from nova_workers.runs.claiming import claim_run
from tests.requirements import proves
from tests.support.executor import AGENT, Floor
from tests.support.puppet import plan

Owner = Literal["tenant", "agent"]
_OWNERS: list[Owner] = ["tenant", "agent"]


async def _cap(floor: Floor, owner: Owner, most: int | None) -> None:
    if owner == "tenant":
        await floor.database.execute("UPDATE tenants SET max_running = $2 WHERE id = $1", floor.tenant_id, most)
    else:
        spec = {"name": AGENT, "engine": AGENT, "max_running": most}
        await floor.database.execute(
            "UPDATE agents SET spec = $3 WHERE tenant_id = $1 AND id = $2", floor.tenant_id, AGENT, spec
        )


async def _statuses(floor: Floor, runs: list[Accepted]) -> list[str]:
    return [await floor.status(run.run_id) for run in runs]


@pytest.mark.parametrize("owner", _OWNERS)
@proves("fair.cap")
async def test_of_claims_at_the_same_time_as_many_win_as_the_cap_lets(floor: Floor, owner: Owner):
    """No lock of Redis and no order: what holds is what the claim itself looks at."""
    await _cap(floor, owner, 3)
    runs = [await floor.submit("hello") for _ in range(12)]

    async def claim(run: Accepted) -> Claim | None:
        return await claim_run(floor.database, run.thread_id, worker_id="wkr", runs=floor.settings.runs)

    for _ in range(5):
        won = [claim for claim in await asyncio.gather(*map(claim, runs)) if claim is not None]
        assert len(won) == 3
        assert all(claim.capped for claim in won)
        assert [await claim(run) for run in runs] == [None] * 12
        await floor.database.execute("UPDATE runs SET status = 'queued', lease_expires_at = NULL")
        await floor.database.execute("UPDATE threads SET active_run_id = NULL")


@pytest.mark.parametrize("owner", _OWNERS)
@proves("fair.cap-freed")
async def test_the_end_of_a_run_wakes_one_that_was_held_back(floor: Floor, owner: Owner):
    await _cap(floor, owner, 1)
    worker = floor.worker()
    first, slot = await floor.begin(worker, plan(["wait:a"]), "a")
    held = [await floor.submit("hello") for _ in range(4)]
    await floor.settle(worker)
    assert await _statuses(floor, [first, *held]) == ["running"] + ["queued"] * 4
    floor.puppet.open("a")
    await slot
    assert len(floor.bells.waiting) == 1, "one has ended, one may begin"
    await floor.settle(worker)
    assert await _statuses(floor, held) == ["succeeded"] * 4


@proves("fair.cap-freed", "suspend.holds-nothing")
async def test_a_run_that_waits_makes_room(floor: Floor):
    await _cap(floor, "tenant", 1)
    worker = floor.worker()
    asking = await floor.submit(plan(["ask:x"]))
    held = await floor.submit("hello")
    await worker.answer(floor.bells.take()[0])
    await floor.settle(worker)
    assert await _statuses(floor, [asking, held]) == ["waiting", "succeeded"]


@proves("fair.cap-freed")
async def test_an_agent_that_may_have_one_run_asks_itself(floor: Floor):
    """What waits for its own kind holds no room, so a cap of one is no deadlock."""
    await _cap(floor, "agent", 1)
    worker = floor.worker()
    run = await floor.submit(plan(["agent:x"]))
    await floor.settle(worker)
    assert await floor.status(run.run_id) == "succeeded"


@pytest.mark.parametrize("owner", _OWNERS)
@proves("fair.cap-freed")
async def test_where_the_worker_dies_at_the_end_the_reconciler_wakes_the_next(floor: Floor, owner: Owner):
    await _cap(floor, owner, 1)
    worker, other = floor.worker(), floor.worker()
    first, slot = await floor.begin(worker, plan(["wait:a"]), "a")
    held = [await floor.submit("hello") for _ in range(3)]
    await floor.settle(other)
    worker.tap.plan("crash_before", "entitled")
    floor.puppet.open("a")
    await slot
    assert await floor.status(first.run_id) == "succeeded"
    assert not floor.bells.waiting
    await floor.age_doorbells()
    assert (await floor.reconciler.reconcile()).rerung == 1, "as many as there is room for"
    assert (await floor.reconciler.reconcile()).rerung == 0, "once"
    await floor.settle(other)
    assert await _statuses(floor, held) == ["succeeded"] * 3


@proves("fair.cap-freed")
async def test_nobody_is_rung_for_under_a_full_cap_and_all_once_it_is_gone(floor: Floor):
    await _cap(floor, "tenant", 1)
    worker = floor.worker()
    _, slot = await floor.begin(worker, plan(["wait:a"]), "a")
    held = [await floor.submit("hello") for _ in range(3)]
    floor.bells.take()
    await floor.age_doorbells()
    assert (await floor.reconciler.reconcile()).rerung == 0
    await _cap(floor, "tenant", None)
    assert (await floor.reconciler.reconcile()).rerung == 3
    await floor.settle(worker)
    assert await _statuses(floor, held) == ["succeeded"] * 3
    floor.puppet.open("a")
    await slot


@pytest.mark.parametrize("dies", [False, True])
@proves("fair.cap-freed")
async def test_a_long_line_on_one_thread_holds_no_other_thread_back(floor: Floor, dies: bool):
    await _cap(floor, "agent", 2)
    worker = floor.worker()
    long, first = await floor.begin(worker, plan(["wait:a"]), "a")
    _, second = await floor.begin(worker, plan(["wait:b"]), "b")
    # Doorbells for them were rung at this moment.
    await floor.database.execute(
        "INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content)"
        """ SELECT 'run_' || i, tenant_id, id, agent_id, next_seq + i, '[{"type": "text", "text": "more"}]'"""
        " FROM threads, generate_series(1, 300) i WHERE id = $1",
        long.thread_id,
    )
    held = await floor.submit("hello")
    await floor.settle(worker)
    assert await floor.status(held.run_id) == "queued"
    if dies:
        worker.tap.plan("crash_before", "entitled")
    floor.puppet.open("b")
    await second
    assert len(floor.bells.waiting) == (0 if dies else 1)
    if dies:
        await floor.database.execute("UPDATE runs SET rang_at = now() - interval '1 hour' WHERE id = $1", held.run_id)
        assert (await floor.reconciler.reconcile()).rerung == 1
    await floor.settle(floor.worker())
    assert await floor.status(held.run_id) == "succeeded"
    floor.puppet.open("a")
    await first


async def test_a_canceled_run_is_ended_although_the_cap_is_full(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    lost, _ = await floor.begin(worker, plan(["wait:a"]), "a")
    await worker.crash()
    await floor.recover()
    floor.bells.take()
    _, slot = await floor.begin(other, plan(["wait:b"]), "b")
    await _cap(floor, "tenant", 1)
    await floor.canceller.cancel(floor.tenant_id, lost.run_id)
    await floor.age_doorbells()
    await floor.reconciler.reconcile()
    await floor.settle(other)
    assert await floor.status(lost.run_id) == "canceled"
    floor.puppet.open("b")
    await slot


async def test_who_is_held_back_is_told_why(floor: Floor):
    worker = floor.worker()
    _, slot = await floor.begin(worker, plan(["wait:a"]), "a")
    held = await floor.submit("hello")
    for owner in _OWNERS:
        await _cap(floor, owner, 1)
        async with floor.database.connection() as connection:
            view = await get_run(connection, floor.tenant_id, held.run_id)
        assert view.waiting_for == f"room: its {owner} has as many runs at once as it may"
        await _cap(floor, owner, None)
    floor.puppet.open("a")
    await slot


async def test_without_caps_a_claim_is_one_statement(floor: Floor):
    worker = floor.worker()
    await floor.submit("hello")
    await floor.settle(worker)
    assert worker.tap.log.count("claim") == 1
    assert "lock_caps" not in worker.tap.log
    assert "spent" not in worker.tap.log
