"""A tree of agents on a fleet with one worker slot, whose only worker is killed again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nova_workers.base.vocabulary import ENDED_AGENTS
from nova_workers.contracts.http.started import Started
from nova_workers.contracts.orchestration import AgentDescriptor
from nova_workers.domain.orchestrations.rules.models.availability import FleetAvailability
from nova_workers.domain.orchestrations.rules.models.catalog import ModelCatalog, RankedModels
from nova_workers.domain.orchestrations.rules.planning import NewOrchestration
from nova_workers.domain.orchestrations.rules.service import Orchestrations
from nova_workers.domain.orchestrations.sql.agents import agents_of
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.support.harness.trees import call, complete, script
from tests.support.harness.workers import Doorbells
from tests.support.processes.fleet import Fleet

pytestmark = pytest.mark.fleet

_KILLED_AFTER = (0, 1, 3, 4)
"""Each time so many of the seven agents have ended, the worker is killed while one works."""
_LOST_S = 90.0


class _NoNotifier:
    """Applies nothing: what the ledger says must be enough."""

    async def apply_requests(self, requests: Sequence[object]) -> None:
        """Do nothing."""

    async def apply_interrupt(self, run_id: str) -> None:
        """Do nothing."""

    async def notify_order(self, order_id: str) -> None:
        """Do nothing."""

    def announce_tree(self, news: object) -> None:
        """Do nothing."""


def _leaf(name: str) -> str:
    return script({"tool": {"name": "work", "result": "done"}}, {"sleep_s": 0.5}, complete(name))


def _branch(name: str) -> str:
    child = {"prompt": _leaf(f"{name}.leaf"), "name": f"{name}.leaf"}
    return script(call("spawn_child", **child), {"sleep_s": 0.2}, complete(name))


async def _start(fleet: Fleet, database: Database) -> Started:
    """Start a master with three workers, each with a child. The reconciler rings for its run."""
    children = [{"prompt": _branch(f"b{at}"), "name": f"b{at}"} for at in range(3)]
    task = script(call("spawn_children_parallel", children=children), complete("All parts are done."))
    assert fleet.tenant_id is not None
    models = RankedModels(ModelCatalog(database, FleetAvailability({"scripted"})))
    service = Orchestrations(Work(database, Doorbells(), _NoNotifier()), models, Path)
    return await service.start(NewOrchestration(fleet.tenant_id, "nova", task))


async def _agents(fleet: Fleet, database: Database, started: Started) -> list[AgentDescriptor]:
    async with database.connection() as connection:
        return await agents_of(connection, fleet.tenant_id or "", started.orchestration_id)


async def _until(
    fleet: Fleet, database: Database, started: Started, true: Callable[[Sequence[AgentDescriptor]], bool]
) -> None:
    """Wait until something is true of the agents."""
    async with asyncio.timeout(_LOST_S):
        while True:
            if true(await _agents(fleet, database, started)):
                return
            await asyncio.sleep(0.05)


async def _until_ended(fleet: Fleet, database: Database, started: Started) -> None:
    await _until(fleet, database, started, lambda agents: agents[0].state in ENDED_AGENTS)


async def _check_outcome(fleet: Fleet, database: Database, started: Started) -> None:
    agents = await _agents(fleet, database, started)
    names = sorted(agent.name for agent in agents)
    assert names == sorted(["Master", *(f"b{at}" for at in range(3)), *(f"b{at}.leaf" for at in range(3))])
    assert {(agent.state, agent.activations) for agent in agents} == {("COMPLETED", 1)}
    assert agents[0].summary == "All parts are done."
    repeated = await database.fetch(
        "SELECT c.turn_id FROM tool_calls c JOIN orchestration_agents a ON a.orchestration_id = :id"
        "  JOIN turns t ON t.id = c.turn_id AND t.thread_id = a.thread_id"
        " WHERE c.tool_name = 'work' AND c.status = 'completed' GROUP BY 1 HAVING count(*) > 1",
        id=started.orchestration_id,
    )
    assert not repeated
    assert not await database.fetch("SELECT id FROM run_waits WHERE status = 'open'")


@pytest.mark.begins_first
async def test_a_tree_of_two_levels_ends_on_one_worker_slot_whose_worker_is_killed(
    env: dict[str, str], database: Database
) -> None:
    async with Fleet(env, workers=1, concurrency=1, beat=True) as fleet:
        started = await _start(fleet, database)
        for ended in _KILLED_AFTER:
            await _until(
                fleet, database, started, lambda agents, ended=ended: _is_working(agents) and _ended(agents) >= ended
            )
            fleet.workers[-1].kill()
            await fleet.start_worker()
        await _until_ended(fleet, database, started)
        await _check_outcome(fleet, database, started)


def _ended(agents: Sequence[AgentDescriptor]) -> int:
    return sum(agent.state in ENDED_AGENTS for agent in agents)


def _is_working(agents: Sequence[AgentDescriptor]) -> bool:
    return any(agent.state == "RUNNING" for agent in agents)
