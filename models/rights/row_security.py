"""Row-level security: the database itself keeps tenants apart, also where a statement forgets its tenant.

Two roles, which are of the whole server and have no password:

- `nova_tenant` sees and changes the rows of the tenant that its session's setting ``nova.tenant`` names; none without.
- `nova_fleet` sees and changes the rows of all tenants.

Neither may change tables. The owner of the tables is not subject to policies: migrations and backups see all rows.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, MetaData, event, text

from ..base import metadata

FLEET_ROLE = "nova_fleet"
TENANT_ROLE = "nova_tenant"

_BOUND = "current_setting('nova.tenant', true)"
_TENANT_COLUMNS = {"tenants": "id"}
"""The column with the tenant, where it is not `tenant_id`."""

_FLEET_ONLY = frozenset({"worker_drains", "worker_sessions"})
"""Tables without a tenant that no tenant's session sees."""

DEFAULT_RIGHTS = (
    f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES "
    f"TO {FLEET_ROLE}, {TENANT_ROLE}"
)
"""The default rights for the tables that later migrations of the same user make."""

# Roles are of the whole server: another database of it may have made them, or make them at this moment.
_MAKE_ROLE = """
DO $$
BEGIN
    CREATE ROLE {role} NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN
            RAISE EXCEPTION 'The user % may not make roles. As one who may, run: CREATE ROLE {role}', current_user;
        END IF;
END
$$
"""
# So that deployments in which the owner is also the user of API and workers continue as they are.
_JOIN = f"""
DO $$
BEGIN
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        EXECUTE format('GRANT {FLEET_ROLE}, {TENANT_ROLE} TO %I', current_user);
    END IF;
EXCEPTION
    -- An administrator made the roles, and decides who takes them on.
    WHEN insufficient_privilege OR invalid_grant_operation THEN NULL;
END
$$
"""

COMMON_WORDS = """
CREATE OR REPLACE FUNCTION message_word_shares() RETURNS TABLE (lexeme text, share real)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
AS $$
SELECT e.lexeme, e.share
  FROM pg_stats s
 CROSS JOIN LATERAL unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) AS e (lexeme, share)
 WHERE s.schemaname = current_schema() AND s.tablename = 'message_texts' AND s.attname = 'words'
$$
"""
"""Statistics of a table with policies are hidden from all but its owner, and message search needs those of words."""


_FLEET_WIDE = frozenset({"switches", "changes"})
"""Tables of tenants with rows of the whole fleet: its pause holds back the runs of every tenant, which may see that."""

_SEEN_BY_TENANTS = frozenset({"worker_installs"})
"""Tables without a tenant that the sessions of tenants read: which workers may execute their runs."""


def make_roles() -> list[str]:
    """Return the statements that make both roles, and let the current user take them on. They may be repeated."""
    return [*(_MAKE_ROLE.format(role=role) for role in (FLEET_ROLE, TENANT_ROLE)), _JOIN]


def protect(table: str) -> list[str]:
    """Return the statements that turn row-level security on for a table. They may be repeated."""
    column = _TENANT_COLUMNS.get(table, "tenant_id")
    policies = {"fleet": f"TO {FLEET_ROLE} USING (true)"}
    if table in _SEEN_BY_TENANTS:
        policies["tenant"] = f"FOR SELECT TO {TENANT_ROLE} USING (true)"
    elif table not in _FLEET_ONLY:
        policies["tenant"] = f"TO {TENANT_ROLE} USING ({column} = {_BOUND})"
    if table in _FLEET_WIDE:
        policies["fleet_wide"] = f"FOR SELECT TO {TENANT_ROLE} USING (tenant_id = '')"
    made = [
        statement
        for name, rule in policies.items()
        for statement in (f"DROP POLICY IF EXISTS {name} ON {table}", f"CREATE POLICY {name} ON {table} {rule}")
    ]
    return [*made, f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"]


@event.listens_for(metadata, "after_create")
def _protect_created(_: MetaData, connection: Connection, *, tables: Sequence[Any], **__: object) -> None:
    """Do for tables made from the metadata what the migrations did."""
    for table in tables:
        if "tenant_id" in table.columns or table.name in {*_TENANT_COLUMNS, *_FLEET_ONLY, *_SEEN_BY_TENANTS}:
            for statement in protect(table.name):
                connection.execute(text(statement))
    connection.execute(text(COMMON_WORDS))
