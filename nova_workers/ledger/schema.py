"""The schema revision that this code needs, found without importing the models or Alembic, and the server's state."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from nova_workers.base.errors import ConfigurationError
from nova_workers.base.release import part_name
from nova_workers.ledger.database import Connection

_IS_MIGRATED = "SELECT to_regclass('alembic_version') IS NOT NULL"
_REVISION = "SELECT version_num FROM alembic_version"
# `nova migrate` records the oldest release whose processes work on the schema as the table's comment.
_SCHEMA = """
SELECT version_num AS revision, obj_description('alembic_version'::regclass, 'pg_class') AS oldest_processes
  FROM alembic_version
"""
_TAKES_WRITES = "SELECT current_setting('transaction_read_only') = 'off'"


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a database.

    Attributes:
        revision: Its newest migration; None if it was never migrated.
        oldest_processes: The head of the oldest release whose processes work on it; None if that was not recorded.
    """

    revision: str | None = None
    oldest_processes: str | None = None

    def problem(self, head: str) -> str | None:
        """Return why processes of a release cannot work on this schema, and what to do; None if they can.

        Args:
            head: The newest migration of the release.
        """
        if self.revision is None or self.revision < head:
            found = "was never migrated" if self.revision is None else f"has the schema {self.revision!r}"
            return f"The database {found}, but this release needs {head!r}: run `nova migrate`."
        if self.oldest_processes is not None and head < self.oldest_processes:
            return (
                f"The database has the schema {self.revision!r} of a later release, on which only processes of "
                f"{self.oldest_processes!r} and later work, and this one is of {head!r}: install a later release."
            )
        return None


def schema_head() -> str:
    """Return the newest migration's revision: its file is named ``<revision>_<subject>.py``.

    Raises:
        ConfigurationError: The package was built without its migrations.
    """
    package = find_spec(part_name("models"))
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


async def read_schema(connection: Connection) -> Schema:
    """Return the schema of the database."""
    row = await connection.fetchrow(_SCHEMA) if await connection.fetchval(_IS_MIGRATED) else None
    return Schema() if row is None else Schema(row["revision"], row["oldest_processes"])


async def takes_writes(connection: Connection) -> bool:
    """Return whether the server takes writes: neither a standby nor one that is set to read only."""
    return await connection.fetchval(_TAKES_WRITES)
