"""The checks of `nova doctor` of Postgres."""

import re
import time
from collections.abc import Awaitable, Callable
from typing import cast

import asyncpg

from nova_workers.base.errors import in_one_line
from nova_workers.base.release import part
from nova_workers.cli.operations.clocks import skew
from nova_workers.cli.operations.findings import Finding, isolated
from nova_workers.cli.terminal.output import age
from nova_workers.domain.effects.sql import effects_of_missing_packages
from nova_workers.domain.upkeep.sql.cursors import tenants_behind
from nova_workers.ledger.database import Connection
from nova_workers.ledger.schema import read_schema, schema_head

AUDIT_ROLE = part("models.rights.audit_chain").AUDIT_ROLE

MIN_POSTGRES = 150_000
MIN_PGVECTOR = (0, 8)
"""The first with `hnsw.iterative_scan`, which continues along the index when filters leave too few rows."""

_CONNECT_S = 5
_MANY_CONNECTIONS = 0.85
"""The share of the connections of users that are no superusers which is a warning."""
_FEW_CONNECTIONS = 3
LONG_TRANSACTION_S = 300

_CONNECTIONS = """
SELECT (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most
"""

OLDEST_TRANSACTION = """
SELECT pid, COALESCE(usename, '') AS "user", application_name AS program, COALESCE(datname, '') AS database,
       COALESCE(state, 'hidden') AS state, EXTRACT(EPOCH FROM now() - xact_start)::float8 AS age_s
  FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND xact_start IS NOT NULL
 ORDER BY xact_start
 LIMIT 1
"""
_UNREACHABLE = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError)
_Check = Callable[[asyncpg.Connection], Awaitable[Finding | None]]


async def check_database(url: str | None) -> list[Finding]:
    """Check Postgres: reachable, new enough, taking writes, with pgvector, its schema and clock right."""
    if url is None:
        return [Finding("database", "fail", "no URL", "set NOVA_DATABASE_URL, or run `nova up`")]
    try:
        # Without what belongs to a session: a pooler may stand between.
        connection = await asyncpg.connect(url, timeout=_CONNECT_S, statement_cache_size=0)
    except _UNREACHABLE as error:
        fix = "is it running? Check host, user, password and database in NOVA_DATABASE_URL, or run `nova up`"
        return [Finding("database", "fail", in_one_line(error), fix)]
    checks: tuple[tuple[str, _Check], ...] = (
        ("database", _check_version),
        ("database writes", _check_writes),
        ("connections", _check_connections),
        ("long transactions", _check_transactions),
        ("pgvector", _check_vector),
        ("search index", _check_search),
        ("effects of packages", _check_effects),
        ("clock of postgres", _check_clock),
        ("schema", _check_schema),
        ("audit log", _check_audit),
    )
    try:
        return [finding for name, check in checks for finding in await isolated(name, _one(connection, check))]
    finally:
        connection.terminate()


def _one(connection: asyncpg.Connection, check: _Check) -> Callable[[], Awaitable[list[Finding]]]:
    async def run() -> list[Finding]:
        # A transaction each: a statement that fails ends only its own.
        async with connection.transaction():
            found = await check(connection)
        return [] if found is None else [found]

    return run


async def _check_version(connection: asyncpg.Connection) -> Finding:
    number = int(str(await connection.fetchval("SHOW server_version_num")))
    version = str(await connection.fetchval("SHOW server_version"))
    if number >= MIN_POSTGRES:
        return Finding("database", "ok", f"Postgres {version}")
    return Finding("database", "fail", f"Postgres {version}", "move to Postgres 15 or later; 18 is best")


async def _check_writes(connection: asyncpg.Connection) -> Finding | None:
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        fix = "name the primary in NOVA_DATABASE_URL, or all hosts with `target_session_attrs=read-write`"
        return Finding("database writes", "fail", "none: it is a standby", fix)
    if await connection.fetchval("SHOW default_transaction_read_only") == "on":
        fix = "it may be short of disk: make room there, then turn `default_transaction_read_only` off"
        return Finding("database writes", "fail", "none: it is read-only", fix)
    return None


async def _check_connections(connection: asyncpg.Connection) -> Finding:
    row = await connection.fetchrow(_CONNECTIONS)
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    used, most = row["used"], row["most"]
    detail = f"{used} of {most} are in use"
    if used < most * _MANY_CONNECTIONS:
        return Finding("connections", "ok", detail)
    fix = (
        "raise `max_connections`, stop processes that hold more than they need (`SELECT application_name, count(*) "
        "FROM pg_stat_activity GROUP BY 1`), or put a pooler before Postgres; docs/operations.md, `Connections`"
    )
    return Finding("connections", "fail" if used >= most - _FEW_CONNECTIONS else "warn", detail, fix)


