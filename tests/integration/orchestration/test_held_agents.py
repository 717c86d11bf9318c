"""Agents of a tree wait for a model provider that cannot be used, as other runs do, and go on."""

from __future__ import annotations

import asyncio
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from nova_workers.base.errors import Outage
from nova_workers.cli.orchestrations.tree_view import TreeView
from nova_workers.contracts.engine import Engine, EngineError, EngineOptions, EngineResult
from nova_workers.contracts.events import ProviderUnavailable
from nova_workers.contracts.http.orchestrations import OrchestrationTree, TreeAgent
from nova_workers.contracts.http.started import Started
from nova_workers.contracts.orchestration.events import TreeRecord
from nova_workers.contracts.waits import detail_of
from nova_workers.domain.orchestrations.sql.trees import get_tree
from tests.requirements import proves
from tests.support.harness.trees import Forest, call, complete, script


class RefusingEngine:
    """The scripted engine, whose provider cannot be used except by one run."""

    name = "scripted"

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.outage: Outage | None = None
        self.except_run = ""
        self.refused: list[str] = []

    async def run(self, message: Any, options: EngineOptions, *others: Any, **more: Any) -> EngineResult:
        """Play the script, or refuse."""
        run_id = options.run_id or ""
        if self.outage is None or run_id == self.except_run:
            return await self._engine.run(message, options, *others, **more)
        self.refused.append(run_id)
        return EngineResult("", "error", error=EngineError("auth_failure", "No.", retryable=False, outage=self.outage))

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.close()


async def _tree(forest: Forest, started: Started) -> OrchestrationTree:
    async with forest.harness.database.connection() as connection:
        return await get_tree(connection, forest.tenant_id, started.orchestration_id)


def _since(agent: TreeAgent, *, seconds: float) -> TreeAgent:
    return agent.model_copy(update={"created_at": datetime.now(UTC) - timedelta(seconds=seconds)})


def _drawn(view: TreeView) -> str:
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as captured:
        console.print(view.render(live=False))
    return captured.get()


async def _try_again(forest: Forest) -> None:
    await forest.harness.database.execute("UPDATE runs SET held_until = now() WHERE held_until > now()")
    await forest.harness.reconciler.reconcile()
    await forest.settle()


@pytest.mark.parametrize("reason", ["key_refused", "key_missing"])
@proves("orchestration.holds")
async def test_children_wait_for_their_provider_and_complete(forest: Forest, reason: Any) -> None:
    engine = RefusingEngine(forest.harness.engines["scripted"])
    forest.harness.engines["scripted"] = engine
    engine.outage = Outage("anthropic", reason, "default")
    forms = [
        {"prompt": script(complete("built")), "name": "worker"},
        {"prompt": script(complete("looks right")), "name": "reviewer", "role": "REVIEWER"},
    ]
    started = await forest.start(call("spawn_children_parallel", children=forms), complete("done"))
    engine.except_run = started.run_id
    await forest.settle()
    master, *children = (await _tree(forest, started)).agents
    assert master.state == "WAITING_FOR_CHILD"
    for child in children:
        assert child.state == "RUNNING"
        assert child.hold is not None
        assert (child.hold.provider, child.hold.outage) == ("anthropic", reason)
        assert child.hold.next_try_at is not None
    assert len(engine.refused) == 2
    await forest.settle()
    assert len(engine.refused) == 2

    await _try_again(forest)
    assert len(engine.refused) == 3
    engine.outage = None
    async with asyncio.timeout(10):
        while (await forest.states(started))[0] != "COMPLETED":
            await _try_again(forest)
    master, *children = (await _tree(forest, started)).agents
    assert [agent.summary for agent in (master, *children)] == ["done", "built", "looks right"]
    assert all(child.hold is None for child in children)
    losses = await forest.harness.database.fetch("SELECT losses FROM runs")
    assert {row["losses"] for row in losses} == {0}


@proves("orchestration.holds")
async def test_a_master_waits_likewise_and_the_tree_says_for_what(forest: Forest) -> None:
    forest.harness.engines["scripted"] = engine = RefusingEngine(forest.harness.engines["scripted"])
    engine.outage = outage = Outage("anthropic", "quota", "default")
    started = await forest.run(complete("done"))
    tree = await _tree(forest, started)
    view = TreeView()
    view.seed(tree.model_copy(update={"agents": [_since(agent, seconds=95) for agent in tree.agents]}))
    assert " · 1 min 35 s" in _drawn(view)
    event = ProviderUnavailable.of(detail_of(outage, "No credit."), None, held=True)
    line = view.take(TreeRecord(agent_id=tree.master_id, event=event))
    assert line is not None
    assert "its account may not spend more" in line
    assert "No credit." in line
    engine.outage = None
    await _try_again(forest)
    assert await forest.states(started) == ["COMPLETED"]
