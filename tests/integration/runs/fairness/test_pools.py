"""Pools: workers that execute runs of some tenants, and nothing else."""

from __future__ import annotations

import pytest

from nova_workers.base.keys import broker_queue
from nova_workers.contracts.agents import Ceilings
from nova_workers.contracts.engine import TrustLevel
from nova_workers.contracts.runs import Accepted
from tests.requirements import proves
from tests.support.harness.workers import AGENT, Harness, Worker

_POOL = "acme"
_OTHER = "ten_other"


async def _dedicate(harness: Harness, *, by_trust: bool = False) -> None:
    """Give the tenant of the harness a pool, itself or by its trust, and make another tenant without one."""
    given = Ceilings(engines=(AGENT,), trust="unrestricted") if by_trust else Ceilings(engines=(AGENT,), pool=_POOL)
    ceilings = given.model_dump(mode="json")
    if by_trust:
        pools = {"trust_pools": {"unrestricted": _POOL}}
        worker = harness.settings.worker.model_copy(update=pools)
        harness.settings = harness.settings.model_copy(update={"worker": worker})
    await harness.database.execute(
        "UPDATE tenants SET ceilings = :ceilings WHERE id = :tenant_id", ceilings=ceilings, tenant_id=harness.tenant_id
    )
    await harness.database.execute("INSERT INTO tenants (id, name) VALUES (:id, 'Other')", id=_OTHER)
    for table, columns in (("agents", "id, version"), ("agent_versions", "agent_id, version")):
        await harness.database.execute(
            f"INSERT INTO {table} (tenant_id, {columns}, spec) SELECT :other, {columns}, spec FROM {table}"
            " WHERE tenant_id = :tenant_id",
            other=_OTHER,
            tenant_id=harness.tenant_id,
        )


def _of_pool(harness: Harness) -> Worker:
    common = harness.settings
    harness.settings = common.model_copy(update={"worker": common.worker.model_copy(update={"pool": _POOL})})
    worker = harness.worker()
    harness.settings = common
    return worker


async def _other_run(harness: Harness) -> Accepted:
    return await harness.submit("hello", tenant_id=_OTHER)


@pytest.mark.parametrize("by_trust", [False, True])
@proves("pools.own")
async def test_runs_of_a_tenant_with_a_pool_are_executed_by_its_workers_only(
    harness: Harness, *, by_trust: bool
) -> None:
    await _dedicate(harness, by_trust=by_trust)
    common, dedicated = harness.worker(), _of_pool(harness)
    first = await harness.submit("hello")
    second = await harness.submit("again", thread_id=first.thread_id)
    (bell, _) = harness.bells.take()
    await common.answer(bell)
    assert await harness.status(first.run_id) == "queued"
    (forwarded,) = harness.bells.take()
    assert forwarded.queue == f"interactive.{_POOL}"
    await dedicated.answer(forwarded)
    assert await harness.status(first.run_id) == "succeeded"
    # The next run of the thread stays in the pool, without a common worker in between.
    assert {bell.queue for bell in harness.bells.waiting} == {f"interactive.{_POOL}"}
    await harness.settle(dedicated)
    row = await harness.run(second.run_id)
    assert (row["status"], row["worker_id"]) == ("succeeded", dedicated.name)


@pytest.mark.parametrize("trust", [None, "controlled"])
@proves("pools.own")
async def test_workers_of_a_pool_execute_no_run_of_another_tenant(harness: Harness, trust: TrustLevel | None) -> None:
    await _dedicate(harness, by_trust=trust is not None)
    if trust is not None:
        ceilings = Ceilings(engines=(AGENT,), trust=trust).model_dump(mode="json")
        await harness.database.execute(
            "UPDATE tenants SET ceilings = :ceilings WHERE id = :id", ceilings=ceilings, id=_OTHER
        )
    dedicated = _of_pool(harness)
    other = await _other_run(harness)
    (bell,) = harness.bells.take()
    await dedicated.answer(bell.in_pool(_POOL))
    assert await harness.status(other.run_id) == "queued"
    assert [bell.queue for bell in harness.bells.take()] == ["interactive"]


@pytest.mark.parametrize("by_trust", [False, True])
async def test_a_backlog_of_common_runs_keeps_no_doorbell_of_a_pool(harness: Harness, *, by_trust: bool) -> None:
    """A common worker serves another run for the doorbell, and announces the pool's run to the pool all the same."""
    await _dedicate(harness, by_trust=by_trust)
    common = harness.worker()
    mine, other = await harness.submit("hello"), await _other_run(harness)
    bell = next(bell for bell in harness.bells.take() if bell.run_id == mine.run_id)
    await harness.redis.lpush(broker_queue("interactive"), *["a doorbell"] * 9)  # type: ignore[misc] - redis types it as for both worlds
    await common.answer(bell)
    assert await harness.status(other.run_id) == "succeeded"
    assert await harness.status(mine.run_id) == "queued"
    assert [(bell.run_id, bell.queue) for bell in harness.bells.take()] == [(mine.run_id, f"interactive.{_POOL}")]


@proves("pools.own")
async def test_a_pool_that_the_ceilings_name_goes_before_that_of_their_trust(harness: Harness) -> None:
    await _dedicate(harness, by_trust=True)
    await harness.database.execute(
        """UPDATE tenants SET ceilings = ceilings || '{"pool": "of-its-own"}' WHERE id = :id""", id=harness.tenant_id
    )
    run = await harness.submit("hello")
    await harness.worker().answer(harness.bells.take()[0])
    assert [(bell.run_id, bell.queue) for bell in harness.bells.take()] == [(run.run_id, "interactive.of-its-own")]


async def test_a_canceled_run_of_a_pool_is_ended_by_any_worker(harness: Harness) -> None:
    await _dedicate(harness)
    common = harness.worker()
    run = await harness.submit("hello")
    await harness.database.execute("UPDATE runs SET cancel_requested_at = now() WHERE id = :id", id=run.run_id)
    await harness.settle(common)
    assert await harness.status(run.run_id) == "canceled"
