"""Budgets that several runs share: each model call is reserved before it is made, so no run exceeds them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from nova_workers.base.errors import EngineFailure
from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.runs import Accepted, Claim
from nova_workers.contracts.usage import CallBound, TokenPrice, TokenUsage
from nova_workers.domain.runs.rules.turns.budgets import TurnAllowance
from nova_workers.domain.runs.sql.claim import claim_next
from nova_workers.domain.threads.rules.lease import HeldRun
from tests.requirements import proves
from tests.support.harness.planned_engine import USAGE, plan
from tests.support.harness.workers import AGENT, Harness

_CALL_USD = USAGE.cost_usd or 0.0


async def _set(harness: Harness, owner: str, most_usd: float) -> str | None:
    """Set the ceiling of the tenant, or a budget of the day; return the trigger's id."""
    values: dict[str, Any] = {"tenant_id": harness.tenant_id, "usd": most_usd}
    match owner:
        case "ceiling":
            ceilings = {"max_cost_usd_per_day": most_usd, "engines": [AGENT], "sandbox": False}
            await harness.database.execute(
                "UPDATE tenants SET ceilings = :ceilings WHERE id = :tenant_id",
                tenant_id=harness.tenant_id,
                ceilings=ceilings,
            )
        case "tenant":
            await harness.database.execute(
                "UPDATE tenants SET max_cost_usd_per_day = :usd::float8 WHERE id = :tenant_id", **values
            )
        case "agent":
            await harness.database.execute(
                "UPDATE agents SET spec = spec || jsonb_build_object('max_cost_usd_per_day', :usd::float8)"
                " WHERE tenant_id = :tenant_id",
                **values,
            )
        case _:
            await harness.database.execute(
                "INSERT INTO triggers (id, tenant_id, agent_id, kind, schedule, prompt, created_by,"
                " max_cost_usd_per_day)"
                " VALUES ('trg_1', :tenant_id, :agent_id, 'every', '3600', 'Work.', 'person', :usd::float8)",
                **values,
                agent_id=AGENT,
            )
            return "trg_1"
    return None


async def _spent(harness: Harness) -> float:
    return await harness.database.fetchval("SELECT sum(cost_usd)::float8 FROM turns")


async def _reserved(harness: Harness, run: Accepted) -> float | None:
    return await harness.database.fetchval(
        "SELECT t.reserved_usd::float8 FROM turns t WHERE t.run_id = :run_id", run_id=run.run_id
    )


async def _claimed(harness: Harness) -> tuple[Accepted, TurnAllowance]:
    run = await harness.submit("hello")
    async with harness.database.connection() as connection:
        claim = await claim_next(
            connection, run.thread_id, worker_id="wkr_1", lease_ttl_s=60.0, max_attempts=3, caps_locked=True
        )
    assert isinstance(claim, Claim)
    allowance = TurnAllowance.of(harness.database, HeldRun(claim, "token", AbortSignal(), renewed_s=0.0))
    assert allowance is not None
    return run, allowance


@pytest.mark.parametrize("owner", ["ceiling", "tenant", "agent", "trigger"])
@proves("budgets.reserved")
async def test_runs_side_by_side_on_two_workers_do_not_exceed_a_budget(harness: Harness, owner: str):
    trigger_id = await _set(harness, owner, 3.5 * _CALL_USD)
    workers = harness.worker(), harness.worker()
    doors = [f"late {at}" for at in range(8)]
    runs = [await harness.submit(plan(doors={0: door}), trigger_id=trigger_id) for door in doors]
    slots = [workers[at % 2].answer(bell) for at, bell in enumerate(harness.bells.take())]
    blocked = [asyncio.create_task(harness.engine.reached(door, harness.patience_s)) for door in doors]
    reached = asyncio.as_completed(blocked)
    for _ in range(3):
        await next(reached)
    await stop_tasks(blocked)
    for door in doors:
        harness.engine.open(door)
    await asyncio.gather(*slots)
    rows = [await harness.run(run.run_id) for run in runs]
    assert len(harness.engine.model_calls) == 3
    assert await _spent(harness) == pytest.approx(3 * _CALL_USD)
    assert sorted(row["status"] for row in rows) == ["failed"] * 5 + ["succeeded"] * 3
    refused = [row["error_message"] for row in rows if row["status"] == "failed"]
    assert {row["error_kind"] for row in rows} == {None, "budget_exceeded"}
    assert all(f"${3 * _CALL_USD:.4f}" in why and f"may cost ${_CALL_USD:.4f}" in why for why in refused), refused


@proves("budgets.reserved")
async def test_the_reservation_of_a_killed_worker_is_void(harness: Harness):
    await _set(harness, "ceiling", 1.5 * _CALL_USD)
    lost, other = harness.worker(), harness.worker()
    killed, _ = await harness.begin(lost, plan(doors={0: "never"}), "never")
    assert await _reserved(harness, killed) == pytest.approx(_CALL_USD)
    run = await harness.submit("hello")
    slot = await harness.start_next(other)
    await lost.crash()
    # The call of the other run waits for that of the killed one.
    await harness.until(run.run_id, "running")
    await harness.recover()
    await slot
    assert await harness.status(run.run_id) == "succeeded"
    await harness.settle(other)
    row = await harness.run(killed.run_id)
    assert (row["status"], row["error_kind"]) == ("failed", "budget_exceeded")
    assert await _spent(harness) == pytest.approx(_CALL_USD)


