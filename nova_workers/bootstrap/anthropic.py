"""Keys of Anthropic, and its engine, which is loaded when a turn first needs it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import structlog

from nova_workers.base.config.models import ModelSettings
from nova_workers.base.errors import ConfigurationError
from nova_workers.bootstrap.deferred import DeferredEngine, Probe
from nova_workers.bootstrap.engine_parts import EngineParts
from nova_workers.contracts.engine import Engine
from nova_workers.engines.anthropic_probe import AnthropicProbe, Profile

_log = structlog.get_logger(__name__)

_KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
"""In the order of the SDK, which sends both in the same header."""
_URL_VARIABLE = "ANTHROPIC_BASE_URL"
_HEADERS_VARIABLE = "ANTHROPIC_CUSTOM_HEADERS"
_PROFILE_VARIABLES = ("ANTHROPIC_PROFILE", "ANTHROPIC_CONFIG_DIR", "ANTHROPIC_FEDERATION_RULE_ID")
"""The variables with which the SDK looks for credentials in files."""
_PROFILE_FILES = (".config", "anthropic")
"""The folder in the home directory where it looks without these variables."""


def anthropic_engine(parts: EngineParts, *, module: str) -> Engine:
    """Return the engine, which `module` builds.

    Raises:
        ConfigurationError: Two keys have one name, or credentials in files cannot be read.
    """
    model = parts.settings.model
    names = [profile.name for profile in model.profiles]
    if len(set(names)) < len(names):
        raise ConfigurationError(f"Two credential profiles of the model provider have the same name: {names!r}.")
    key = next(filter(None, map(os.environ.get, _KEY_VARIABLES)), None)
    has_key = bool(names) or model.api_key is not None or key is not None
    in_files = not has_key and _has_credential_files()
    if not has_key and not in_files and parts.settings.default_engine == "anthropic":
        _log.warning(
            "provider.no_key",
            provider="anthropic",
            advice="Set NOVA_MODEL__API_KEY or ANTHROPIC_API_KEY. Until then, runs that need it wait.",
        )
    probe = None if in_files else _probe(model, key) if has_key else _has_no_key
    engine = DeferredEngine("anthropic", parts, module=module, probe=probe)
    if in_files:
        # Only the SDK reads these files, and a worker with credentials that cannot be read must not start.
        engine.load()
    return engine


def profiles_of(model: ModelSettings) -> tuple[Profile, ...]:
    """Return the provider's keys."""
    if not model.profiles:
        return (Profile(api_key=None if model.api_key is None else model.api_key.get_secret_value()),)
    return tuple(
        Profile(profile.name, profile.api_key.get_secret_value(), profile.base_url) for profile in model.profiles
    )


def _probe(model: ModelSettings, key: str | None) -> Probe | None:
    """Return the probe that tries the keys as turns use them; None where only the SDK can.

    Args:
        model: The settings.
        key: That of the environment, for a profile without one.
    """
    if os.environ.get(_HEADERS_VARIABLE):
        # The SDK reads it, and a gateway may need it.
        return None
    profiles: Iterable[Profile] = profiles_of(model)
    given = (profile if profile.api_key is not None else replace(profile, api_key=key) for profile in profiles)
    return AnthropicProbe(given, model.base_url or os.environ.get(_URL_VARIABLE))


def _has_credential_files() -> bool:
    return any(map(os.environ.get, _PROFILE_VARIABLES)) or Path.home().joinpath(*_PROFILE_FILES).exists()


async def _has_no_key(_: float) -> str | None:
    return "it has no key"
