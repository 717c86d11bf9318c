"""Sends the outbox: routes inbox items to channels and webhooks, claims due deliveries, records attempts.

A lane is the deliveries to one target: a webhook, a channel, or some of the addresses that a tenant's clients named. A
delivery is due when its `due_at` has passed. Claiming one moves its `due_at` to the end of a lease, which its worker
renews (see `leases`), so a delivery whose worker crashed becomes due again. `claims` grows with each claim and fences
writes of earlier ones. `attempts` is no fence: a released attempt gives its number back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from nova_workers.contracts.deliveries import INBOX, DeliveryItem, NewDelivery
from nova_workers.domain.upkeep.sql.restored import HOLDS_DELIVERIES
from nova_workers.ledger.database import Connection

_ITEM = "d.id, d.tenant_id, d.kind, d.target, d.payload, d.created_at, d.agent_id, d.thread_id, d.run_id, d.webhook_id"

# Takes inbox items that were not routed yet, each once: the mark commits with the copies for channels and webhooks.
# Concurrent routers skip each other's locked rows. Webhooks and channels know a renamed agent by its new id.
_TAKE_UNROUTED = f"""
WITH fresh AS (
    SELECT id FROM deliveries WHERE target = '{INBOX}' AND NOT routed ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE deliveries d
   SET routed = true,
       agent_id = COALESCE((SELECT a.renamed_to FROM agents a WHERE a.tenant_id = d.tenant_id AND a.id = d.agent_id),
                           d.agent_id)
  FROM fresh
 WHERE d.id = fresh.id
RETURNING {_ITEM}, 0 AS attempt, 0 AS claim
"""

# A unique index allows one `run_completed` per run and target, so a repeated effect adds nothing.
_ADD = """
INSERT INTO deliveries (id, tenant_id, kind, target, payload, agent_id, thread_id, run_id, webhook_id)
SELECT * FROM unnest(:ids::text[], :tenant_ids::text[], :kinds::text[], :targets::text[], :payloads::jsonb[],
                     :agent_ids::text[], :thread_ids::text[], :run_ids::text[],
                     :webhook_ids::text[])
    ON CONFLICT DO NOTHING
"""

# Walks from lane to lane by the index, one step per lane however long each is, then takes some of each lane, so that no
# lane delays another. Two processes never claim the same row: rows are locked, and locked rows are skipped. A failing
# webhook gets one attempt at a time, after its rest. A disabled one keeps its deliveries, and a restored fleet all.
# Only a delivery that waits for its next attempt has an error, which tells it from one that is being sent.
_CLAIM = f"""
WITH RECURSIVE lanes AS (
    (SELECT target FROM deliveries WHERE status = 'pending' ORDER BY target LIMIT 1)
    UNION ALL
    SELECT (SELECT d.target FROM deliveries d WHERE d.status = 'pending' AND d.target > l.target
             ORDER BY d.target LIMIT 1)
      FROM lanes l
     WHERE l.target IS NOT NULL
), open AS (
    SELECT l.target, CASE WHEN w.failures >= :rest_after THEN 1 ELSE :per_lane END - coalesce(busy.tries, 0) AS room
      FROM lanes l
      LEFT JOIN unnest(:busy_targets::text[], :busy_tries::int[]) AS busy(target, tries) ON busy.target = l.target
      LEFT JOIN webhooks w ON w.id = l.target COLLATE "C"
     WHERE (l.target = ANY (:channels)
            OR (:pushes AND starts_with(l.target, 'push:'))
            OR (:webhooks AND w.enabled AND (w.rests_until IS NULL OR w.rests_until <= now())))
       AND NOT {HOLDS_DELIVERIES}
     ORDER BY random()
), due AS (
    SELECT found.id
      FROM open
     CROSS JOIN LATERAL (
           SELECT d.id
             FROM deliveries d
            WHERE d.target = open.target AND d.status = 'pending' AND d.due_at <= now()
            ORDER BY d.due_at
            LIMIT greatest(open.room, 0)
              FOR UPDATE SKIP LOCKED) AS found
     LIMIT :limit
)
UPDATE deliveries d
   SET attempts = d.attempts + 1, claims = d.claims + 1, due_at = now() + :lease::interval, error = NULL
  FROM due
 WHERE d.id = due.id
RETURNING {_ITEM}, d.attempts AS attempt, d.claims AS claim
"""

# A successful attempt resets the webhook's failures.
_DELIVERED = """
WITH done AS (
    UPDATE deliveries
       SET status = 'delivered', delivered_at = now(), response_status = :response_status, error = NULL
     WHERE id = :delivery_id AND attempts = :attempt AND claims = :claim AND status = 'pending'
    RETURNING id, webhook_id
), well AS (
    UPDATE webhooks w
       SET failures = 0, failing_since = NULL, rests_until = NULL
      FROM done
     WHERE w.id = done.webhook_id AND w.failures > 0
)
SELECT id FROM done
"""

_FAILED = """
UPDATE deliveries
   SET status = CASE WHEN :give_up THEN 'failed' ELSE 'pending' END, due_at = now() + :delay::interval,
       response_status = :response_status, error = :error
 WHERE id = :delivery_id AND attempts = :attempt AND claims = :claim AND status = 'pending'
RETURNING id
"""

# Rests grow from the first to the longest. `unwanted`: the receiver asked for no more deliveries, so the webhook is
# disabled at once. The row lock makes concurrent failures count one after the other.
_COUNT_FAILURE = """
UPDATE webhooks w
   SET failures = now_at.failures, failing_since = now_at.since,
       rests_until = CASE WHEN now_at.failures >= :rest_after
                          THEN now() + make_interval(secs => least(
                              :longest_rest_s, :first_rest_s * 2.0 ^ least(now_at.failures - :rest_after, 30))) END,
       enabled = NOT now_at.over,
       disabled_reason = CASE WHEN now_at.over THEN
           CASE WHEN :unwanted THEN 'The address says that it wants nothing any more. '
                ELSE now_at.failures || ' tries in a row failed since '
                     || to_char(now_at.since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC. ' END
           || 'The last: ' || :error END
  FROM (SELECT id, failures + 1 AS failures, coalesce(failing_since, now()) AS since,
               :unwanted OR (failures + 1 >= :disable_after
                             AND coalesce(failing_since, now()) <= now() - :disable_span::interval) AS over
          FROM webhooks WHERE id = :webhook_id AND enabled FOR UPDATE) now_at
 WHERE w.id = now_at.id
RETURNING w.enabled, w.url, w.failures, w.disabled_reason
"""


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt.

    Attributes:
        final: Whether it was the last attempt.
        delay: Time until the next attempt.
    """

    error: str
    final: bool
    delay: timedelta = timedelta()
    response_status: int | None = None


@dataclass(frozen=True, slots=True)
class Failing:
    """State of a webhook after a failure."""

    enabled: bool
    url: str
    failures: int
    disabled_reason: str | None


async def take_unrouted(connection: Connection, *, limit: int) -> list[DeliveryItem]:
    """Take inbox items that were not routed, and mark them. Call it in the transaction that adds their copies."""
    return [DeliveryItem(**row) for row in await connection.fetch(_TAKE_UNROUTED, limit=limit)]


async def add_deliveries(connection: Connection, deliveries: Sequence[NewDelivery]) -> None:
    """Add deliveries to the outbox. A second `run_completed` of a run to the same target is skipped."""
    if deliveries:
        await connection.execute(
            _ADD,
            ids=[one.id for one in deliveries],
            tenant_ids=[one.tenant_id for one in deliveries],
            kinds=[one.kind for one in deliveries],
            targets=[one.target for one in deliveries],
            payloads=[one.payload for one in deliveries],
            agent_ids=[one.agent_id for one in deliveries],
            thread_ids=[one.thread_id for one in deliveries],
            run_ids=[one.run_id for one in deliveries],
            webhook_ids=[one.webhook_id for one in deliveries],
        )


async def claim_deliveries(
    connection: Connection,
    *,
    active_attempts: Mapping[str, int],
    per_lane: int,
    rest_after: int,
    channels: Sequence[str],
    webhooks: bool,
    pushes: bool = False,
    limit: int,
    lease: timedelta,
) -> list[DeliveryItem]:
    """Claim due deliveries, some of each lane.

    Args:
        connection: One statement.
        active_attempts: Open attempts of this process, by lane.
        per_lane: Most concurrent attempts of one lane.
        rest_after: A webhook with so many failures gets one attempt at a time.
        channels: Names of this process's channels.
        webhooks: Whether to claim deliveries to webhooks.
        pushes: Whether to claim notifications of the changes of runs.
        limit: Most in all.
        lease: Time until a claimed delivery is due again.
    """
    rows = await connection.fetch(
        _CLAIM,
        busy_targets=list(active_attempts),
        busy_tries=list(active_attempts.values()),
        per_lane=per_lane,
        rest_after=rest_after,
        channels=list(channels),
        webhooks=webhooks,
        pushes=pushes,
        limit=limit,
        lease=lease,
    )
    return [DeliveryItem(**row) for row in rows]


async def settle_delivered(connection: Connection, item: DeliveryItem, response_status: int | None) -> bool:
    """Record a successful attempt. Returns False if its lease was taken over."""
    return (
        await connection.fetchval(
            _DELIVERED,
            delivery_id=item.id,
            attempt=item.attempt,
            claim=item.claim,
            response_status=response_status,
        )
        is not None
    )


async def settle_failed(connection: Connection, item: DeliveryItem, failed: FailedAttempt) -> bool:
    """Record a failed attempt. Returns False if its lease was taken over."""
    return (
        await connection.fetchval(
            _FAILED,
            delivery_id=item.id,
            attempt=item.attempt,
            claim=item.claim,
            give_up=failed.final,
            delay=failed.delay,
            response_status=failed.response_status,
            error=failed.error,
        )
        is not None
    )


async def count_failure(
    connection: Connection,
    webhook_id: str,
    *,
    rest_after: int,
    rest_s: tuple[float, float],
    disable_after: int,
    disable_span: timedelta,
    unwanted: bool,
    error: str,
) -> Failing | None:
    """Count a failure of a webhook, and let it rest or disable it after many.

    Args:
        connection: In the transaction that settles the attempt.
        rest_after: It rests after this many failures in a row.
        rest_s: Its first and its longest rest.
        disable_after: It is disabled after this many failures in a row...
        disable_span: ...if the first of them is at least this long ago.
        unwanted: Disable it at once.
        error: Message of this failure.

    Returns:
        Its state. None if it was deleted or disabled before.
    """
    row = await connection.fetchrow(
        _COUNT_FAILURE,
        webhook_id=webhook_id,
        rest_after=rest_after,
        first_rest_s=rest_s[0],
        longest_rest_s=rest_s[1],
        disable_after=disable_after,
        disable_span=disable_span,
        unwanted=unwanted,
        error=error,
    )
    return None if row is None else Failing(row["enabled"], row["url"], row["failures"], row["disabled_reason"])
