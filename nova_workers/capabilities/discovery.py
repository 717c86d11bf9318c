"""Finds the capabilities: every module of `catalog` has one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from pkgutil import iter_modules

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.capabilities import catalog
from nova_workers.capabilities.registry import CapabilityRegistry
from nova_workers.capabilities.seam import CapabilityParts, DeclaredServer
from nova_workers.contracts.engine import McpServer
from nova_workers.contracts.ports import Embedder, OrchestrationControl
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work

__all__ = ["default_registry"]


def default_registry(
    database: Database,
    settings: Settings,
    clock: Clock,
    *,
    embedder: Embedder | None = None,
    work: Work | None = None,
    orchestrations: OrchestrationControl | None = None,
    serve: Callable[[DeclaredServer], Awaitable[McpServer]] | None = None,
) -> CapabilityRegistry:
    """Return the registry of all capabilities that ship with the fleet.

    Without `embedder`, message search uses words only; without `work`, runs that tools queue wait for the
    reconciler. Without `serve`, capabilities are described and checked, but not served; they then need no
    `orchestrations`.

    Raises:
        ConfigurationError: Two capabilities or two tools have the same name.
    """
    registry = CapabilityRegistry(serve=serve)
    parts = CapabilityParts(
        database=database,
        work=work or Work(database),
        settings=settings,
        clock=clock,
        grants=registry,
        embedder=embedder,
        orchestrations=orchestrations,
    )
    for module in sorted(module.name for module in iter_modules(catalog.__path__)):
        registry.add(import_module(f"{catalog.__name__}.{module}").capability(parts))
    return registry
