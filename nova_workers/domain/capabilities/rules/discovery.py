"""Which capabilities ship with the fleet. Modules of tools are imported when a registry is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Final

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.contracts.engine import McpServer
from nova_workers.contracts.ports import Embedder, OrchestrationControl
from nova_workers.contracts.user_agents import AgentProgram
from nova_workers.domain.capabilities.rules.registry import CapabilityRegistry
from nova_workers.domain.capabilities.rules.seam import CapabilityParts, Servable, UserAgentRun
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work

MODULES: Final = (
    "agents.tools.asking",
    "agents.tools.managing",
    "agents.tools.own",
    "agents.tools.remote",
    "capabilities.tools.audio",
    "capabilities.tools.browser",
    "capabilities.tools.client",
    "capabilities.tools.mcp",
    "capabilities.tools.user",
    "delivery.tools",
    "files.tools",
    "memories.tools",
    "notes.tools",
    "orchestrations.tools.starting",
    "search.tools",
    "secrets.tools",
    "skills.tools",
    "tasks.tools",
    "threads.tools",
    "triggers.tools",
)
"""The modules below `nova_workers.domain`, each with a function ``capability(parts)``, which returns a
`seam.Capability`."""


_OF_USERS: Final = "nova_workers.domain.capabilities.tools.projects"
"""Has the capabilities of tools in Python that the operator installed."""


def default_registry(
    database: Database,
    settings: Settings,
    clock: Clock,
    *,
    embedder: Embedder | None = None,
    work: Work | None = None,
    orchestrations: OrchestrationControl | None = None,
    serve: Callable[[Servable], Awaitable[McpServer]] | None = None,
    execute: Callable[[UserAgentRun], Awaitable[AgentProgram]] | None = None,
) -> CapabilityRegistry:
    """Return the registry of all capabilities that ship with the fleet, and of those that the operator installed.

    Without `embedder`, message search uses words only; without `work`, runs that tools queue wait for the
    reconciler. Without `serve` and `execute`, capabilities are described and checked, but not served; they
    then need no `orchestrations`.

    Raises:
        ConfigurationError: Two capabilities or two tools have the same name.
    """
    registry = CapabilityRegistry(serve=serve, execute=execute)
    parts = CapabilityParts(
        database=database,
        work=work or Work(database),
        settings=settings,
        clock=clock,
        grants=registry,
        embedder=embedder,
        orchestrations=orchestrations,
    )
    for module in MODULES:
        registry.add(import_module(f"nova_workers.domain.{module}").capability(parts))
    for capability in import_module(_OF_USERS).capabilities(parts, registry):
        registry.add(capability)
    return registry
