"""Row-level security: the database itself keeps tenants apart, also where a statement forgets its tenant.

Two roles, which are of the whole server and have no password:

- `nova_tenant` sees and changes the rows of the tenant that its session's setting ``nova.tenant`` names; none without.
- `nova_fleet` sees and changes the rows of all tenants.

Neither may change tables. The owner of the tables is not subject to policies: migrations and backups see all rows.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, MetaData, event, text

from models.base import metadata

__all__ = ["COMMON_WORDS", "FLEET_ROLE", "TENANT_ROLE", "protect"]

FLEET_ROLE = "nova_fleet"
TENANT_ROLE = "nova_tenant"

_BOUND = "current_setting('nova.tenant', true)"
_TENANT_COLUMNS = {"tenants": "id"}
"""The column with the tenant, where it is not `tenant_id`."""

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


def protect(table: str) -> list[str]:
    """Return the statements that turn row-level security on for a table with a tenant. They may be repeated."""
    column = _TENANT_COLUMNS.get(table, "tenant_id")
    policies = {
        "fleet": f"TO {FLEET_ROLE} USING (true)",
        "tenant": f"TO {TENANT_ROLE} USING ({column} = {_BOUND})",
    }
    if table == "switches":
        # A pause of the fleet holds back the runs of every tenant, and each may see that.
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
        if "tenant_id" in table.columns or table.name in _TENANT_COLUMNS:
            for statement in protect(table.name):
                connection.execute(text(statement))
    connection.execute(text(COMMON_WORDS))