@proves("budgets.reserved")
async def test_a_commit_replaces_the_reservation_and_a_turn_without_rest_ends_there(harness: Harness):
    await _set(harness, "ceiling", 2.5 * _CALL_USD)
    worker = harness.worker()
    run, slot = await harness.begin(worker, plan(["x"], ["wait:tool"], ["z"]), "tool")
    # The response is committed before its tools run.
    assert await _reserved(harness, run) is None
    assert await _spent(harness) == pytest.approx(2 * _CALL_USD)
    harness.engine.open("tool")
    await slot
    row = await harness.run(run.run_id)
    assert (row["status"], row["limit_reached"], row["stop_reason"]) == ("succeeded", "cost", "max_tokens")
    assert await _spent(harness) == pytest.approx(2 * _CALL_USD)


@pytest.mark.parametrize(("age", "refused"), [("2 seconds", True), ("2 hours", True), ("25 hours", False)])
@proves("budgets.reserved")
async def test_what_was_spent_counts_whenever_it_was(harness: Harness, age: str, refused: bool):
    await _set(harness, "ceiling", 2.5 * _CALL_USD)
    # Too much for a call, and too little for the check at the start of the turn.
    await harness.database.execute(
        "INSERT INTO usage (id, tenant_id, turn_id, thread_id, agent_id, cost_usd, created_at)"
        " VALUES ('use_1', :tenant_id, 'turn_1', 'thr_1', :agent_id, :usd::float8, now() - :age::text::interval)",
        tenant_id=harness.tenant_id,
        agent_id=AGENT,
        usd=2 * _CALL_USD,
        age=age,
    )
    run = await harness.submit("hello")
    await harness.settle(harness.worker())
    assert (await harness.run(run.run_id))["error_kind"] == ("budget_exceeded" if refused else None)


@proves("budgets.reserved")
async def test_a_reservation_of_a_former_claim_does_not_count(harness: Harness):
    await _set(harness, "ceiling", 1.5 * _CALL_USD)
    lost, worker = harness.worker(), harness.worker()
    killed, _ = await harness.begin(lost, plan(doors={0: "never"}), "never")
    await lost.crash()
    await harness.recover()
    # Claimed again, and not at its call yet.
    await harness.database.execute(
        "UPDATE runs SET status = 'running', fence = fence + 1, lease_expires_at = now() + interval '1 hour'"
        " WHERE id = :run_id",
        run_id=killed.run_id,
    )
    harness.bells.take()
    run = await harness.submit("hello")
    await harness.settle(worker)
    assert await harness.status(run.run_id) == "succeeded"


async def test_a_run_without_budgets_makes_no_further_statement(harness: Harness):
    worker = harness.worker()
    run = await harness.submit(plan(["x"]))
    await harness.settle(worker)
    fence = await harness.database.fetchval(
        "SELECT reserved_fence FROM turns WHERE run_id = :run_id", run_id=run.run_id
    )
    assert fence is None


@proves("budgets.reserved")
async def test_calls_of_subagents_are_reserved_together(harness: Harness):
    await _set(harness, "ceiling", 2.5)
    run, allowance = await _claimed(harness)
    nested = allowance.nested()
    bound = CallBound("planned-1", 0, 10, 10, TokenPrice(0.0, 0.1))
    first, second = await asyncio.gather(nested.reserve(bound), nested.reserve(bound))
    assert await _reserved(harness, run) == pytest.approx(2.0)
    # At once, since the step that commits it may take long.
    await first.settle(TokenUsage(output_tokens=2, cost_usd=0.2))
    assert await _reserved(harness, run) == pytest.approx(1.2)
    second.drop(TokenUsage())
    await allowance.reserve(bound)
    assert await _reserved(harness, run) == pytest.approx(1.2)
    with pytest.raises(EngineFailure, match="price of model 'odd' is not known"):
        await allowance.reserve(replace(bound, model="odd", price=None))


@proves("budgets.reserved")
async def test_a_call_does_not_wait_for_what_another_run_has_used_and_not_committed(harness: Harness):
    await _set(harness, "ceiling", 1.2)
    bound = CallBound("planned-1", 0, 10, 4, TokenPrice(0.0, 0.1))
    runs = [(await _claimed(harness))[1].nested() for _ in range(2)]
    for run in runs:
        call = await run.reserve(bound)
        await call.settle(TokenUsage(output_tokens=4, cost_usd=0.4))
        bound = replace(bound, output_tokens=8)
    # Each may produce what both leave; neither waits until the other's step ends.
    async with asyncio.timeout(harness.patience_s):
        call = await runs[0].reserve(bound)
        assert call.output_tokens == 4
        await call.settle(TokenUsage(output_tokens=4, cost_usd=0.4))
        with pytest.raises(EngineFailure, match=r"has spent \$0.8000 in the last 24 hours"):
            await runs[1].reserve(bound)
