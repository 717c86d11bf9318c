"""The ceilings of a tenant hold when a run begins, whatever was written before."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.contracts.agents import Ceilings, Enclosure
from nova_workers.contracts.engine import EngineOptions, EngineResult
from nova_workers.ledger.database import Row
from tests.requirements import proves
from tests.support.harness.workers import AGENT, Harness

_CHANGE = "UPDATE tenants SET ceilings = :ceilings WHERE id = :tenant_id"
_RAISE = "UPDATE agents SET spec = spec || :fields WHERE tenant_id = :tenant_id AND id = :agent_id"
_RAISE_VERSIONS = (
    "UPDATE agent_versions SET spec = spec || :fields WHERE tenant_id = :tenant_id AND agent_id = :agent_id"
)


async def _play(harness: Harness) -> Row:
    worker = harness.worker()
    run = await harness.submit("hello")
    await harness.settle(worker)
    return await harness.run(run.run_id)


async def _set(harness: Harness, ceilings: Ceilings | None) -> None:
    stored = None if ceilings is None else ceilings.model_dump(mode="json")
    await harness.database.execute(_CHANGE, ceilings=stored, tenant_id=harness.tenant_id)


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"trust": "unrestricted"}, "trust"), ({"directories": ["/root"]}, "directories.0"), ({}, "engine")],
)
@proves("ceilings.run")
async def test_an_agent_that_was_written_before_a_ceiling_was_lowered_is_held_by_it(
    harness: Harness, fields: dict[str, Any], named: str
) -> None:
    for statement in (_RAISE, _RAISE_VERSIONS):
        await harness.database.execute(statement, fields=fields, tenant_id=harness.tenant_id, agent_id=AGENT)
    assert (await _play(harness))["status"] == "succeeded"
    asked = len(harness.engine.model_calls)
    await _set(harness, Ceilings(engines=("anthropic",) if named == "engine" else None))
    row = await _play(harness)
    assert (row["status"], row["error_retryable"]) == ("failed", False)
    assert f" {named}: " in row["error_message"]
    assert "nova tenants ceilings" in row["error_message"]
    assert len(harness.engine.model_calls) == asked
    await _set(harness, Ceilings(trust="unrestricted", directories=("/root",)))
    assert (await _play(harness))["status"] == "succeeded"


async def test_the_ceiling_of_a_days_cost_holds_over_the_budget_that_a_tenant_sets(harness: Harness) -> None:
    assert (await _play(harness))["status"] == "succeeded"
    await _set(harness, Ceilings(max_cost_usd_per_day=0.000_001))
    row = await _play(harness)
    assert (row["status"], row["error_kind"]) == ("failed", "budget_exceeded")


async def test_a_turn_carries_the_bounds_of_its_tenant(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[EngineOptions] = []
    run = harness.engine.run

    async def noted(message: Any, options: EngineOptions, *rest: Any, **named: Any) -> EngineResult:
        seen.append(options)
        return await run(message, options, *rest, **named)

    monkeypatch.setattr(harness.engine, "run", noted)
    await _play(harness)
    await _set(harness, Ceilings(directories=("/srv/acme",), engines=(AGENT,), sandbox=False))
    await _play(harness)
    own = str(harness.settings.workspace_root / harness.tenant_id)
    assert [options.enclosure for options in seen] == [None, Enclosure((own, "/srv/acme"), sandbox=False)]
