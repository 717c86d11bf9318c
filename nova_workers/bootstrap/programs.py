"""Builds the engines that run a vendor's program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from nova_workers.bootstrap.pricing import model_price
from nova_workers.config import Settings, VendorProgramSettings
from nova_workers.contracts.engine import Engine
from nova_workers.engines.codex import Codex
from nova_workers.engines.gemini import Gemini
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.models import ALIASES
from nova_workers.engines.native import NativeTools
from nova_workers.engines.programs.engine import ProgramEngine
from nova_workers.engines.programs.environment import inherited
from nova_workers.engines.programs.models import ProgramModels
from nova_workers.engines.programs.vendor import ProgramSettings, Vendor
from nova_workers.engines.resilience import Resilience

__all__ = ["PROGRAMS", "build_program", "program_key", "program_models"]


@dataclass(frozen=True, slots=True)
class _Program:
    """What is known of a program here: its command line, the vendor's variables, and the vendor's price list."""

    vendor: Vendor
    url_variable: str
    price_list: str


PROGRAMS: Mapping[str, _Program] = {
    "codex": _Program(Codex(), "OPENAI_BASE_URL", "openai"),
    "gemini": _Program(Gemini(), "GOOGLE_GEMINI_BASE_URL", "google"),
}
"""By the engine's name."""


def build_program(
    name: str, settings: Settings, resilience: Resilience, native: NativeTools, connections: ConnectionPool
) -> Engine:
    """Return an engine.

    Args:
        name: A key of `PROGRAMS`.
        settings: The fleet's settings.
        resilience: The shared state of the key and its models.
        native: The native tools.
        connections: The process's MCP connections.
    """
    known, own = PROGRAMS[name], _section(settings, name)
    return ProgramEngine(
        known.vendor,
        ProgramSettings(
            environment=inherited(os.environ),
            program=own.program,
            api_key=program_key(settings, name),
            base_url=own.base_url or os.environ.get(known.url_variable) or None,
            max_processes=own.max_processes,
            fallbacks=own.fallbacks,
        ),
        program_models(settings, name),
        request_timeout_s=settings.model.request_timeout_s,
        resilience=resilience,
        native=native,
        connections=connections,
    )


def program_key(settings: Settings, name: str) -> str | None:
    """Return the key of a program's provider."""
    own = _section(settings, name)
    given = None if own.api_key is None else own.api_key.get_secret_value()
    return given or os.environ.get(PROGRAMS[name].vendor.key_variable) or None


def program_models(settings: Settings, name: str) -> ProgramModels:
    """Return what is known of a program's models."""
    own = _section(settings, name)
    # What the contract's aliases mean with Anthropic's models says nothing here.
    named = {alias: model for alias, model in settings.model.aliases.items() if alias not in ALIASES}
    return ProgramModels(
        name,
        price_list=PROGRAMS[name].price_list,
        default=own.model,
        aliases={**named, **own.aliases},
        prices={model: model_price(price) for model, price in own.prices.items()},
        windows=own.context_windows,
        unknown_tokens=settings.model.context_window_tokens,
    )


def _section(settings: Settings, name: str) -> VendorProgramSettings:
    return {"codex": settings.codex, "gemini": settings.gemini}[name]
