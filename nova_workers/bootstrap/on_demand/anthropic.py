"""Builds the engine `anthropic`."""

import asyncio

from nova_workers.bootstrap.anthropic import profiles_of
from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.bootstrap.on_demand.connections import connections
from nova_workers.bootstrap.on_demand.native import native_tools
from nova_workers.bootstrap.on_demand.resilience import resilience
from nova_workers.bootstrap.pricing import model_price
from nova_workers.bootstrap.windows import anthropic_windows
from nova_workers.contracts.engine import Engine
from nova_workers.engines.anthropic import AnthropicEngine, rehearsal
from nova_workers.engines.models import resolve_model
from nova_workers.engines.resilience import Resilience


def build(_: str, parts: EngineParts) -> Engine:
    """Return the engine."""
    model = parts.settings.model
    return AnthropicEngine(
        profiles=profiles_of(model),
        prices={name: model_price(price) for name, price in model.prices.items()},
        windows=anthropic_windows(model),
        resilience=resilience_of(parts),
        base_url=model.base_url,
        aliases=model.aliases,
        max_tokens=model.max_tokens,
        request_timeout_s=model.request_timeout_s,
        first_byte_timeout_s=model.first_byte_timeout_s,
        max_connections=model.max_connections,
        native=native_tools(parts),
        connections=connections(parts),
    )


def rehearse(directory: str) -> None:
    """Play a turn without a provider, on a loop of its own. Blocks."""
    asyncio.run(rehearsal.rehearse(directory))


def resilience_of(parts: EngineParts) -> Resilience:
    """Return the state of the provider's keys and models, which `claude_agent` shares."""
    model = parts.settings.model
    by_name = [(profile.name, profile.api_key or "") for profile in profiles_of(model)]
    limits = {resolve_model(name, model.aliases): limit for name, limit in model.rate_limits.items()}
    return resilience(parts, "anthropic", by_name, limits)
