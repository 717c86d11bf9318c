"""One migrated database for the tests of a process, one after another: emptying it is cheaper than making a new one."""

from __future__ import annotations

import asyncio

import asyncpg

from nova_workers.ledger.named_sql import bind
from tests.support.harness.warm_sessions import warm_sessions
from tests.support.servers.databases import create_database, drop_database

_MAX_GROWN_BYTES = 8_000_000
"""Without indexes. A larger one has much to delete, and pages that are nearly empty."""

_CLOSE_S = 10.0

_TERMINATE = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> ALL(:kept::int[])
"""

# All but rows: a test may also change tables, constraints, triggers, functions, policies, rights, statistics,
# settings. A row of the catalogue that was changed in place has a newer transaction; TRUNCATE changes `pg_class` too.
# The newest transaction is known by its distance from one that is fixed: reading each row's as a number costs twice as
# much.
_SHAPE = """
SELECT (SELECT version_num FROM alembic_version), (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_statistic),
       (SELECT count(*) FROM pg_db_role_setting),
       (SELECT sum(hashtext(concat_ws('/', relname, relowner, relacl, relrowsecurity, reloptions))) FROM pg_class),
       (SELECT (count(*), age('100'::xid) - min(age(xmin))) FROM pg_attribute),
       (SELECT (count(*), age('100'::xid) - min(age(xmin))) FROM pg_constraint),
       (SELECT (count(*), age('100'::xid) - min(age(xmin))) FROM pg_trigger),
       (SELECT (count(*), age('100'::xid) - min(age(xmin))) FROM pg_proc),
       (SELECT (count(*), age('100'::xid) - min(age(xmin))) FROM pg_policy)
"""

# A table with a page has had a row.
_FILLED = """
WITH filled AS MATERIALIZED (
    SELECT oid, relname FROM pg_class
     WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'alembic_version'
       AND pg_relation_size(oid) > 0
)
SELECT quote_ident(relname) AS name, pg_table_size(oid) AS bytes FROM filled
"""

# No trigger and no foreign key acts meanwhile: all rows go.
_DELETE = """
BEGIN;
SET LOCAL session_replication_role = replica;
{deletes};
SELECT setval(seqrelid::regclass, seqstart, false) FROM pg_sequence;
COMMIT
"""


class ReusedDatabase:
    """A database that each test finds as if it were new.

    It keeps one connection, on a loop of its own: connecting anew before each test would double the cost.

    Args:
        admin_url: URL of the maintenance database.
    """

    def __init__(self, admin_url: str) -> None:
        self._admin_url = admin_url
        self._loop = asyncio.new_event_loop()
        self._url: str | None = None
        self._connection: asyncpg.Connection | None = None
        self._shape: asyncpg.Record | None = None

    def as_new(self) -> str:
        """Return its URL. No rows of earlier tests are left, and of their sessions warm ones only.

        It is replaced if a test changed its schema.
        """
        return self._loop.run_until_complete(self._as_new())

    def close(self) -> None:
        """Close the connection. The database ends with its server."""
        if self._connection is not None:
            self._loop.run_until_complete(self._connection.close(timeout=_CLOSE_S))
        self._loop.close()

    async def _as_new(self) -> str:
        if (
            self._url is not None
            and self._connection is not None
            and not await self._is_emptied(self._url, self._connection)
        ):
            self._connection.terminate()
            warm_sessions.end_those_of(self._url)
            await drop_database(self._admin_url, self._url)
            self._url = None
        if self._url is None:
            self._url = await create_database(self._admin_url)
            self._connection = connection = await asyncpg.connect(self._url)
            warm_sessions.keep_those_of(self._url)
            self._shape = await connection.fetchrow(_SHAPE)
        return self._url

    async def _is_emptied(self, url: str, connection: asyncpg.Connection) -> bool:
        try:
            text, arguments = bind(_TERMINATE, {"kept": warm_sessions.pids(url)})
            await connection.fetch(text, *arguments)
            filled = await connection.fetch(_FILLED)
            grown_bytes = sum(int(row["bytes"]) for row in filled)
            if grown_bytes > _MAX_GROWN_BYTES or await connection.fetchrow(_SHAPE) != self._shape:
                return False
            if names := [str(row["name"]) for row in filled]:
                deletes = ";".join(f"DELETE FROM {name}" for name in names)
                await connection.execute(_DELETE.format(deletes=deletes))
                # Their files are empty again too: rows of the next test lie in the order in which it inserts them.
                await connection.execute(f"VACUUM (SKIP_DATABASE_STATS) {', '.join(names)}")
        except (asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError, asyncpg.InterfaceError):
            # The test ended every connection of its database.
            return False
        return True
