"""A person decides on the outcome of an order, if its policy requires that."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from nova_workers.base.errors import Conflict, InvalidInput, NotFound
from nova_workers.contracts.engine import EngineError
from nova_workers.contracts.orders import AiWorkResultV1, EngineConstraints
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.orders.sql.records import lock_order
from tests.support.harness.orders import OrderDesk, critique, policy, proposal

UNSURE: Any = {"escalation": {"belowConfidence": 0.5, "stopReasons": ["provider_failed"]}}


async def _in_review(desk: OrderDesk) -> str:
    desk.engine.answers = {"craft": proposal("Unsure", 0.3)}
    return (await desk.run(policy(**UNSURE))).trace_id


async def test_a_proposal_that_the_policy_is_unsure_of_waits_for_a_person(desk: OrderDesk) -> None:
    trace_id = await _in_review(desk)
    result = await desk.result(trace_id, drafts=True)
    assert (result.status, result.stop_reason, result.needs_human) == ("in_progress", "needs_human", True)
    assert (await desk.result(trace_id)) == result.model_copy(update={"artifacts": []})
    assert [each.to_wire()["payload"]["value"] for each in result.artifacts] == ["Unsure"]
    row = await desk.database.fetchrow("SELECT kind, target, payload FROM deliveries")
    assert row is not None
    assert (row["kind"], row["target"], row["payload"]["trace_id"]) == ("work_order_review", "user", trace_id)


@pytest.mark.parametrize("cap", ["rounds", "cost"])
async def test_an_unsure_proposal_waits_for_a_person_also_if_a_cap_ends_the_order(desk: OrderDesk, cap: str) -> None:
    desk.engine.answers = {"craft": proposal("Unsure", 0.3), "critic": critique(approve=False)}
    if cap == "cost":
        desk.engine.usage = TokenUsage(input_tokens=10, output_tokens=10, cost_usd=0.6)
    limits = EngineConstraints(max_rounds=1 if cap == "rounds" else 3, cost_cap_usd=1.0)
    result = await desk.run(policy({"craft": "craft", "critic": "review"}, **UNSURE), desk.order(constraints=limits))
    assert (result.status, result.stop_reason, result.needs_human) == ("in_progress", "needs_human", True)
    row = await desk.row(result.trace_id)
    assert (row.state, row.stop_reason) == ("review", "round_cap_exceeded" if cap == "rounds" else "cost_cap_exceeded")
    ended = await desk.reviews.decide(desk.tenant_id, result.trace_id, "approve", payload=None, by="key_1")
    assert (ended.status, len(ended.artifacts)) == ("succeeded", 1)


async def test_how_sure_a_policy_is_depends_on_the_proposal_that_is_shown(desk: OrderDesk) -> None:
    desk.engine.answers = {"a": proposal("run_01JZ0000000000000000000000", 0.9), "b": proposal("Unsure", 0.3)}
    result = await desk.run(policy({"a": "craft", "b": "craft"}, **UNSURE))
    assert result.needs_human
    left_out = await desk.database.fetchval(
        "SELECT data->'leftOut' FROM work_order_trail WHERE audience = 'internal' AND event = 'review_requested'"
    )
    assert left_out == [{"path": "artifacts.0", "rule": "it contains an id of an internal record"}]


async def test_an_approval_ends_the_order_with_the_proposal(desk: OrderDesk) -> None:
    trace_id = await _in_review(desk)
    await desk.reviews.decide(desk.tenant_id, trace_id, "approve", payload=None, by="key_1")
    result = await desk.result(trace_id)
    assert (result.status, result.stop_reason, result.needs_human) == ("succeeded", "ok", False)
    assert [each.to_wire()["payload"]["value"] for each in result.artifacts] == ["Unsure"]
    assert (await desk.row(trace_id)).data_key is None


async def test_an_edit_replaces_the_proposal_if_it_fits_the_schema_and_is_safe(desk: OrderDesk) -> None:
    trace_id = await _in_review(desk)
    payload = orjson.loads(proposal("Edited"))
    for wrong in ({"targetKey": 1}, {**payload, "value": "password: hunter2hunter2"}):
        with pytest.raises(InvalidInput, match="payload"):
            await desk.reviews.decide(desk.tenant_id, trace_id, "edit", payload=wrong, by="key_1")
    await desk.reviews.decide(desk.tenant_id, trace_id, "edit", payload=payload, by="key_1")
    result = await desk.result(trace_id)
    assert result.stop_reason == "ok"
    assert [each.to_wire()["payload"]["value"] for each in result.artifacts] == ["Edited"]


async def test_an_edit_is_checked_before_it_locks_the_order(desk: OrderDesk) -> None:
    trace_id = await _in_review(desk)
    async with desk.database.transaction() as connection:
        await lock_order(connection, trace_id)
        edit = desk.reviews.decide(desk.tenant_id, trace_id, "edit", payload={"targetKey": 1}, by="key_1")
        with pytest.raises(InvalidInput, match="payload"):
            await asyncio.wait_for(edit, 60)


async def test_a_rejection_ends_the_order_without_a_proposal(desk: OrderDesk) -> None:
    trace_id = await _in_review(desk)
    await desk.reviews.decide(desk.tenant_id, trace_id, "reject", payload=None, by="key_1")
    result = await desk.result(trace_id)
    assert (result.status, result.stop_reason, result.needs_human) == ("failed", "needs_human", False)
    assert result.artifacts == []


async def test_of_concurrent_decisions_one_counts(desk: OrderDesk) -> None:
    trace_id = await _in_review(desk)
    decided = await asyncio.gather(
        *(
            desk.reviews.decide(desk.tenant_id, trace_id, verdict, payload=None, by="key_1")
            for verdict in ("approve", "reject", "approve")
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(each, AiWorkResultV1) for each in decided) == 1
    assert sum(isinstance(each, Conflict) for each in decided) == 2


async def test_a_failure_that_the_policy_escalates_has_nothing_to_approve(desk: OrderDesk) -> None:
    desk.engine.answers = {"craft": EngineError("model_error", "Down", retryable=False)}
    trace_id = (await desk.run(policy(**UNSURE))).trace_id
    with pytest.raises(Conflict, match="no proposal"):
        await desk.reviews.decide(desk.tenant_id, trace_id, "approve", payload=None, by="key_1")


async def test_another_tenant_cannot_decide(desk: OrderDesk) -> None:
    trace_id = await _in_review(desk)
    with pytest.raises(NotFound):
        await desk.reviews.decide("ten_other", trace_id, "approve", payload=None, by="key_1")
    with pytest.raises(NotFound):
        await desk.reviews.decide("ten_other", trace_id, "edit", payload=orjson.loads(proposal("Edited")), by="key_1")


async def test_a_review_that_takes_too_long_fails_the_order(desk: OrderDesk) -> None:
    trace_id = await _in_review(desk)
    await desk.database.execute("UPDATE work_orders SET review_due_at = now() - interval '1 second'")
    await desk.ticker.tick()
    result = await desk.result(trace_id)
    assert (result.status, result.stop_reason, result.needs_human) == ("failed", "needs_human", False)
