"""What a database needs before the fleet can serve: the schema, a tenant with agents, and a key to come in with."""

from __future__ import annotations

import socket
from pathlib import Path

from models import migrate
from nova_workers.config import Settings
from nova_workers.devstack.home import write_private
from nova_workers.ledger.agents import seed_defaults
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.tenancy import DEFAULT_TENANT_ID, create_key, create_tenant, find_key, hash_secret

__all__ = ["KEY_FILE", "prepare_database"]

KEY_FILE = "api_key"

_ALL_SCOPES = ("agents", "keys", "operator", "runs")


async def prepare_database(settings: Settings, database_url: str) -> Path:
    """Migrate, make the default tenant and its agents, and return the file with a key that works.

    Idempotent: a key that works is kept; agents that were changed or deleted are left as they are.
    """
    await migrate.upgrade(database_url)
    path = settings.home / KEY_FILE
    database = Database(database_url, pool_size=1)
    try:
        async with database.transaction() as connection:
            await create_tenant(connection, DEFAULT_TENANT_ID, "Default")
            await seed_defaults(connection, DEFAULT_TENANT_ID)
        async with database.connection() as connection:
            secret = await _working_key(connection, _read(path))
    finally:
        await database.close()
    if secret is not None:
        write_private(path, secret + "\n")
    return path


async def _working_key(connection: Connection, secret: str) -> str | None:
    """Return a new key unless `secret` is a good one."""
    if secret and await find_key(connection, hash_secret(secret)) is not None:
        return None
    # The owner of this machine: every scope. Each home has a key of its own, so that each can be revoked alone.
    made = await create_key(
        connection, DEFAULT_TENANT_ID, name=f"nova up on {socket.gethostname()}", scopes=_ALL_SCOPES
    )
    return made.key


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""
