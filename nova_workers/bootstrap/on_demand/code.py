"""Builds the engine `code`."""

from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.bootstrap.on_demand.connections import connections
from nova_workers.contracts.engine import Engine
from nova_workers.engines.code import CodeEngine


def build(_: str, parts: EngineParts) -> Engine:
    """Return the engine."""
    return CodeEngine(connections(parts))
