"""Builds the engines that run a vendor's program."""

from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.bootstrap.on_demand.connections import connections
from nova_workers.bootstrap.on_demand.native import native_tools
from nova_workers.bootstrap.on_demand.resilience import resilience
from nova_workers.bootstrap.programs import PROGRAMS, program_models, program_settings
from nova_workers.contracts.engine import Engine
from nova_workers.engines.programs.engine import ProgramEngine


def build(name: str, parts: EngineParts) -> Engine:
    """Return an engine of `PROGRAMS`."""
    settings = program_settings(parts.settings, name)
    return ProgramEngine(
        PROGRAMS[name].vendor,
        settings,
        program_models(parts.settings, name),
        request_timeout_s=parts.settings.model.request_timeout_s,
        resilience=resilience(parts, name, [("default", settings.api_key or "")]),
        native=native_tools(parts),
        connections=connections(parts),
    )
