"""Which variables of the operator's environment each process gets: secrets only where they are used.

A worker gets all but the secrets of others, since tools and programs that it starts may need any. Every other process
gets what is listed here: what another program's variables hold is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from nova_workers.base.config import Settings
from nova_workers.base.config.secret_variables import masked_variables, secret_settings, setting_of

FleetProcessKind = Literal["api", "worker", "beat", "flower", "console", "channel"]
"""The processes that read settings."""

_SYSTEM: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR", "NO_COLOR"),
        *("VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    }
)
_SYSTEM_PREFIXES: Final = ("LC_", "PYTHON", "MALLOC_")
_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"})

_SECRETS: Final[Mapping[FleetProcessKind, frozenset[str]]] = {
    "api": frozenset(
        {"NOVA_DATABASE_URL", "NOVA_REDIS_URL", "NOVA_SECRETS__KEYS", "NOVA_EFFECTS__EMBEDDING_API_KEY"},
    ),
    "beat": frozenset({"NOVA_REDIS_URL"}),
    "flower": frozenset({"NOVA_REDIS_URL", "NOVA_FLOWER__PASSWORD"}),
    "console": frozenset({"NOVA_CONSOLE__SECRET", "NOVA_API_KEY", "NOVA_OIDC__CLIENT_SECRET"}),
    "channel": frozenset(
        {"NOVA_TELEGRAM__TOKEN", "NOVA_TELEGRAM__BOTS", "NOVA_API_KEY", "NOVA_AUDIO__TRANSCRIPTION_API_KEY"}
    ),
}
"""The secrets that each process uses."""

_NOT_FOR_WORKERS: Final = frozenset(
    {
        *("NOVA_FLOWER__PASSWORD", "NOVA_CONSOLE__SECRET", "NOVA_API_KEY", "NOVA_DATABASE_OWNER_URL"),
        *("NOVA_TELEGRAM__TOKEN", "NOVA_TELEGRAM__BOTS", "NOVA_OIDC__CLIENT_SECRET"),
    }
)
_WITHOUT_HOME: Final = frozenset[FleetProcessKind]({"beat", "flower", "channel"})
"""They read and write no file of NOVA_HOME, where the first key and the master keys are."""

_OWN_PREFIXES: Final[Mapping[FleetProcessKind, tuple[str, ...]]] = {
    # What the driver of Postgres and the exporter of traces read by themselves.
    "api": ("PG", "OTEL_"),
    "flower": ("FLOWER_",),
}
_WITH_PROXIES: Final = frozenset[FleetProcessKind]({"api", "channel"})

_MODEL_SECTIONS: Final = ("model", "openai", "codex", "gemini")
_VENDOR_KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY")
_VENDOR_URLS: Final = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "GOOGLE_GEMINI_BASE_URL")
_MASK: Final = "**********"


def system_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that any program needs (paths, language, time zone), for servers, which read no settings."""
    return {name: value for name, value in environ.items() if name in _SYSTEM or name.startswith(_SYSTEM_PREFIXES)}


def environment_for(kind: FleetProcessKind, environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Return the variables of an environment that a process of the fleet gets.

    Args:
        kind: The process.
        environ: The operator's environment.
        settings: What was read from it.
    """
    if kind == "worker":
        return {name: value for name, value in environ.items() if setting_of(name, _NOT_FOR_WORKERS) is None}
    found = system_environment(environ)
    withheld = secret_settings() | {"NOVA_API_KEY"}
    for name, value in environ.items():
        plain = name.upper()
        if plain.startswith("NOVA_"):
            secret = setting_of(plain, withheld)
            if secret in _SECRETS[kind] if secret else plain != "NOVA_HOME" or kind not in _WITHOUT_HOME:
                found[name] = value
        elif plain.startswith(_OWN_PREFIXES.get(kind, ("\0",))) or (plain in _PROXIES and kind in _WITH_PROXIES):
            found[name] = value
    if kind == "api":
        found |= _known_providers(environ, settings)
    return found


def _known_providers(environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """Return which providers there are, without their keys: until a worker reports, that decides which models exist."""
    keys = {name: _MASK for name in _VENDOR_KEYS if environ.get(name)}
    urls = {name: environ[name] for name in _VENDOR_URLS if environ.get(name)}
    return keys | urls | masked_variables(settings, _MODEL_SECTIONS)
