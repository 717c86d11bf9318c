"""Moves orders to their next stage, to review and to their end, and finds those that need a move without a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import ENDED_RUNS, OrderState, RoleKind, TrailAudience, WorkStopReason, sql_list
from nova_workers.ledger.database import Connection

_MOVE = """
UPDATE work_orders SET stage = :stage, round = :round WHERE id = :order_id AND state = 'running' RETURNING id
"""

_BEGIN_REVIEW = """
UPDATE work_orders
   SET state = 'review', sealed_draft = :sealed_draft, stop_reason = :stop_reason, needs_human = true,
       review_due_at = now() + :review_hours::float8 * interval '1 hour'
 WHERE id = :order_id AND state = 'running'
RETURNING id
"""

# One statement sets the result, destroys the key with everything that is encrypted under it, and decides how long equal
# orders get the result. Parts that are still open end with the order; their workers settle calls in progress later.
_END = """
WITH ended AS (
    UPDATE work_orders
       SET state = 'ended', stop_reason = :stop_reason, needs_human = :needs_human, outcome = :outcome,
           data_key = NULL, data_key_id = NULL, sealed = NULL, sealed_draft = NULL, reviewed = :reviewed,
           reviewed_by = :reviewed_by, ended_at = now()
     WHERE id = :order_id AND state = :expected AND state <> 'ended'
    RETURNING id, ttl_hours
), parts AS (
    UPDATE work_order_parts p
       SET sealed_output = NULL, stop_reason = COALESCE(p.stop_reason, :stop_reason),
           ended_at = COALESCE(p.ended_at, now())
      FROM ended WHERE p.order_id = ended.id
), kept AS (
    UPDATE work_order_keys k
       SET expires_at = now() + CASE WHEN :cached THEN ended.ttl_hours ELSE 0 END * interval '1 hour'
      FROM ended WHERE k.order_id = ended.id
)
SELECT id FROM ended
"""

_ADD_TRAIL = """
INSERT INTO work_order_trail (id, tenant_id, order_id, audience, event, data)
SELECT t.id, :tenant_id, :order_id, t.audience, t.event, t.data
  FROM unnest(:ids::text[], :audiences::text[], :events::text[], :data::jsonb[]) AS t(id, audience, event, data)
"""

_READ_TRAIL = """
SELECT t.id, t.audience, t.event, t.data, t.created_at
  FROM work_order_trail t
 WHERE t.tenant_id = :tenant_id AND t.order_id = :order_id AND t.audience = ANY(:audiences::text[])
 ORDER BY t.id
"""

# Parts whose run ended without them: canceled, out of attempts, over a budget, or deleted with its thread.
_LOST = f"""
SELECT o.id AS order_id, p.id AS part_id, r.status, r.error_kind
  FROM work_orders o
  JOIN work_order_parts p ON p.order_id = o.id AND p.stop_reason IS NULL
  LEFT JOIN runs r ON r.id = p.run_id
 WHERE o.state = 'running' AND (r.id IS NULL OR r.status IN {sql_list(ENDED_RUNS)})
 ORDER BY o.id
 LIMIT :limit
"""

_OVERDUE = "SELECT id FROM work_orders WHERE state = 'running' AND deadline_at <= now() ORDER BY id LIMIT :limit"

_OVERDUE_REVIEWS = """
SELECT id FROM work_orders WHERE state = 'review' AND review_due_at <= now() ORDER BY id LIMIT :limit
"""

_DELETE_EXPIRED_KEYS = """
DELETE FROM work_order_keys
 WHERE ctid = ANY(ARRAY(SELECT ctid FROM work_order_keys WHERE expires_at <= now() - interval '1 hour' LIMIT :limit))
"""


@dataclass(frozen=True, slots=True)
class OrderEnd:
    """How an order ended. `cached`: whether equal orders get its result."""

    stop_reason: WorkStopReason
    needs_human: bool
    outcome: Mapping[str, Any]
    cached: bool
    reviewed: str | None = None
    reviewed_by: str | None = None


@dataclass(frozen=True, slots=True)
class TrailEntry:
    """An entry to add to a trail. `data` has figures, names and ids, and no content."""

    audience: TrailAudience
    event: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LostPart:
    """An open part whose run has ended, or is gone (`status` is None)."""

    order_id: str
    part_id: str
    status: str | None
    error_kind: str | None


async def move_order(connection: Connection, order_id: str, *, stage: RoleKind, round: int) -> bool:
    """Move a running order to a stage. The caller inserts the stage's parts in the same transaction."""
    return await connection.fetchval(_MOVE, order_id=order_id, stage=stage, round=round) is not None


async def begin_review(
    connection: Connection,
    order_id: str,
    *,
    sealed_draft: bytes,
    stop_reason: WorkStopReason,
    review_hours: float,
) -> bool:
    """Move a running order to review."""
    moved = await connection.fetchval(
        _BEGIN_REVIEW,
        order_id=order_id,
        sealed_draft=sealed_draft,
        stop_reason=stop_reason,
        review_hours=review_hours,
    )
    return moved is not None


async def end_order(connection: Connection, order_id: str, end: OrderEnd, *, expected: OrderState) -> bool:
    """End an order and destroy its key. False if it is not in the expected state, or has ended."""
    ended = await connection.fetchval(
        _END,
        order_id=order_id,
        expected=expected,
        stop_reason=end.stop_reason,
        needs_human=end.needs_human,
        outcome=dict(end.outcome),
        cached=end.cached,
        reviewed=end.reviewed,
        reviewed_by=end.reviewed_by,
    )
    return ended is not None


async def add_trail(connection: Connection, tenant_id: str, order_id: str, entries: Sequence[TrailEntry]) -> None:
    """Append entries to the trail of an order."""
    if not entries:
        return
    await connection.execute(
        _ADD_TRAIL,
        tenant_id=tenant_id,
        order_id=order_id,
        ids=[new_id("wot") for _ in entries],
        audiences=[entry.audience for entry in entries],
        events=[entry.event for entry in entries],
        data=[dict(entry.data) for entry in entries],
    )


async def read_trail(
    connection: Connection, tenant_id: str, order_id: str, audiences: Sequence[TrailAudience]
) -> list[dict[str, Any]]:
    """Return the entries of an order for these readers, oldest first."""
    rows = await connection.fetch(_READ_TRAIL, tenant_id=tenant_id, order_id=order_id, audiences=list(audiences))
    return [dict(row) for row in rows]


async def lost_parts(connection: Connection, *, limit: int) -> list[LostPart]:
    """Return open parts whose run ended without them."""
    return [LostPart(**row) for row in await connection.fetch(_LOST, limit=limit)]


async def overdue_orders(connection: Connection, *, limit: int) -> list[str]:
    """Return running orders whose time is over."""
    return [row["id"] for row in await connection.fetch(_OVERDUE, limit=limit)]


async def overdue_reviews(connection: Connection, *, limit: int) -> list[str]:
    """Return orders whose time for a review is over."""
    return [row["id"] for row in await connection.fetch(_OVERDUE_REVIEWS, limit=limit)]


async def delete_expired_keys(connection: Connection, *, limit: int) -> None:
    """Delete keys that no order can find any more."""
    await connection.execute(_DELETE_EXPIRED_KEYS, limit=limit)
