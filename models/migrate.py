"""Bring a database to the schema of this version. Works from an installed wheel; needs no alembic.ini."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from .migrations import baseline
from .rights.audit_chain import own_audit

OLDEST_PROCESSES = "0012"
"""The head of the previous release, 0.2.0. Migrations keep what its processes use, and may drop what older ones used.

Recorded in the database, so that a process of an older release refuses to work there (`ledger.schema`).
"""

_LOCK_KEY = 6_116_271_953_047_312
"""Any constant: the advisory lock that one migrating process holds."""
_LOCK_POLL_S = 0.2

_TRY_LOCK = text("SELECT pg_try_advisory_lock(:key)")
# The baseline names the schema `public`, also that of the extension's types; the migrations name none.
_IS_PLAIN = text("""
SELECT to_regclass('alembic_version') IS NULL AND current_schema() = 'public'
   AND NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'vector' AND extnamespace <> 'public'::regnamespace)
""")
_RECORDED_OLDEST = text("SELECT obj_description('alembic_version'::regclass, 'pg_class')")
_RECORD_OLDEST = text(f"COMMENT ON TABLE alembic_version IS '{OLDEST_PROCESSES}'")

_Migration = Callable[[Connection], None]


class PoolerBetween(Exception):
    """The URL leads to a pooler, which may lend the lock's session to others; the message says what to set."""


def engine_for(url: str) -> AsyncEngine:
    """Return an engine that connects as the runtime does: asyncpg itself reads the URL.

    Args:
        url: ``postgresql://…``; a socket folder goes into ``?host=``. Connecting raises `PoolerBetween` if it leads to
            a pooler.
    """

    async def connect() -> asyncpg.Connection:
        connection = await asyncpg.connect(url)
        # Without values: a pooler may not survive a statement that is prepared.
        own = await connection.execute(f"SELECT WHERE pg_backend_pid() = {connection.get_server_pid()}")
        if own == "SELECT 0":
            await connection.close()
            raise PoolerBetween(
                "A migration needs sessions of its own, and a pooler such as PgBouncer stands before this database. "
                "Set NOVA_DATABASE_OWNER_URL to the address of Postgres itself, for `nova migrate` alone."
            )
        return connection

    return create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)


def head() -> str:
    """Return the revision that this version of the code needs."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    if revision is None:
        raise RuntimeError("The package has no migrations; it was built without models/migrations/versions.")
    return revision


async def current(url: str) -> str | None:
    """Return the database's revision; None for a database that was never migrated."""
    # Without what belongs to a session: a pooler may stand between.
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        async with connection.transaction(readonly=True):
            if not await connection.fetchval("SELECT to_regclass('alembic_version') IS NOT NULL"):
                return None
            return await connection.fetchval("SELECT version_num FROM alembic_version")
    finally:
        await connection.close()


async def upgrade(url: str, revision: str = "head", *, from_baseline: bool = True) -> None:
    """Migrate up to `revision`. Does nothing when the database has it already, or is of a later release.

    Idempotent, and safe in several processes at once: one migrates and the others wait for it.
    Each migration is one transaction. So are all those that the baseline contains, for a new database.

    Args:
        url: Of the database, for a user who may make tables, roles and extensions.
        revision: The last migration, or ``head``.
        from_baseline: Whether a new database that gets all of them may begin with the baseline.
    """

    def run(connection: Connection) -> None:
        found = MigrationContext.configure(connection).get_current_revision()
        is_plain = connection.scalar(_IS_PLAIN)
        connection.rollback()
        if found is not None and found > head():
            # Alembic does not know that revision. Its schema contains what this release needs.
            return
        if is_plain and revision == "head" and from_baseline:
            baseline.begin(connection)
        command.upgrade(_config(connection), revision)
        # Only what is new: the user of a command that finds nothing to do need not own the tables.
        if revision == "head" and connection.scalar(_RECORDED_OLDEST) != OLDEST_PROCESSES:
            connection.execute(_RECORD_OLDEST)
        if revision == "head":
            # An administrator may have made the role since.
            connection.exec_driver_sql(own_audit())
        connection.commit()

    await _under_lock(url, run)


async def downgrade(url: str, revision: str) -> None:
    """Migrate down to `revision`; ``base`` drops everything, with all data."""

    def run(connection: Connection) -> None:
        command.downgrade(_config(connection), revision)

    await _under_lock(url, run)


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


async def _under_lock(url: str, run: _Migration) -> None:
    engine = engine_for(url)
    try:
        async with engine.connect() as lock, engine.connect() as connection:
            await _take_lock(lock)
            await connection.run_sync(run)
    finally:
        # Closing the session that holds the lock frees it.
        await engine.dispose()


async def _take_lock(connection: AsyncConnection) -> None:
    """Wait for the lock by asking again: a statement that waits holds a snapshot.

    CREATE INDEX CONCURRENTLY waits for all older snapshots, so the two would wait for each other.
    """
    session = await connection.execution_options(isolation_level="AUTOCOMMIT")
    while not await session.scalar(_TRY_LOCK, {"key": _LOCK_KEY}):  # noqa: ASYNC110 - the lock is another process's
        await asyncio.sleep(_LOCK_POLL_S)
