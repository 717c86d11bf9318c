"""Builds the engine `openai`."""

import asyncio

from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.bootstrap.on_demand.connections import connections
from nova_workers.bootstrap.on_demand.native import native_tools
from nova_workers.bootstrap.on_demand.resilience import resilience
from nova_workers.bootstrap.openai import openai_catalog
from nova_workers.contracts.engine import Engine
from nova_workers.engines.openai import OpenAIEngine, rehearsal
from nova_workers.engines.resilience import ANY_MODEL


def build(_: str, parts: EngineParts) -> Engine:
    """Return the engine."""
    model, catalog = parts.settings.model, openai_catalog(parts.settings)
    limits = {name: limit for name, limit in model.rate_limits.items() if name == ANY_MODEL or "/" in name}
    return OpenAIEngine(
        catalog,
        fallbacks=parts.settings.openai.fallbacks,
        max_tokens=model.max_tokens,
        request_timeout_s=model.request_timeout_s,
        first_byte_timeout_s=model.first_byte_timeout_s,
        max_connections=model.max_connections,
        resilience=resilience(parts, "openai", catalog.profiles(), limits),
        native=native_tools(parts),
        connections=connections(parts),
    )


def rehearse(directory: str) -> None:
    """Play turns without a provider, on a loop of their own. Blocks."""
    asyncio.run(rehearsal.rehearse(directory))
