"""Reads of the audit log. Postgres writes it (`models/rights/audit.py`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from nova_workers.contracts.http.overview.audit import AuditEventView
from nova_workers.ledger.database import Connection, Snapshot

__all__ = ["AuditFilter", "get_audit_events", "list_audit", "read_audit"]

_CONDITIONS = {
    "actor_id": "e.actor_id = :actor_id",
    "action": "e.action = :action",
    "target_kind": "e.target_kind = :target_kind",
    "target_id": "e.target_id = :target_id",
    "first_id": "e.id >= :first_id",
    "end_id": "e.id < :end_id",
    "before": "e.id < :before",
    "ids": "e.id = ANY (:ids)",
}

_SELECT = """
SELECT e.id, e.at, e.actor_kind, e.actor_id, k.name AS actor_name, e.address, e.trace_id, e.run_id, e.action,
       e.target_kind, e.target_id, e.fields
  FROM audit_events e
  LEFT JOIN api_keys k ON k.tenant_id = e.tenant_id AND k.id = e.actor_id AND e.actor_kind = 'key'
 WHERE e.tenant_id = :tenant_id{conditions}
"""

_IN_ORDER = f"{_SELECT} ORDER BY e.id"
_LIST = f"{_SELECT} ORDER BY e.id DESC LIMIT :limit"
_ROWS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which records; None does not filter."""

    actor_id: str | None = None
    action: str | None = None
    target_kind: str | None = None
    target_id: str | None = None
    since: datetime | None = None
    """Recorded at this time or later. Compared with ids, which begin with it."""
    until: datetime | None = None
    """Recorded before this time."""


async def list_audit(
    connection: Connection, tenant_id: str, which: AuditFilter, *, before: str | None, limit: int
) -> list[AuditEventView]:
    """Return a tenant's records, newest first, from before the id `before`."""
    conditions, given = _conditions(which, before=before)
    rows = await connection.fetch(_LIST.format(conditions=conditions), tenant_id=tenant_id, limit=limit, **given)
    return [AuditEventView.model_validate(dict(row)) for row in rows]


async def get_audit_events(connection: Connection, tenant_id: str, ids: Sequence[str]) -> list[AuditEventView]:
    """Return those of these records that there are, oldest first."""
    statement = _IN_ORDER.format(conditions=f" AND {_CONDITIONS['ids']}")
    rows = await connection.fetch(statement, tenant_id=tenant_id, ids=list(ids))
    return [AuditEventView.model_validate(dict(row)) for row in rows]


async def read_audit(snapshot: Snapshot, tenant_id: str, which: AuditFilter) -> AsyncGenerator[AuditEventView]:
    """Yield a tenant's records, oldest first. Few are in memory at once."""
    conditions, given = _conditions(which)
    statement = _IN_ORDER.format(conditions=conditions)
    async with aclosing(snapshot.rows(statement, at_once=_ROWS_AT_ONCE, tenant_id=tenant_id, **given)) as rows:
        async for row in rows:
            yield AuditEventView.model_validate(dict(row))


def _conditions(which: AuditFilter, *, before: str | None = None) -> tuple[str, dict[str, str]]:
    """Return the conditions of a filter, and their values."""
    values = {
        "actor_id": which.actor_id,
        "action": which.action,
        "target_kind": which.target_kind,
        "target_id": which.target_id,
        "first_id": None if which.since is None else _id_at(which.since),
        "end_id": None if which.until is None else _id_at(which.until),
        "before": before,
    }
    given = {name: value for name, value in values.items() if value is not None}
    return "".join(f" AND {_CONDITIONS[name]}" for name in given), given


def _id_at(moment: datetime) -> str:
    return f"aud_{int(moment.timestamp() * 1_000_000):014x}"
