"""The schema revision that this code needs, found without importing the models or Alembic, and the server's state."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from nova_workers.errors import ConfigurationError
from nova_workers.ledger.database import Connection

__all__ = ["schema_head", "schema_revision", "takes_writes"]

_IS_MIGRATED = "SELECT to_regclass('alembic_version') IS NOT NULL"
_REVISION = "SELECT version_num FROM alembic_version"
_TAKES_WRITES = "SELECT current_setting('transaction_read_only') = 'off'"


def schema_head() -> str:
    """Return the newest migration's revision: its file is named ``<revision>_<subject>.py``.

    Raises:
        ConfigurationError: The package was built without its migrations.
    """
    package = find_spec("models")
    folder = Path(str(package.origin)).parent / "migrations" / "versions" if package is not None else Path()
    revisions = [path.name.partition("_")[0] for path in folder.glob("[0-9]*_*.py")]
    if not revisions:
        raise ConfigurationError(f"There are no migrations in {str(folder)!r}; install the package anew.")
    return max(revisions)


async def schema_revision(connection: Connection) -> str | None:
    """Return the database's revision; None for a database that was never migrated."""
    if not await connection.fetchval(_IS_MIGRATED):
        return None
    return await connection.fetchval(_REVISION)


async def takes_writes(connection: Connection) -> bool:
    """Return whether the server takes writes: neither a standby nor one that is set to read only."""
    return await connection.fetchval(_TAKES_WRITES)
