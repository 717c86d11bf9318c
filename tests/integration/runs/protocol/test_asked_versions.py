"""Runs that ask for a version of their agent, which need not be the current one."""

from __future__ import annotations

import pytest

from nova_workers.base.errors import NotFound
from nova_workers.contracts.installs import Installation, InstalledCode
from nova_workers.contracts.runs import Claim
from nova_workers.domain.runs.sql.claim import claim_next
from tests.support.harness.workers import AGENT, Harness

_SHOP = Installation((InstalledCode(name="project:shop", version="1.0", code="abc"),))
_CODE = Installation((InstalledCode(name="shop", code="abc"),))


async def _change(harness: Harness, agent_id: str, version: int, spec: dict[str, object]) -> None:
    """Give an agent its next version."""
    values = {"tenant_id": harness.tenant_id, "agent_id": agent_id, "version": version, "spec": spec}
    await harness.database.execute(
        "UPDATE agents SET version = :version, spec = :spec WHERE tenant_id = :tenant_id AND id = :agent_id", **values
    )
    await harness.database.execute(
        "INSERT INTO agent_versions (tenant_id, agent_id, version, spec)"
        " VALUES (:tenant_id, :agent_id, :version, :spec)",
        **values,
    )


async def _two_versions(harness: Harness, first: dict[str, object], second: dict[str, object]) -> None:
    await harness.add_agent("shopper", {"name": "shopper", "engine": AGENT, **first})
    await _change(harness, "shopper", 2, {"name": "shopper", "engine": AGENT, **second})


async def _claim(harness: Harness, thread_id: str, installation: Installation) -> Claim | object:
    async with harness.database.connection() as connection:
        return await claim_next(
            connection,
            thread_id,
            worker_id="wkr_1",
            lease_ttl_s=30,
            max_attempts=5,
            installation=installation,
            caps_locked=True,
        )


async def test_a_run_uses_the_version_that_it_asks_for_and_the_next_one_the_current(harness: Harness):
    await _two_versions(harness, {"model": "first"}, {"model": "second"})
    worker = harness.worker()
    asking = await harness.submit("hello", agent_id="shopper", asked_version=1)
    following = await harness.submit("hello again", asking.thread_id)
    await harness.settle(worker)
    assert [(await harness.run(run.run_id))["agent_version"] for run in (asking, following)] == [1, 2]
    versions = await harness.database.fetch("SELECT agent_version FROM turns ORDER BY depth")
    assert [row["agent_version"] for row in versions] == [1, 2]


async def test_a_version_that_never_was_is_refused_and_leaves_nothing(harness: Harness):
    with pytest.raises(NotFound, match="version 7"):
        await harness.submit("hello", asked_version=7)
    assert await harness.database.fetchval("SELECT count(*) FROM runs") == 0
    assert await harness.database.fetchval("SELECT count(*) FROM threads") == 0


@pytest.mark.parametrize("asked", [1, 2, None])
async def test_a_run_goes_to_workers_with_the_code_of_its_version(harness: Harness, asked: int | None):
    await _two_versions(harness, {"capabilities": {"project:shop": {}}}, {})
    accepted = await harness.submit("hello", agent_id="shopper", asked_version=asked)
    plain = await _claim(harness, accepted.thread_id, Installation(()))
    assert isinstance(plain, Claim) == (asked != 1)
    if asked == 1:
        claim = await _claim(harness, accepted.thread_id, _SHOP)
        assert isinstance(claim, Claim)
        assert "project:shop" in claim.agent.capabilities


async def test_a_run_is_executed_by_the_code_of_the_version_that_it_asks_for(harness: Harness):
    code = {"engine": "code", "engine_config": {"agent": "shop:buy"}}
    await _two_versions(harness, {**code, "capabilities": {"project:other": {}}}, {})
    accepted = await harness.submit("hello", agent_id="shopper", asked_version=1)
    assert (await harness.run(accepted.run_id))["needs"] == ["code:shop", "project:other"]
    both = Installation((*_CODE.codes, InstalledCode(name="project:other", code="def")))
    assert isinstance(await _claim(harness, accepted.thread_id, both), Claim)
    assert (await harness.run(accepted.run_id))["code_version"] == "code:shop@abc"
