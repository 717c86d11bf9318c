"""Daily budgets: a run over one fails before a model call, with the figures; the rest bounds a turn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from nova_workers.base.ids import new_id
from nova_workers.domain.usage.sql.budgets import report_budgets, spent_today
from nova_workers.ledger.database import Row
from tests.requirements import proves
from tests.support.harness.planned_engine import USAGE, plan
from tests.support.harness.workers import AGENT, Harness

_TURN_USD = USAGE.cost_usd or 0.0


async def _set(harness: Harness, owner: str, most_usd: float | None) -> str | None:
    """Set the budget of a tenant, an agent or a trigger, and return the trigger's id."""
    if owner == "tenant":
        await harness.database.execute(
            "UPDATE tenants SET max_cost_usd_per_day = :max_cost_usd_per_day::float8 WHERE id = :tenant_id",
            tenant_id=harness.tenant_id,
            max_cost_usd_per_day=most_usd,
        )
    elif owner == "agent":
        spec = {"name": AGENT, "engine": AGENT, "max_cost_usd_per_day": most_usd}
        await harness.database.execute(
            "UPDATE agents SET spec = :spec WHERE tenant_id = :tenant_id AND id = :agent_id",
            tenant_id=harness.tenant_id,
            agent_id=AGENT,
            spec=spec,
        )
    else:
        await harness.database.execute(
            "INSERT INTO triggers (id, tenant_id, agent_id, kind, schedule, prompt, created_by, max_cost_usd_per_day)"
            " VALUES ('trg_1', :tenant_id, :agent_id, 'every', '3600', 'Work.', 'person',"
            " :max_cost_usd_per_day::float8)"
            " ON CONFLICT (id) DO UPDATE SET max_cost_usd_per_day = :max_cost_usd_per_day::float8",
            tenant_id=harness.tenant_id,
            agent_id=AGENT,
            max_cost_usd_per_day=most_usd,
        )
        return "trg_1"
    return None


async def _play(harness: Harness, text: str = "hello", **fields: Any) -> Row:
    worker = harness.worker()
    run = await harness.submit(text, **fields)
    await harness.settle(worker)
    return await harness.run(run.run_id)


@pytest.mark.parametrize("owner", ["tenant", "agent", "trigger"])
@proves("budgets.spent")
async def test_a_run_over_the_budget_fails_without_a_model_call(harness: Harness, owner: str):
    trigger_id = await _set(harness, owner, _TURN_USD)
    assert (await _play(harness, trigger_id=trigger_id))["status"] == "succeeded"
    asked = len(harness.engine.model_calls)
    row = await _play(harness, trigger_id=trigger_id)
    assert (row["status"], row["error_kind"], row["error_retryable"]) == ("failed", "budget_exceeded", False)
    assert f"${_TURN_USD:.4f} of ${_TURN_USD:.4f}" in row["error_message"]
    assert owner in row["error_message"]
    assert len(harness.engine.model_calls) == asked
    # No usage, so no cost is recorded.
    assert not await harness.database.fetchval("SELECT cost_usd FROM usage WHERE run_id = :run_id", run_id=row["id"])


async def test_other_agents_triggers_and_tenants_are_not_concerned(harness: Harness):
    await _set(harness, "agent", _TURN_USD)
    trigger_id = await _set(harness, "trigger", _TURN_USD)
    await harness.add_agent("other", {"name": "other", "engine": AGENT})
    assert (await _play(harness, trigger_id=trigger_id))["status"] == "succeeded"
    assert (await _play(harness))["status"] == "failed"
    assert (await _play(harness, agent_id="other"))["status"] == "succeeded"
    assert (await _play(harness, agent_id="other", trigger_id=trigger_id))["status"] == "failed"


