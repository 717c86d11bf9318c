"""A worker crashes at each of its writes: every order gets one result, and each part is charged once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import get_args

import pytest

from nova_workers.base.errors import Unavailable
from nova_workers.contracts.orders import PolicyDocument
from tests.requirements import proves
from tests.support.harness.fault_injection import Fault
from tests.support.harness.orders import OrderDesk, critique, policy, proposal
from tests.support.points import each_once

_WRITES = ("claim", "begin", "reserve", "end", "move", "insert_part", "finish", "add_trail")
_TREE = {"craft": "craft", "critic": "review", "general": "general"}


async def _check_one_result(desk: OrderDesk, trace_id: str) -> None:
    result = await desk.result(trace_id)
    assert result.stop_reason == "ok"
    assert [each.to_wire()["payload"]["value"] for each in result.artifacts] == ["Final"]
    parts = await desk.parts(trace_id)
    assert [(part.kind, part.stop_reason) for part in parts] == [
        ("craft", "ok"),
        ("review", "ok"),
        ("general", "ok"),
    ]
    charged = await desk.database.fetch(
        "SELECT u.run_id, u.input_tokens, u.cost_usd::float8 AS cost FROM usage u WHERE u.tenant_id = :tenant_id",
        tenant_id=desk.tenant_id,
    )
    assert sorted(row["run_id"] for row in charged) == sorted(part.run_id for part in parts)
    assert {row["input_tokens"] for row in charged} == {100}
    assert sum(row["cost"] for row in charged) == pytest.approx(0.03)
    assert sum(part.used_usd for part in parts) == pytest.approx(0.03)
    assert [part.calls for part in parts] == [1, 1, 1]
    ended = await desk.database.fetchval(
        "SELECT count(*) FROM work_order_trail"
        " WHERE order_id = :trace_id AND event = 'ended' AND audience = 'customer'",
        trace_id=trace_id,
    )
    assert ended == 1


@pytest.mark.parametrize(("write", "fault"), each_once(_WRITES, get_args(Fault)))
@proves("order.crash")
async def test_an_order_survives_a_fault_at_each_write(desk: OrderDesk, write: str, fault: Fault) -> None:
    desk.engine.answers = {"critic": critique(), "general": proposal("Final")}
    accepted = await desk.accept(desk.order(), policy(_TREE))
    failing, healthy = desk.harness.worker(), desk.harness.worker()
    failing.faults.plan(fault, write)
    async with asyncio.timeout(60):
        while (await desk.row(accepted.trace_id)).state == "running":
            worker = healthy if failing.faults.dead else failing
            # A claim whose reply was lost is repeated by the next doorbell.
            with suppress(Unavailable):
                await desk.settle(worker)
            await desk.harness.age_doorbells()
            await desk.harness.recover()
            await desk.ticker.tick()
    while await desk.harness.recover() or desk.harness.bells.waiting:
        await desk.settle(healthy)
    await _check_one_result(desk, accepted.trace_id)


async def _run_with_a_crash(desk: OrderDesk, bound: PolicyDocument, write: str) -> str:
    """Execute an order by a worker that crashes before a write, then by another one; return its id."""
    accepted = await desk.accept(desk.order(), bound)
    failing, healthy = desk.harness.worker(), desk.harness.worker()
    failing.faults.plan("crash_before", write)
    await desk.settle(failing)
    assert failing.faults.dead
    while await desk.harness.recover() or desk.harness.bells.waiting:
        await desk.settle(healthy)
    return accepted.trace_id


@proves("order.caps")
async def test_a_call_that_was_lost_with_its_worker_counts_for_the_caps(desk: OrderDesk) -> None:
    # Room for one call, and not for a second one.
    caps = {"maxRounds": 1, "costCapUsd": 1.0, "maxTokensTotal": 1_500, "timeoutMs": 60_000, "leastOutputTokens": 400}
    trace_id = await _run_with_a_crash(desk, policy(caps=caps), "end")
    assert (await desk.result(trace_id)).stop_reason == "cost_cap_exceeded"
    assert len(desk.engine.calls) == 1


async def test_the_figures_of_an_order_are_those_of_its_finished_calls_also_after_a_crash(desk: OrderDesk) -> None:
    desk.engine.answers = {"craft": ["no JSON", proposal("Lost"), proposal("Stored")]}
    trace_id = await _run_with_a_crash(desk, policy(), "end")
    result = await desk.result(trace_id, internal=True)
    assert len(desk.engine.calls) == 3
    assert result.extensions is not None
    assert result.extensions.meta is not None
    assert result.extensions.cost_breakdown is not None
    meta, costs = result.extensions.meta, result.extensions.cost_breakdown
    assert (meta.calls, meta.input_tokens, meta.output_tokens) == (2, 200, 100)
    assert meta.estimated_usd == pytest.approx(0.02)
    assert costs.total == pytest.approx(0.02)
    assert costs.by_model["craft"].calls == 2
    (charged,) = await desk.database.fetch("SELECT input_tokens, output_tokens, cost_usd::float8 FROM usage")
    assert tuple(charged) == (200, 100, pytest.approx(0.02))


async def test_a_reservation_whose_reply_was_lost_is_made_once(desk: OrderDesk) -> None:
    desk.engine.answers = {"craft": ["no JSON", proposal()]}
    accepted = await desk.accept(desk.order(), policy())
    worker = desk.harness.worker()
    worker.faults.plan("lose_reply", "reserve", nth=2)
    await desk.settle(worker)
    (part,) = await desk.parts(accepted.trace_id)
    assert (part.calls, part.used_tokens, part.used_usd) == (2, 300, pytest.approx(0.02))


async def test_a_call_that_finishes_after_the_end_of_its_order_is_charged(desk: OrderDesk) -> None:
    async def end() -> None:
        await desk.database.execute("UPDATE work_orders SET deadline_at = now() - interval '1 second'")
        await desk.ticker.tick()

    desk.engine.before = end
    accepted = await desk.accept(desk.order(), policy())
    await desk.settle()
    (part,) = await desk.parts(accepted.trace_id)
    assert (part.stop_reason, part.used_usd, part.model) == ("round_cap_exceeded", 0.01, "craft")
    assert await desk.database.fetchval("SELECT sum(input_tokens) FROM usage") == 100


async def test_a_part_whose_run_was_canceled_ends_with_the_tick(desk: OrderDesk) -> None:
    accepted = await desk.accept(desk.order(), policy())
    (part,) = await desk.parts(accepted.trace_id)
    await desk.harness.canceller.cancel(desk.tenant_id, part.run_id)
    desk.harness.bells.take()
    await desk.ticker.tick()
    result = await desk.result(accepted.trace_id)
    assert (result.status, result.stop_reason) == ("failed", "needs_human")
    assert (await desk.row(accepted.trace_id)).data_key is None


async def test_an_order_whose_time_is_over_ends_with_the_tick(desk: OrderDesk) -> None:
    accepted = await desk.accept(desk.order(), policy())
    await desk.database.execute("UPDATE work_orders SET deadline_at = now() - interval '1 second'")
    await desk.ticker.tick()
    result = await desk.result(accepted.trace_id)
    assert (result.status, result.stop_reason) == ("failed", "round_cap_exceeded")
    await desk.settle()
    assert not desk.engine.calls


async def test_an_order_that_nothing_can_decrypt_ends_and_asks_for_a_person(desk: OrderDesk) -> None:
    accepted = await desk.accept(desk.order(), policy())
    await desk.database.execute(
        "UPDATE work_orders SET data_key_id = 'lost', deadline_at = now() - interval '2 minutes'"
    )
    await desk.ticker.tick()
    result = await desk.result(accepted.trace_id)
    assert (result.status, result.stop_reason, result.needs_human) == ("failed", "needs_human", True)
