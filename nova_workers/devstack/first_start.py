"""Prepares a database for the fleet: the schema, a tenant with agents, and an API key."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from base64 import b64encode
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from pydantic import SecretStr

from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError, Unavailable
from nova_workers.devstack.environments import system_environment
from nova_workers.devstack.home import write_private
from nova_workers.domain.agents.sql.records import seed_defaults
from nova_workers.domain.keys.sql.keys import DEFAULT_TENANT_ID, create_key, find_key, hash_secret, list_keys
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.ledger.auditing import Actor, acting_as
from nova_workers.ledger.database import Connection, PostgresDatabase
from nova_workers.ledger.schema import read_schema, schema_head

KEY_FILE = "api_key"
MASTER_KEYS_FILE = "master_keys"

_ALL_SCOPES = ("agents", "channels", "keys", "operator", "prompts", "runs", "secrets", "trust", "workspace")
_MOST_KEYS = 1_000


async def prepare_database(settings: Settings, database_url: str, owner_url: str | None = None) -> Path:
    """Migrate, create the default tenant and its agents, and return the file with a valid key.

    Idempotent: a valid key is kept; changed or deleted agents are not touched.

    Args:
        settings: For the home, the time zone, and the owner's URL if none is given.
        database_url: Of the fleet's processes.
        owner_url: Of the owner of the tables.

    Raises:
        ConfigurationError: Its schema is of a later release, on which this one does not work.
        Unavailable: The database cannot be reached or changed.
    """
    path = settings.home / KEY_FILE
    owner = settings.database_owner_url if owner_url is None else SecretStr(owner_url)
    database = PostgresDatabase(database_url if owner is None else owner.get_secret_value(), pool_size=1)
    try:
        async with database.connection() as connection:
            schema = await read_schema(connection)
        head = schema_head()
        if schema.revision is None or schema.revision < head:
            await _migrate(database_url, owner)
        elif (problem := schema.problem(head)) is not None:
            raise ConfigurationError(problem)
        with _acting_as("nova up"):
            async with database.transaction() as connection:
                await _ensure_tenant(connection, settings.timezone)
                secret = await _working_key(connection, _read(path))
    finally:
        await database.close()
    if secret is not None:
        write_private(path, secret + "\n")
    return path


def master_keys(home: Path) -> tuple[str, ...]:
    """Return the master keys of a home's secrets: the lines of a file that only its owner may read, created if missing.

    The first encrypts, all decrypt: to rotate, put a line before the others. Without the file the secrets are lost, so
    it belongs into a backup, but not into that of the database.

    Raises:
        ConfigurationError: The file exists and cannot be read.
    """
    path = home / MASTER_KEYS_FILE
    try:
        lines = path.read_text(encoding="utf-8").split()
    except FileNotFoundError:
        lines = []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{str(path)!r} cannot be read: {error}") from error
    if not lines:
        lines = [f"home-{os.urandom(3).hex()}:{b64encode(os.urandom(32)).decode()}"]
        write_private(path, lines[0] + "\n")
    return tuple(lines)


async def make_first_key(
    database_url: str, *, timezone: str = "UTC", keep: Callable[[str], None] | None = None
) -> str | None:
    """Create the default tenant, its agents and a key with every scope, on a migrated database.

    Args:
        database_url: Of the ledger.
        timezone: The tenant's.
        keep: Stores the key. Called before the key is committed, so that no key exists that was not stored.

    Returns:
        The key, which cannot be read again; None if the tenant has one that was not revoked.

    Raises:
        Unavailable: The database cannot be reached.
    """
    database = PostgresDatabase(database_url, pool_size=1)
    try:
        with _acting_as("nova migrate"):
            async with database.transaction() as connection:
                await _ensure_tenant(connection, timezone)
                keys = await list_keys(connection, DEFAULT_TENANT_ID, before=None, limit=_MOST_KEYS)
                if any(key.revoked_at is None for key in keys):
                    return None
                key = (await create_key(connection, DEFAULT_TENANT_ID, name="first key", scopes=_ALL_SCOPES)).key
                if keep is not None:
                    keep(key)
                return key
    finally:
        await database.close()


async def _migrate(database_url: str, owner: SecretStr | None) -> None:
    """Migrate in a child process: Alembic and the models are loaded only when there is something to do."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nova_workers.cli", "migrate"),
        env={
            **_driver_environment(),
            "NOVA_DATABASE_URL": database_url,
            **({} if owner is None else {"NOVA_DATABASE_OWNER_URL": owner.get_secret_value()}),
        },
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await child.communicate()
    if child.returncode != 0:
        raise Unavailable(
            f"The database cannot be migrated: {stderr.decode(errors='replace').strip()} Check NOVA_DATABASE_URL, and "
            "that its user may create tables, roles and the extension 'vector'.",
            server="postgres",
        )


def _driver_environment() -> dict[str, str]:
    """Return the variables that a migration needs: the system's, and those that the driver of Postgres reads."""
    return system_environment(os.environ) | {
        name: value for name, value in os.environ.items() if name.startswith("PG") or name == "NOVA_HOME"
    }


def _acting_as(command: str) -> AbstractContextManager[None]:
    """Record what a command changes: there is no key yet."""
    return acting_as(Actor("command", command, DEFAULT_TENANT_ID, address=socket.gethostname()))


async def _ensure_tenant(connection: Connection, timezone: str) -> None:
    await ensure_tenant(connection, DEFAULT_TENANT_ID, "Default", timezone)
    await seed_defaults(connection, DEFAULT_TENANT_ID)


async def _working_key(connection: Connection, secret: str) -> str | None:
    """Return a new key unless `secret` is valid."""
    if secret and await find_key(connection, hash_secret(secret)) is not None:
        return None
    # Every scope, since its user owns the machine. Each home has a key of its own, which can be revoked alone.
    made = await create_key(
        connection, DEFAULT_TENANT_ID, name=f"nova up on {socket.gethostname()}", scopes=_ALL_SCOPES
    )
    return made.key


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""