@proves("budgets.rest")
async def test_a_turn_ends_when_the_rest_of_the_days_budget_is_spent(harness: Harness):
    await _set(harness, "tenant", _TURN_USD * 3)
    assert (await _play(harness))["status"] == "succeeded"
    row = await _play(harness, plan(["x"], ["y"], ["z"], ["more"]))
    assert row["limit_reached"] == "cost"
    async with harness.database.connection() as connection:
        spent = await spent_today(connection, harness.tenant_id, agent_id=AGENT)
    assert spent.tenant_usd == spent.agent_usd == pytest.approx(_TURN_USD * 3)


@proves("budgets.rest")
async def test_the_cost_of_running_turns_counts(harness: Harness):
    worker = harness.worker()
    _, slot = await harness.begin(worker, plan(["x"], ["y"], doors={2: "late"}), "late")
    await _set(harness, "tenant", _TURN_USD * 2)
    row = await _play(harness)
    assert row["error_kind"] == "budget_exceeded"
    harness.engine.open("late")
    await slot


@pytest.mark.parametrize("owner", ["tenant", "agent", "trigger"])
@proves("budgets.spent")
async def test_waiting_and_requeued_runs_count(harness: Harness, owner: str):
    trigger_id = await _set(harness, owner, _TURN_USD * 9)
    waiting = await _play(harness, plan(["ask:x"]), trigger_id=trigger_id)
    worker = harness.worker()
    again, _ = await harness.begin(worker, plan(["x"], ["y"], doors={1: "late"}), "late", trigger_id=trigger_id)
    await worker.crash()
    await harness.recover()
    harness.bells.take()
    assert [await harness.status(run_id) for run_id in (waiting["id"], again.run_id)] == ["waiting", "queued"]
    await _set(harness, owner, _TURN_USD * 2)
    row = await _play(harness, trigger_id=trigger_id)
    assert row["error_kind"] == "budget_exceeded"
    async with harness.database.connection() as connection:
        report = await report_budgets(connection, harness.tenant_id)
    assert {each.spent_usd for each in report.items} == {2 * _TURN_USD}
    # The run that is checked is left out; after its end it counts once.
    await _set(harness, owner, _TURN_USD * 4.5)
    harness.engine.open("late")
    harness.bells.ring_runs([again.doorbell])
    await harness.settle(harness.worker())
    row = await harness.run(again.run_id)
    assert (row["status"], row["limit_reached"]) == ("succeeded", None)
    async with harness.database.connection() as connection:
        report = await report_budgets(connection, harness.tenant_id)
    assert {each.spent_usd for each in report.items} == {4 * _TURN_USD}


async def test_a_run_that_only_waited_today_counts_for_the_day_before(harness: Harness):
    trigger_id = await _set(harness, "trigger", 1.0)
    run = await _play(harness, plan(["ask:x"]), trigger_id=trigger_id)
    for status, lease, counts in (("waiting", None, False), ("queued", None, False), ("running", "1 hour", True)):
        await harness.database.execute(
            "UPDATE runs SET status = :status, lease_expires_at = now() + :lease::text::interval,"
            " queued_at = now() - interval '25 hours' WHERE id = :run_id",
            run_id=run["id"], status=status, lease=lease,
        )  # fmt: skip
        async with harness.database.connection() as connection:
            spent = await spent_today(connection, harness.tenant_id, agent_id=AGENT, trigger_id=trigger_id)
        usd = _TURN_USD if counts else 0.0
        assert (spent.tenant_usd, spent.agent_usd, spent.trigger_usd) == (usd, usd, usd), status


