"""Pauses: what is queued keeps, nothing new starts."""

from __future__ import annotations

from typing import Literal

import pytest

from nova_workers.ledger.runs.fleet import Switch, pause, resume, waiting_front
from tests.requirements import proves
from tests.support.executor import AGENT, Floor
from tests.support.puppet import plan

_SCOPES: list[Literal["fleet", "tenant", "agent"]] = ["fleet", "tenant", "agent"]


@pytest.mark.parametrize("scope", _SCOPES)
@proves("pause.scopes", "pause.resume")
async def test_what_is_queued_under_a_pause_runs_after_the_resume(
    floor: Floor, scope: Literal["fleet", "tenant", "agent"]
):
    worker = floor.worker()
    switch = Switch(scope, floor.tenant_id, AGENT)
    async with floor.database.connection() as connection:
        await pause(connection, switch, "maintenance")
    run = await floor.submit("hello")
    await floor.settle(worker)
    await floor.age_doorbells()
    assert (await floor.reconciler.reconcile()).rerung == 0
    assert await floor.status(run.run_id) == "queued"
    async with floor.database.connection() as connection:
        assert await resume(connection, switch)
        floor.bells.ring_runs(await waiting_front(connection, switch, limit=10))
    await floor.settle(worker)
    assert await floor.status(run.run_id) == "succeeded"


async def test_a_pause_of_another_agent_or_tenant_holds_nobody_else_back(floor: Floor):
    worker = floor.worker()
    async with floor.database.connection() as connection:
        await pause(connection, Switch("agent", floor.tenant_id, "scripted"), None)
        await pause(connection, Switch("agent", "ten_2", AGENT), None)
        await pause(connection, Switch("tenant", "ten_2"), None)
    run = await floor.submit("hello")
    await floor.settle(worker)
    assert await floor.status(run.run_id) == "succeeded"


async def test_a_run_that_runs_when_the_pause_comes_goes_on(floor: Floor):
    worker = floor.worker()
    run, slot = await floor.begin(worker, plan(["wait:a"], ["more"]), "a")
    async with floor.database.connection() as connection:
        await pause(connection, Switch("fleet", ""), None)
    floor.puppet.open("a")
    await slot
    assert await floor.status(run.run_id) == "succeeded"


async def test_a_canceled_run_is_ended_under_a_pause_and_the_reconciler_sees_to_it(floor: Floor):
    worker, other = floor.worker(), floor.worker()
    first = await floor.submit("first")
    await floor.settle(worker)
    run, _ = await floor.begin(worker, plan(["wait:a"]), "a", thread_id=first.thread_id)
    queued = await floor.submit("later", first.thread_id)
    await worker.crash()
    await floor.recover()
    async with floor.database.connection() as connection:
        await pause(connection, Switch("fleet", ""), None)
    await floor.canceller.cancel(floor.tenant_id, run.run_id)
    floor.bells.take()
    await floor.age_doorbells()
    await floor.reconciler.reconcile()
    await floor.settle(other)
    assert [await floor.status(each.run_id) for each in (run, queued)] == ["canceled", "queued"]
