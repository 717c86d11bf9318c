"""Orchestrations in the harness: agents that play scripts, which contain the scripts of their children."""

from __future__ import annotations

from typing import Any

import orjson

from nova_workers.contracts.http.started import Started
from nova_workers.contracts.orchestration import AgentDescriptor, OrchestrationLimits
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.domain.orchestrations.rules.planning import NewOrchestration
from nova_workers.domain.orchestrations.sql import agents as ledger
from tests.support.harness.workers import Harness

MODELS = OrchestrationConfig.model_validate(
    {
        "providers": {"local": {"engine": "scripted"}, "away": {"engine": "anthropic"}},
        "models": {
            "small": {"provider": "local", "model_id": "scripted-mini"},
            "scripted-2": {"provider": "local", "model_id": "scripted-2"},
            "big": {"provider": "local", "model_id": "scripted-opus"},
            "gone": {"provider": "away", "model_id": "claude-opus-5"},
        },
    }
)
"""A configuration with models that the harness has, and with one that it has not."""


def script(*items: dict[str, Any]) -> str:
    """Return a message that the scripted engine plays."""
    return orjson.dumps({"script": list(items)}).decode()


def call(name: str, /, **given: Any) -> dict[str, Any]:
    """Return a script's item that calls a tool."""
    return {"tool": {"name": name, "input": given}}


def spawn(*items: dict[str, Any], wait: bool = True, **given: Any) -> dict[str, Any]:
    """Return an item that spawns a child that plays items."""
    return call("spawn_child", prompt=script(*items), wait=wait, **given)


def complete(summary: str) -> dict[str, Any]:
    """Return an item that declares the task complete."""
    return call("task_complete", summary=summary)


class Forest:
    """Orchestrations of a harness, and their agents as the ledger has them."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.tenant_id = harness.tenant_id
        self.service = harness.orchestrations

    async def start(self, *items: dict[str, Any], **fields: Any) -> Started:
        """Start an orchestration whose master plays items, or has the task `task`."""
        limits = fields.pop("limits", OrchestrationLimits())
        agent_id = fields.pop("agent_id", "scripted")
        task = fields.pop("task", None) or script(*items)
        return await self.service.start(NewOrchestration(self.tenant_id, agent_id, task, limits=limits, **fields))

    async def settle(self, *, workers: int = 1) -> None:
        """Let workers answer doorbells until none is rung."""
        harness = self.harness
        while len(harness.workers) < workers:
            harness.worker()
        await harness.settle(*harness.workers)

    async def run(self, *items: dict[str, Any], **fields: Any) -> Started:
        """Start an orchestration, and let it run until nothing is to be done."""
        started = await self.start(*items, **fields)
        await self.settle()
        return started

    async def agents(self, started: Started) -> list[AgentDescriptor]:
        """Return the agents of an orchestration, the master first."""
        async with self.harness.database.connection() as connection:
            return await ledger.agents_of(connection, self.tenant_id, started.orchestration_id)

    async def states(self, started: Started) -> list[str]:
        """Return the states of its agents, the master's first."""
        return [agent.state for agent in await self.agents(started)]

    async def results(self, agent: AgentDescriptor) -> list[tuple[str, str, str]]:
        """Return name, status and text of the tool calls of an agent's latest activation."""
        rows = await self.harness.database.fetch(
            "SELECT c.tool_name, c.status, c.result FROM tool_calls c JOIN runs r ON r.turn_id = c.turn_id"
            " WHERE r.id = :run_id ORDER BY c.sequence",
            run_id=agent.run_id,
        )
        return [(row["tool_name"], row["status"], (row["result"] or [{"text": ""}])[0]["text"]) for row in rows]