@proves("budgets.day")
async def test_a_day_begins_at_midnight_of_the_tenants_time_zone(harness: Harness):
    # Of the zones that are far from here, one has another day than UTC at any time.
    now = datetime.now(UTC)
    for zone in ("Pacific/Kiritimati", "Pacific/Pago_Pago", "UTC"):
        await harness.database.execute(
            "UPDATE tenants SET timezone = :timezone WHERE id = :tenant_id", tenant_id=harness.tenant_id, timezone=zone
        )
        midnight = now.astimezone(ZoneInfo(zone)).replace(hour=0, minute=0, second=0, microsecond=0)
        await harness.database.execute("DELETE FROM usage")
        for at, cost in ((midnight - timedelta(seconds=1), 1.0), (midnight, 2.0), (now, 4.0)):
            await harness.database.execute(
                "INSERT INTO usage (id, tenant_id, turn_id, thread_id, agent_id, cost_usd, created_at)"
                " VALUES (:usage_id, :tenant_id, :turn_id, 'thr_1', :agent_id, :cost_usd::float8, :created_at)",
                usage_id=new_id("use"), tenant_id=harness.tenant_id, turn_id=new_id("turn"), agent_id=AGENT,
                cost_usd=cost, created_at=at,
            )  # fmt: skip
        async with harness.database.connection() as connection:
            spent = await spent_today(connection, harness.tenant_id, agent_id=AGENT)
        assert (spent.tenant_usd, spent.agent_usd) == (6.0, 6.0), zone
        assert spent.resets_at == midnight + timedelta(days=1), zone


@proves("budgets.ceiling")
async def test_a_tenant_does_not_reset_its_operators_ceiling_by_another_time_zone(harness: Harness):
    await harness.database.execute(
        "UPDATE tenants SET ceilings = :ceilings WHERE id = :tenant_id",
        tenant_id=harness.tenant_id,
        ceilings={"max_cost_usd_per_day": 1.0, "engines": [AGENT], "sandbox": False},
    )
    # An hour after midnight where the tenant goes, what was spent two hours ago was spent yesterday.
    zones = (f"Etc/GMT{offset:+d}" for offset in range(-14, 13))
    zone = next(zone for zone in zones if datetime.now(ZoneInfo(zone)).hour == 1)
    for age, status, spent in (("2 hours", "failed", 2.0), ("25 hours", "succeeded", 0.0)):
        await harness.database.execute("DELETE FROM usage")
        await harness.database.execute(
            "INSERT INTO usage (id, tenant_id, turn_id, thread_id, agent_id, cost_usd, created_at)"
            " VALUES (:usage_id, :tenant_id, :turn_id, 'thr_1', :agent_id, 2, now() - :age::text::interval)",
            usage_id=new_id("use"), tenant_id=harness.tenant_id, turn_id=new_id("turn"), agent_id=AGENT, age=age,
        )  # fmt: skip
        await harness.database.execute(
            "UPDATE tenants SET timezone = :zone WHERE id = :tenant_id", tenant_id=harness.tenant_id, zone=zone
        )
        async with harness.database.connection() as connection:
            report = await report_budgets(connection, harness.tenant_id)
        assert [(each.kind, each.max_usd, each.spent_usd) for each in report.items] == [
            ("tenant", None, 0.0),
            ("ceiling", 1.0, spent),
        ]
        row = await _play(harness)
        assert (row["status"], row["error_kind"]) == (status, "budget_exceeded" if status == "failed" else None)
    assert "in the last 24 hours" in (await _failed_message(harness))


async def _failed_message(harness: Harness) -> str:
    return await harness.database.fetchval("SELECT error_message FROM runs WHERE status = 'failed'")


async def test_budgets_are_reported_with_what_is_left(harness: Harness):
    trigger_id = await _set(harness, "trigger", 1.0)
    await _set(harness, "agent", 2 * _TURN_USD)
    await _play(harness, trigger_id=trigger_id)
    await _play(harness)
    async with harness.database.connection() as connection:
        report = await report_budgets(connection, harness.tenant_id)
    assert [(each.kind, each.max_usd, each.spent_usd, each.left_usd) for each in report.items] == [
        ("tenant", None, 2 * _TURN_USD, None),
        ("agent", 2 * _TURN_USD, 2 * _TURN_USD, 0.0),
        ("trigger", 1.0, _TURN_USD, 1.0 - _TURN_USD),
    ]
