"""Rows of work orders and of their parts, as the ledger reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nova_workers.base.errors import existing
from nova_workers.base.vocabulary import OrderState, RoleKind, WorkStopReason
from nova_workers.contracts.http.work_orders import WorkOrderPartView
from nova_workers.contracts.waits import HoldDetail
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.stored import read_stored

_ORDER = """
o.id, o.tenant_id, o.scope, o.policy_id, o.policy_version, o.trace, o.presentation_mode, o.customer_trail,
o.internal_trail, o.traceparent, o.state, o.stage, o.round, o.max_rounds, o.ttl_hours, o.deadline_at,
o.data_key, o.data_key_id, o.sealed, o.sealed_draft, o.stop_reason, o.needs_human, o.outcome, o.review_due_at,
o.reviewed, o.created_at, o.ended_at,
CASE o.state WHEN 'running' THEN o.deadline_at <= now() WHEN 'review' THEN o.review_due_at <= now() ELSE false
 END AS overdue,
CASE o.state WHEN 'running' THEN o.deadline_at WHEN 'review' THEN o.review_due_at END <= now() - interval '1 minute'
 AS abandoned
"""

_GET = f"SELECT {_ORDER} FROM work_orders o WHERE o.tenant_id = :tenant_id AND o.id = :order_id"

# The order whose result equal orders share, while it is open and as long as its result is kept, if it is not older than
# the order that asks accepts. Their keys may be those of several secrets.
_FIND = f"""
SELECT {_ORDER}
  FROM work_order_keys k JOIN work_orders o ON o.id = k.order_id
 WHERE k.tenant_id = :tenant_id AND k.key_hash = ANY(:key_hashes::text[]) AND k.policy_version = :policy_version
   AND k.schema_version = :schema_version AND k.expires_at > now()
   AND (o.ended_at IS NULL OR o.ended_at > now() - :ttl_hours::float8 * interval '1 hour')
 ORDER BY o.id
 LIMIT 1
"""

# The first statement of every transition of an order: transitions of one order happen one after the other.
_LOCK = f"SELECT {_ORDER} FROM work_orders o WHERE o.id = :order_id FOR UPDATE"

_LIST = f"""
SELECT {_ORDER} FROM work_orders o
 WHERE o.tenant_id = :tenant_id AND (:before::text IS NULL OR o.id < :before)
   AND (:state::text IS NULL OR o.state = :state) AND (:policy_id::text IS NULL OR o.policy_id = :policy_id)
 ORDER BY o.id DESC
 LIMIT :limit
"""

PART_COLUMNS = """
p.id, p.run_id, p.kind, p.role, p.round, p.position, p.attempts, p.calls, p.used_tokens, p.used_usd::float8 AS used_usd,
p.usage, p.engine, p.model, p.provider, p.sealed_output, p.fingerprint, p.confidence, p.approved, p.stop_reason,
p.created_at, p.ended_at
"""
"""Of a `PartRow`, from ``work_order_parts p``."""

_PARTS = f"SELECT {PART_COLUMNS} FROM work_order_parts p WHERE p.order_id = :order_id ORDER BY p.id"

_PART_VIEWS = """
SELECT p.run_id, r.status AS run_status, p.kind, p.role, p.round, p.engine, p.model, p.provider, p.calls,
       p.used_tokens AS tokens, p.used_usd::float8 AS cost_usd, p.lost_usd::float8 AS lost_usd, p.stop_reason,
       p.created_at, p.ended_at
  FROM work_order_parts p LEFT JOIN runs r ON r.id = p.run_id
 WHERE p.tenant_id = :tenant_id AND p.order_id = :order_id
 ORDER BY p.id
"""

# An equal order wants the result for longer than the one that made it.
_KEEP_LONGER = """
WITH longer AS (
    UPDATE work_orders SET ttl_hours = :ttl_hours
     WHERE id = :order_id AND ttl_hours < :ttl_hours
    RETURNING id, ended_at
)
UPDATE work_order_keys k
   SET expires_at = GREATEST(k.expires_at, longer.ended_at + :ttl_hours::float8 * interval '1 hour')
  FROM longer
 WHERE k.order_id = longer.id AND k.expires_at > now()
"""

_NOT_RUNNING = "SELECT id FROM work_orders WHERE id = ANY(:order_ids::text[]) AND state <> 'running'"

# Open parts whose runs are held: their model provider cannot be used. First the one that is tried next.
_HELD = """
SELECT r.id AS run_id, r.hold_detail, extract(epoch FROM now() - r.held_since)::float8 AS waited_s,
       extract(epoch FROM r.held_until - now())::float8 AS next_try_in_s
  FROM work_order_parts p JOIN runs r ON r.id = p.run_id
 WHERE p.order_id = :order_id AND p.stop_reason IS NULL AND r.hold IS NOT NULL AND r.status = 'queued'
 ORDER BY r.held_until NULLS FIRST, p.id