async def _check_transactions(connection: asyncpg.Connection) -> Finding | None:
    """Return the oldest transaction of the server that is open for long. Those of other users may be hidden."""
    row = await connection.fetchrow(OLDEST_TRANSACTION)
    if row is None or row["age_s"] < LONG_TRANSACTION_S:
        return None
    program = f"{row['user']!r}" + (f", {row['program']!r}" if row["program"] else "")
    detail = f"one of {program} in the database {row['database']!r} is open for {age(row['age_s'])} ({row['state']})"
    fix = (
        "rows that were deleted or changed since are not cleaned, and changes (`nova watch`, live pages) wait for it. "
        f"If it is not wanted: SELECT pg_terminate_backend({row['pid']})"
    )
    return Finding("long transactions", "warn", detail, fix)


async def _check_vector(connection: asyncpg.Connection) -> Finding:
    installed = await connection.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
    if installed:
        if _release(str(installed)) >= MIN_PGVECTOR:
            return Finding("pgvector", "ok", str(installed))
        fix = "install pgvector 0.8 or later on the database server, then `ALTER EXTENSION vector UPDATE`"
        return Finding("pgvector", "fail", f"{installed} is too old for search by meaning", fix)
    if await connection.fetchval("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"):
        return Finding("pgvector", "fail", "available, but not installed in this database", "run `nova migrate`")
    fix = "install pgvector on the database server (package postgresql-NN-pgvector)"
    return Finding("pgvector", "fail", "not available", fix)


async def _check_search(connection: asyncpg.Connection) -> Finding | None:
    try:
        tenants = await tenants_behind(cast(Connection, connection))
    except asyncpg.UndefinedTableError:
        return None  # the schema has a check of its own
    if not tenants:
        return Finding("search index", "ok", "all earlier messages are in it")
    detail = f"the past of {tenants} tenant{'s' if tenants > 1 else ''} is being looked through for what is missing"
    return Finding("search index", "ok", detail)


async def _check_effects(connection: asyncpg.Connection) -> Finding | None:
    try:
        unclaimed = await effects_of_missing_packages(cast(Connection, connection))
    except asyncpg.UndefinedTableError:
        return None  # the schema has a check of its own
    if not unclaimed:
        return None
    waiting = ", ".join(f"{each.number} of {each.kind} since {each.since:%Y-%m-%d %H:%M} UTC" for each in unclaimed)
    packages = ", ".join(sorted({each.kind.partition(":")[0] for each in unclaimed}))
    fix = (
        f"install {packages} beside a worker that serves the queue `effects`, with NOVA_EFFECTS__PACKAGES as before: "
        "they are executed then"
    )
    return Finding("effects of packages", "warn", f"no live worker has their package: {waiting}", fix)


async def _check_clock(connection: asyncpg.Connection) -> Finding:
    before_s = time.time()
    there_s = float(str(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())")))
    return skew("clock of postgres", there_s, before_s, time.time())


async def _check_schema(connection: asyncpg.Connection) -> Finding:
    needed = schema_head()
    try:
        schema = await read_schema(cast(Connection, connection))
    except asyncpg.PostgresError as error:
        return Finding("schema", "fail", in_one_line(error), "let the database's user read alembic_version")
    problem = schema.problem(needed)
    if problem is not None:
        detail, _, fix = problem.rstrip(".").rpartition(": ")
        return Finding("schema", "fail", detail, fix)
    if schema.revision == needed:
        return Finding("schema", "ok", f"at {needed}")
    detail = f"at {schema.revision}, of a later release; this one is of {needed}, and works on it"
    return Finding("schema", "warn", detail, "upgrade this")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


# The user of the URL, and not a role that it takes on.
_AUDIT_RIGHTS = """
SELECT session_user::text AS name, r.rolsuper AS is_superuser,
       pg_has_role(session_user, t.relowner, 'MEMBER') AS owns_tables,
       pg_has_role(session_user, a.relowner, 'MEMBER') AS owns_log, a.relowner::regrole::text AS owner,
       t.relowner::regrole::text AS tables_owner
  FROM pg_roles r, pg_class t, pg_class a
 WHERE r.rolname = session_user AND t.oid = to_regclass('tenants') AND a.oid = to_regclass('audit_chains')
"""


async def _check_audit(connection: asyncpg.Connection) -> Finding | None:
    """Check who could change the audit log: the user of this URL, or the owner of all other tables."""
    row = await connection.fetchrow(_AUDIT_RIGHTS)
    if row is None:
        return None  # the schema has a check of its own
    if row["is_superuser"] or row["owns_tables"] or row["owns_log"]:
        why = "is a superuser" if row["is_superuser"] else "owns the tables"
        fix = (
            "give API and workers a user of their own in NOVA_DATABASE_URL, and `nova migrate` the owner's in "
            "NOVA_DATABASE_OWNER_URL (docs/security.md#audit-log)"
        )
        return Finding("audit log", "warn", f"{row['name']!r} {why}, and so can change it", fix)
    if row["owner"] != AUDIT_ROLE:
        fix = (
            f"as an administrator of Postgres: CREATE ROLE {AUDIT_ROLE}; GRANT {AUDIT_ROLE} TO {row['owner']}; then "
            "run `nova migrate` again"
        )
        return Finding("audit log", "warn", f"no role of its own owns it, but {row['owner']!r}, as all tables", fix)
    return Finding("audit log", "ok", f"{row['name']!r} reads it, and {row['owner']!r} owns it")
