"""What a backup records of a database beside its dump, and what a restore compares: of all tenants, for operators."""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.ledger.database import Connection

_MAJOR = "SELECT current_setting('server_version_num')::int / 10000"

# Tables that no extension brings. The schema's version is the backup's own.
_TABLES = """
SELECT c.relname FROM pg_class c
 WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND c.relname <> 'alembic_version'
   AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
 ORDER BY 1
"""

_OWNS_TABLES = "SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'public.tenants'::regclass"

_HAS_OBJECTS = """
SELECT EXISTS (
    SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
       AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e'))
"""

# Roles with rights on the schema, its tables and functions, beside their owners and the roles of Postgres itself.
_ROLES = """
SELECT DISTINCT r.rolname
  FROM (SELECT relacl AS acl, relowner AS owner FROM pg_class WHERE relnamespace = 'public'::regnamespace
        UNION ALL SELECT proacl, proowner FROM pg_proc WHERE pronamespace = 'public'::regnamespace
        UNION ALL SELECT nspacl, nspowner FROM pg_namespace WHERE nspname = 'public') granted
 CROSS JOIN LATERAL aclexplode(granted.acl) one
  JOIN pg_roles r ON r.oid = one.grantee
 WHERE one.grantee <> granted.owner AND r.rolname !~ '^pg_'
 ORDER BY 1
"""

_MISSING_ROLES = """
SELECT wanted.name FROM unnest(:roles::text[]) wanted(name)
 WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = wanted.name)
 ORDER BY 1
"""

# Others of these names have ids of API keys, which their comments say. Old releases commented no column.
_KEY_COLUMNS = """
SELECT c.relname AS table_name, a.attname AS column_name
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attname IN ('key_id', 'data_key_id')
   AND COALESCE(col_description(c.oid, a.attnum), 'master key') LIKE '%master key%'
 ORDER BY 1, 2
"""

_VECTOR = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
_EXPORT = "SELECT pg_export_snapshot()"


async def major_version(connection: Connection) -> int:
    """Return the server's major version."""
    return int(await connection.fetchval(_MAJOR))


async def vector_version(connection: Connection) -> str:
    """Return the version of pgvector; empty without it."""
    return str(await connection.fetchval(_VECTOR) or "")


async def export_snapshot(connection: Connection) -> str:
    """Return the id under which other sessions see what this transaction sees, until it ends."""
    return str(await connection.fetchval(_EXPORT))


async def has_objects(connection: Connection) -> bool:
    """Return whether the database has a table, or anything else that no extension brings."""
    return bool(await connection.fetchval(_HAS_OBJECTS))


async def owns_tables(connection: Connection) -> bool:
    """Return whether this user is the owner of the fleet's tables, who alone sees all rows and sequences."""
    return bool(await connection.fetchval(_OWNS_TABLES))


async def count_rows(connection: Connection) -> dict[str, int]:
    """Return the number of rows of each table. Reads all of them."""
    tables = [str(row["relname"]) for row in await connection.fetch(_TABLES)]
    return {table: int(await connection.fetchval(f'SELECT count(*) FROM public."{table}"')) for table in tables}


async def granted_roles(connection: Connection) -> tuple[str, ...]:
    """Return the roles with rights on something in the database."""
    return tuple(row["rolname"] for row in await connection.fetch(_ROLES))


async def missing_roles(connection: Connection, roles: Sequence[str]) -> list[str]:
    """Return those of the roles that the server does not have."""
    return [row["name"] for row in await connection.fetch(_MISSING_ROLES, roles=list(roles))]


async def master_key_ids(connection: Connection) -> tuple[str, ...]:
    """Return the ids of the master keys under which anything is encrypted, in a schema of any release."""
    found: set[str] = set()
    for row in await connection.fetch(_KEY_COLUMNS):
        table, column = row["table_name"], row["column_name"]
        statement = f'SELECT DISTINCT "{column}" AS id FROM public."{table}" WHERE "{column}" IS NOT NULL'
        found |= {str(each["id"]) for each in await connection.fetch(statement)}
    return tuple(sorted(found))
