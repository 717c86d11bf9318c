"""Configurations of orchestrations, in versions. A version is never changed; the newest one applies."""

from __future__ import annotations

from nova_workers.base.errors import NotFound, VersionMismatch
from nova_workers.contracts.http.orchestration_config import OrchestrationConfigInfo, OrchestrationConfigView
from nova_workers.ledger.database import Connection

# A version follows the newest one. The primary key lets one of two concurrent writers win; the other's statement
# returns no row. Equal texts make no version, so that a repeated PUT changes nothing.
_PUT = """
WITH newest AS (
    SELECT version, text, models_text FROM orchestration_configs
     WHERE tenant_id = :tenant_id ORDER BY version DESC LIMIT 1
), present AS (
    SELECT COALESCE((SELECT version FROM newest), 0) AS version
)
INSERT INTO orchestration_configs (tenant_id, version, text, models_text, created_by)
SELECT :tenant_id, p.version + 1, :text, :models_text, :created_by
  FROM present p
 WHERE p.version = :expected
   AND NOT EXISTS (SELECT FROM newest WHERE text = :text AND models_text = :models_text)
ON CONFLICT (tenant_id, version) DO NOTHING
RETURNING version, text, models_text, created_by, created_at
"""

_GET = """
SELECT version, text, models_text, created_by, created_at
  FROM orchestration_configs
 WHERE tenant_id = :tenant_id AND (:version::int IS NULL OR version = :version)
 ORDER BY version DESC
 LIMIT 1
"""

_CONFIGURED = """
SELECT DISTINCT c.tenant_id FROM orchestration_configs c JOIN tenants t ON t.id = c.tenant_id
 WHERE t.ending_at IS NULL
 ORDER BY c.tenant_id
"""

_LIST = """
SELECT version, created_by, created_at, octet_length(text) + octet_length(models_text) AS size_bytes
  FROM orchestration_configs
 WHERE tenant_id = :tenant_id AND (:before::int IS NULL OR version < :before)
 ORDER BY version DESC
 LIMIT :limit
"""

_UNWRITTEN = OrchestrationConfigView(version=0, text="", models_text="", created_by="default", created_at=None)


async def put_config(
    connection: Connection,
    tenant_id: str,
    *,
    text: str,
    models_text: str,
    created_by: str,
    expected: int,
) -> OrchestrationConfigView:
    """Store a configuration as the next version. An equal one changes nothing.

    Args:
        connection: Where.
        tenant_id: Whose.
        text: The configuration, which is known to be right.
        models_text: The ``models.yaml`` beside it.
        created_by: ``person`` or ``discovery``.
        expected: The version that this one follows, 0 for the first.

    Raises:
        VersionMismatch: The newest version is not `expected`.
    """
    row = await connection.fetchrow(
        _PUT, tenant_id=tenant_id, text=text, models_text=models_text, created_by=created_by, expected=expected
    )
    if row is not None:
        return OrchestrationConfigView(**row)
    newest = await get_config(connection, tenant_id)
    if expected != newest.version:
        raise not_at(expected, newest.version)
    return newest


def not_at(expected: int, version: int) -> VersionMismatch:
    """Return the refusal of a change of another version than the newest."""
    return VersionMismatch(
        f"The configuration of orchestrations is at version {version} and not at {expected}. Read it again, then "
        "change it.",
        version=version,
        expected=expected,
    )


async def configured_tenants(connection: Connection) -> list[str]:
    """Return the tenants that have stored a configuration."""
    return [row["tenant_id"] for row in await connection.fetch(_CONFIGURED)]


async def get_config(connection: Connection, tenant_id: str) -> OrchestrationConfigView:
    """Return the newest configuration; version 0 without any text if none was ever stored."""
    row = await connection.fetchrow(_GET, tenant_id=tenant_id, version=None)
    return _UNWRITTEN if row is None else OrchestrationConfigView(**row)


async def get_config_version(connection: Connection, tenant_id: str, version: int) -> OrchestrationConfigView:
    """Return a version of the configuration.

    Raises:
        NotFound: It never had that version.
    """
    row = await connection.fetchrow(_GET, tenant_id=tenant_id, version=version)
    if row is None:
        text = f"The configuration of orchestrations has no version {version}."
        raise NotFound(text, kind="orchestration_config_version", id=version)
    return OrchestrationConfigView(**row)


async def list_config_versions(
    connection: Connection, tenant_id: str, *, before: int | None, limit: int
) -> list[OrchestrationConfigInfo]:
    """Return versions, newest first, those before `before`."""
    rows = await connection.fetch(_LIST, tenant_id=tenant_id, before=before, limit=limit)
    return [OrchestrationConfigInfo(**row) for row in rows]
