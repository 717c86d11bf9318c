"""Builds the engine `claude_agent`. Importing this module needs its extra."""

import os

from nova_workers.base.confined import PrivateFiles
from nova_workers.bootstrap.anthropic import profiles_of
from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.bootstrap.on_demand.anthropic import resilience_of
from nova_workers.bootstrap.on_demand.connections import connections
from nova_workers.bootstrap.on_demand.native import fetcher
from nova_workers.bootstrap.pricing import model_price
from nova_workers.bootstrap.windows import anthropic_windows
from nova_workers.contracts.engine import Engine
from nova_workers.engines.claude_agent import ClaudeAgentEngine


def build(_: str, parts: EngineParts) -> Engine:
    """Return the engine."""
    settings = parts.settings
    model, own = settings.model, settings.claude_agent
    return ClaudeAgentEngine(
        environment=os.environ,
        profiles=profiles_of(model),
        base_url=model.base_url,
        resilience=resilience_of(parts),
        windows=anthropic_windows(model),
        aliases=model.aliases,
        max_tokens=model.max_tokens,
        request_timeout_s=model.request_timeout_s,
        max_processes=own.max_processes,
        program=own.program,
        fetcher=fetcher(settings),
        shell=parts.shell,
        prices={name: model_price(price) for name, price in model.prices.items()},
        connections=connections(parts),
        private=PrivateFiles(settings.home, settings.workspace_root),
    )
