"""Pauses: queued runs stay queued, nothing new starts."""

from __future__ import annotations

from typing import Literal

import pytest

from nova_workers.domain.runs.sql.fleet import Switch, pause, resume
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import AGENT, Harness

_SCOPES: list[Literal["fleet", "tenant", "agent"]] = ["fleet", "tenant", "agent"]


@pytest.mark.parametrize("scope", _SCOPES)
@proves("pause.scopes", "pause.resume")
async def test_runs_queued_under_a_pause_run_after_the_resume(
    harness: Harness, scope: Literal["fleet", "tenant", "agent"]
):
    worker = harness.worker()
    switch = Switch(scope, harness.tenant_id, AGENT)
    async with harness.database.connection() as connection:
        await pause(connection, switch, "maintenance")
    run = await harness.submit("hello")
    await harness.settle(worker)
    await harness.age_doorbells()
    assert (await harness.reconciler.reconcile()).rerung == 0
    assert await harness.status(run.run_id) == "queued"
    async with harness.database.connection() as connection:
        bells = await resume(connection, switch)
    assert [bell.run_id for bell in bells] == [run.run_id]
    harness.bells.ring_runs(bells)
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded"


async def test_a_pause_of_another_agent_or_tenant_holds_no_other_back(harness: Harness):
    worker = harness.worker()
    async with harness.database.connection() as connection:
        await pause(connection, Switch("agent", harness.tenant_id, "scripted"), None)
        await pause(connection, Switch("agent", "ten_2", AGENT), None)
        await pause(connection, Switch("tenant", "ten_2"), None)
    run = await harness.submit("hello")
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded"


async def test_a_running_run_continues_under_a_pause(harness: Harness):
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(["wait:a"], ["more"]), "a")
    async with harness.database.connection() as connection:
        await pause(connection, Switch("fleet", ""), None)
    harness.engine.open("a")
    await slot
    assert await harness.status(run.run_id) == "succeeded"


async def test_the_reconciler_ends_a_canceled_run_under_a_pause(harness: Harness):
    worker, other = harness.worker(), harness.worker()
    first = await harness.submit("first")
    await harness.settle(worker)
    run, _ = await harness.begin(worker, plan(["wait:a"]), "a", thread_id=first.thread_id)
    queued = await harness.submit("later", first.thread_id)
    await worker.crash()
    await harness.recover()
    async with harness.database.connection() as connection:
        await pause(connection, Switch("fleet", ""), None)
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    harness.bells.take()
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    await harness.settle(other)
    assert [await harness.status(each.run_id) for each in (run, queued)] == ["canceled", "queued"]
