"""Policies of tenants, in versions. A version is never changed; the newest one applies."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nova_workers.base.errors import Conflict
from nova_workers.contracts.content import JsonObject
from nova_workers.ledger.database import Connection, Row

_COLUMNS = "policy_id, number, version, document, created_at"

# The primary key lets one of two concurrent writers of a number win; the other's statement returns no row. A version
# that exists keeps its document.
_PUT = f"""
WITH newest AS (
    SELECT COALESCE(max(number), 0) AS number FROM work_order_policies
     WHERE tenant_id = :tenant_id AND policy_id = :policy_id
)
INSERT INTO work_order_policies (tenant_id, policy_id, number, version, document)
SELECT :tenant_id, :policy_id, n.number + 1, :version, :document
  FROM newest n
 WHERE NOT EXISTS (SELECT FROM work_order_policies
                    WHERE tenant_id = :tenant_id AND policy_id = :policy_id AND version = :version)
ON CONFLICT DO NOTHING
RETURNING {_COLUMNS}
"""

_GET = f"""
SELECT {_COLUMNS} FROM work_order_policies
 WHERE tenant_id = :tenant_id AND policy_id = :policy_id AND (:version::text IS NULL OR version = :version)
 ORDER BY number DESC
 LIMIT 1
"""

_LIST = f"""
SELECT DISTINCT ON (policy_id COLLATE "C") {_COLUMNS} FROM work_order_policies
 WHERE tenant_id = :tenant_id
 ORDER BY policy_id COLLATE "C", number DESC
"""

_VERSIONS = f"""
SELECT {_COLUMNS} FROM work_order_policies
 WHERE tenant_id = :tenant_id AND policy_id = :policy_id AND (:before::int IS NULL OR number < :before)
 ORDER BY number DESC
 LIMIT :limit
"""


_DELETE = """
WITH deleted AS (
    DELETE FROM work_order_policies WHERE tenant_id = :tenant_id AND policy_id = :policy_id RETURNING number
)
SELECT count(*)::int FROM deleted
"""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A stored version of a policy."""

    policy_id: str
    number: int
    version: str
    document: JsonObject
    created_at: datetime


async def put_policy(
    connection: Connection, tenant_id: str, policy_id: str, version: str, document: JsonObject
) -> PolicyRow:
    """Store a policy as its newest version. The same version with the same document changes nothing.

    Raises:
        Conflict: The version exists with another document.
    """
    while True:
        row = await connection.fetchrow(
            _PUT, tenant_id=tenant_id, policy_id=policy_id, version=version, document=document
        )
        if row is not None:
            return PolicyRow(**row)
        found = await get_policy(connection, tenant_id, policy_id, version=version)
        if found is None:
            # Another writer committed this number first; the next one is free.
            continue
        if found.document == document:
            return found
        raise Conflict(
            f"The policy {policy_id!r} has a version {version!r} with other content. A version never changes, since "
            "results of it may be returned again: give the document a new version.",
            policy_id=policy_id,
            version=version,
        )


async def get_policy(
    connection: Connection, tenant_id: str, policy_id: str, *, version: str | None = None
) -> PolicyRow | None:
    """Return a version of a tenant's policy; without `version` the newest."""
    row = await connection.fetchrow(_GET, tenant_id=tenant_id, policy_id=policy_id, version=version)
    return None if row is None else PolicyRow(**row)


async def list_policies(connection: Connection, tenant_id: str) -> list[PolicyRow]:
    """Return the newest version of each of a tenant's policies, by id."""
    return [PolicyRow(**row) for row in await connection.fetch(_LIST, tenant_id=tenant_id)]


async def list_policy_versions(
    connection: Connection, tenant_id: str, policy_id: str, *, before: int | None, limit: int
) -> list[PolicyRow]:
    """Return versions of a tenant's policy, newest first, those before the number `before`."""
    rows: list[Row] = await connection.fetch(
        _VERSIONS, tenant_id=tenant_id, policy_id=policy_id, before=before, limit=limit
    )
    return [PolicyRow(**row) for row in rows]


async def delete_policy(connection: Connection, tenant_id: str, policy_id: str) -> bool:
    """Delete all versions of a tenant's policy. False if the tenant has none."""
    return await connection.fetchval(_DELETE, tenant_id=tenant_id, policy_id=policy_id) > 0
