"""Settings of the engines that run a vendor's program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from nova_workers.base.config import Settings, VendorProgramSettings
from nova_workers.bootstrap.pricing import model_price
from nova_workers.engines.codex import Codex
from nova_workers.engines.gemini import Gemini
from nova_workers.engines.models import ALIASES
from nova_workers.engines.programs.environment import inherited
from nova_workers.engines.programs.models import ProgramModels
from nova_workers.engines.programs.vendor import ProgramSettings, Vendor


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
"""The programs by their engine's name."""


def program_settings(settings: Settings, name: str) -> ProgramSettings:
    """Return how a program is started.

    Args:
        settings: The fleet's settings.
        name: A key of `PROGRAMS`.
    """
    known, own = PROGRAMS[name], _section(settings, name)
    return ProgramSettings(
        environment=inherited(os.environ),
        program=own.program,
        api_key=_key(settings, name),
        base_url=own.base_url or os.environ.get(known.url_variable) or None,
        max_processes=own.max_processes,
        fallbacks=own.fallbacks,
    )


def program_models(settings: Settings, name: str) -> ProgramModels:
    """Return the known models of a program."""
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


def _key(settings: Settings, name: str) -> str | None:
    """Return the key of a program's provider."""
    own = _section(settings, name)
    given = None if own.api_key is None else own.api_key.get_secret_value()
    return given or os.environ.get(PROGRAMS[name].vendor.key_variable) or None


def _section(settings: Settings, name: str) -> VendorProgramSettings:
    return {"codex": settings.codex, "gemini": settings.gemini}[name]