"""

_OPEN_RUNS = """
SELECT r.id
  FROM work_order_parts p JOIN runs r ON r.id = p.run_id
 WHERE p.order_id = :order_id AND r.finished_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class OrderRow:
    """A work order. `data_key`, `sealed` and `sealed_draft` are ciphertexts, and None after its end."""

    id: str
    tenant_id: str
    scope: str
    policy_id: str
    policy_version: str
    trace: dict[str, Any]
    presentation_mode: str | None
    customer_trail: bool
    internal_trail: bool
    traceparent: str | None
    state: OrderState
    stage: RoleKind
    round: int
    max_rounds: int
    ttl_hours: float
    deadline_at: datetime
    data_key: bytes | None
    data_key_id: str | None
    sealed: bytes | None
    sealed_draft: bytes | None
    stop_reason: WorkStopReason | None
    needs_human: bool
    outcome: dict[str, Any] | None
    review_due_at: datetime | None
    reviewed: str | None
    created_at: datetime
    ended_at: datetime | None
    overdue: bool
    """Whether its time, or that of its review, was over when the row was read. An ended order is not overdue."""
    abandoned: bool | None
    """Whether its time has been over for so long that no process can be expected to end it with its content."""


@dataclass(frozen=True, slots=True)
class PartRow:
    """A model job of an order. `stop_reason` is None while it is open."""

    id: str
    run_id: str
    kind: RoleKind
    role: str
    round: int
    position: int
    attempts: int
    calls: int
    used_tokens: int
    used_usd: float
    usage: dict[str, Any]
    engine: str | None
    model: str | None
    provider: str | None
    sealed_output: bytes | None
    fingerprint: str | None
    confidence: float | None
    approved: bool | None
    stop_reason: WorkStopReason | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class HeldPart:
    """The run of an open part while it waits for its model provider."""

    run_id: str
    detail: HoldDetail
    waited_s: float
    next_try_in_s: float | None
    """Negative if it is due. None: as soon as a worker with a key is free."""


async def get_order(connection: Connection, tenant_id: str, order_id: str) -> OrderRow:
    """Return an order.

    Raises:
        NotFound: No such order in this tenant.
    """
    row = existing(await connection.fetchrow(_GET, tenant_id=tenant_id, order_id=order_id), "work_order", order_id)
    return order_row(row)


async def find_order(
    connection: Connection,
    tenant_id: str,
    key_hashes: Sequence[str],
    *,
    policy_version: str,
    schema_version: str,
    ttl_hours: float,
) -> OrderRow | None:
    """Return the order that an equal order shares, if there is a live one.

    Args:
        key_hashes: The keys of the equal order.
        policy_version: As keys have it.
        schema_version: Of the artifacts.
        ttl_hours: How old a result the equal order accepts.
    """
    row = await connection.fetchrow(
        _FIND,
        tenant_id=tenant_id,
        key_hashes=list(key_hashes),
        policy_version=policy_version,
        schema_version=schema_version,
        ttl_hours=ttl_hours,
    )
    return None if row is None else order_row(row)


async def keep_longer(connection: Connection, order_id: str, ttl_hours: float) -> None:
    """Keep the result of an order, present or future, for equal orders for at least so long after its end."""
    await connection.execute(_KEEP_LONGER, order_id=order_id, ttl_hours=ttl_hours)


async def lock_order(connection: Connection, order_id: str) -> OrderRow | None:
    """Lock an order until the transaction ends, and return its committed state. None if it was deleted."""
    row = await connection.fetchrow(_LOCK, order_id=order_id)
    return None if row is None else order_row(row)


async def list_orders(
    connection: Connection,
    tenant_id: str,
    *,
    before: str | None,
    state: OrderState | None,
    policy_id: str | None,
    limit: int,
) -> list[OrderRow]:
    """Return orders of a tenant, newest first."""
    rows = await connection.fetch(
        _LIST, tenant_id=tenant_id, before=before, state=state, policy_id=policy_id, limit=limit
    )
    return [order_row(row) for row in rows]


async def list_parts(connection: Connection, order_id: str) -> list[PartRow]:
    """Return the parts of an order in the order of their creation."""
    return [PartRow(**row) for row in await connection.fetch(_PARTS, order_id=order_id)]


async def view_parts(connection: Connection, tenant_id: str, order_id: str) -> list[WorkOrderPartView]:
    """Return the parts of an order in the order of their creation, with the states of their runs."""
    rows = await connection.fetch(_PART_VIEWS, tenant_id=tenant_id, order_id=order_id)
    return [WorkOrderPartView(**row) for row in rows]


async def held_parts(connection: Connection, order_id: str) -> list[HeldPart]:
    """Return the parts of an order that wait for a model provider; first the one that is tried next."""
    return [
        HeldPart(
            row["run_id"],
            read_stored(HoldDetail.model_validate, row["hold_detail"]),
            row["waited_s"],
            row["next_try_in_s"],
        )
        for row in await connection.fetch(_HELD, order_id=order_id)
    ]


async def orders_not_running(connection: Connection, order_ids: Sequence[str]) -> set[str]:
    """Return those of these orders that have ended or are in review."""
    return {row["id"] for row in await connection.fetch(_NOT_RUNNING, order_ids=list(order_ids))}


async def open_runs(connection: Connection, order_id: str) -> list[str]:
    """Return the runs of an order that have not ended."""
    return [row["id"] for row in await connection.fetch(_OPEN_RUNS, order_id=order_id)]


def order_row(row: Row) -> OrderRow:
    """Return a row with the columns of an order as a value."""
    return OrderRow(**row)
