"""Runs that need code of users meet workers that have it, whatever doorbells and workers there are."""

from __future__ import annotations

import asyncio
import random

import pytest

from nova_workers.base.keys import broker_queue
from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.installs import Installation, InstalledCode
from nova_workers.contracts.runs import Accepted
from tests.requirements import proves
from tests.support.harness.workers import AGENT, Harness, Worker

SHOP = Installation((InstalledCode(name="project:shop", version="1.0", code="abc"),))


async def _needing(harness: Harness, count: int) -> list[Accepted]:
    """Submit runs of an agent with a project. They end as failed: no worker of a harness has the tools themselves."""
    spec = {"name": "shopper", "engine": AGENT, "capabilities": {"project:shop": {}}}
    await harness.add_agent("shopper", spec)
    return [await harness.submit("hello", agent_id="shopper") for _ in range(count)]


async def _with_shop(harness: Harness) -> Worker:
    worker = harness.worker()
    worker.executor.installs.installation = SHOP
    await worker.executor.installs.announce()
    return worker


async def _deliver(harness: Harness, chance: random.Random, *workers: Worker) -> None:
    """Deliver doorbells in any order, one by one, each to some worker that consumes its queue."""
    while harness.bells.waiting:
        bells = harness.bells.take()
        chance.shuffle(bells)
        for bell in bells:
            able = [each for each in workers if not bell.is_routed or bell.queue in each.executor.installs.queues]
            await chance.choice(able).answer(bell)


async def _claimed_by(harness: Harness, runs: list[Accepted]) -> set[str]:
    return {(await harness.run(run.run_id))["worker_id"] for run in runs}


@proves("projects.routed")
@pytest.mark.parametrize("seed", range(6))
async def test_every_run_is_executed_in_whatever_order_doorbells_reach_which_worker(harness: Harness, seed: int):
    """Half of the time with a backlog, in which a doorbell only means that a slot is free."""
    chance = random.Random(seed)
    plain, able = harness.worker(), await _with_shop(harness)
    if seed % 2:
        await harness.redis.lpush(broker_queue("interactive"), *["a doorbell"] * 100)  # type: ignore[misc] - redis types it as for both worlds
    others = [await harness.submit("hello") for _ in range(4)]
    needing = await _needing(harness, 4)
    others += [await harness.submit("hello") for _ in range(2)]
    await _deliver(harness, chance, plain, able)
    assert {await harness.status(run.run_id) for run in others} == {"succeeded"}
    assert {await harness.status(run.run_id) for run in needing} == {"failed"}
    assert await _claimed_by(harness, needing) == {able.name}


@proves("projects.routed")
async def test_without_a_worker_that_has_the_project_runs_wait_silently_until_one_comes(harness: Harness):
    plain = harness.worker()
    needing = await _needing(harness, 3)
    others = [await harness.submit("hello") for _ in range(2)]
    await _deliver(harness, random.Random(0), plain)
    assert {await harness.status(run.run_id) for run in others} == {"succeeded"}
    assert {await harness.status(run.run_id) for run in needing} == {"queued"}
    # The reconciler does not ring for them again and again.
    await harness.reconciler.reconcile()
    assert not harness.bells.waiting
    assert await harness.database.fetchval("SELECT count(*) FROM runs WHERE rang_at = 'infinity'") == 3
    able = await _with_shop(harness)
    await harness.reconciler.reconcile()
    await _deliver(harness, random.Random(0), plain, able)
    assert await _claimed_by(harness, needing) == {able.name}


@proves("projects.routed")
async def test_a_run_that_began_needs_what_its_agent_needed_then(harness: Harness):
    able = await _with_shop(harness)
    [begun] = await _needing(harness, 1)
    await harness.database.execute(
        "UPDATE runs SET agent_version = 1, needs = '{project:shop}', attempt = 1 WHERE id = :run_id",
        run_id=begun.run_id,
    )
    await harness.database.execute("""UPDATE agents SET version = 2, spec = spec - 'capabilities'""")
    await _deliver(harness, random.Random(0), harness.worker(), able)
    assert await _claimed_by(harness, [begun]) == {able.name}


@proves("projects.routed")
async def test_a_worker_that_drains_is_rung_for_no_more(harness: Harness):
    draining = await _with_shop(harness)
    announcing = asyncio.create_task(draining.executor.installs.run())
    draining.executor.drain()
    await draining.executor.installs.withdraw()
    # The next of its regular announcements.
    await draining.executor.installs.announce()
    assert await harness.database.fetchval("SELECT count(*) FROM worker_installs") == 0
    needing = await _needing(harness, 1)
    await _deliver(harness, random.Random(0), harness.worker(), draining)
    assert await harness.database.fetchval("SELECT count(*) FROM runs WHERE rang_at = 'infinity'") == 1
    assert {await harness.status(run.run_id) for run in needing} == {"queued"}
    await stop_tasks([announcing])
