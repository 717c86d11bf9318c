"""Reads of the audit log, and records of acts that change no audited row. Postgres writes it (`models/rights/`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

import orjson

from nova_workers.contracts.http.overview.audit import NO_HASH, AuditChainView, AuditEventView
from nova_workers.ledger.database import Connection, Snapshot

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
SELECT e.id, e.tenant_id, e.at, e.actor_kind, e.actor_id, e.actor_name, e.address, e.trace_id, e.run_id, e.action,
       e.target_kind, e.target_id, e.fields, e.arguments_hash, e.times, e.seq, encode(e.hash, 'hex') AS hash
  FROM audit_events e
 WHERE e.tenant_id = :tenant_id{conditions}
"""

_IN_ORDER = f"{_SELECT} ORDER BY e.id"
_IN_CHAIN = f"{_SELECT} ORDER BY e.seq NULLS LAST, e.id"
_LIST = f"{_SELECT} ORDER BY e.id DESC LIMIT :limit"
_ROWS_AT_ONCE = 500

_CHAIN = f"""
SELECT COALESCE(c.seq, 0) AS seq, COALESCE(encode(c.hash, 'hex'), '{NO_HASH}') AS hash, c.sealed_at,
       COALESCE(c.anchor_seq, 0) AS anchor_seq, COALESCE(encode(c.anchor_hash, 'hex'), '{NO_HASH}') AS anchor_hash,
       (SELECT count(*)::int FROM audit_events e WHERE e.tenant_id = t.id AND e.seq IS NULL) AS unsealed
  FROM (SELECT :tenant_id::text AS id) t
  LEFT JOIN audit_chains c ON c.tenant_id = t.id
"""

_RECORD = "SELECT record_act(:action, :kind, :target, :arguments_hash, :tenant_id, :times)"


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
    return [AuditEventView(**row) for row in rows]


async def get_audit_events(connection: Connection, tenant_id: str, ids: Sequence[str]) -> list[AuditEventView]:
    """Return those of these records that there are, oldest first."""
    statement = _IN_ORDER.format(conditions=f" AND {_CONDITIONS['ids']}")
    rows = await connection.fetch(statement, tenant_id=tenant_id, ids=list(ids))
    return [AuditEventView(**row) for row in rows]


async def read_audit(snapshot: Snapshot, tenant_id: str, which: AuditFilter) -> AsyncGenerator[AuditEventView]:
    """Yield a tenant's records in the order of its chain, last those that are not sealed. Few are in memory at once."""
    conditions, given = _conditions(which)
    statement = _IN_CHAIN.format(conditions=conditions)
    async with aclosing(snapshot.rows(statement, at_once=_ROWS_AT_ONCE, tenant_id=tenant_id, **given)) as rows:
        async for row in rows:
            yield AuditEventView(**row)


async def get_audit_chain(connection: Connection, tenant_id: str) -> AuditChainView:
    """Return the chain over a tenant's records."""
    row = await connection.fetchrow(_CHAIN, tenant_id=tenant_id)
    return AuditChainView.model_validate(dict(row or {}))


async def record_act(
    connection: Connection,
    action: str,
    kind: str,
    target: str,
    arguments: Mapping[str, Any],
    *,
    tenant_id: str | None = None,
    times: int = 1,
) -> None:
    """Record what the actor of this context does; without an actor nothing is recorded.

    Args:
        connection: In the transaction of what is recorded, if that writes.
        action: Kind of the thing and a verb, such as ``archive.exported``.
        kind: Of the thing.
        target: Its id.
        arguments: What was given or asked for, of which only the hash is kept.
        tenant_id: In whose log; None is the actor's.
        times: How often.
    """
    await connection.execute(
        _RECORD,
        action=action,
        kind=kind,
        target=target,
        arguments_hash=arguments_hash(arguments),
        tenant_id=tenant_id,
        times=times,
    )


def arguments_hash(arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256 of arguments as JSON with sorted names and no spaces, in hex."""
    return sha256(orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS, default=str)).hexdigest()


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
