"""The outbox on its way outside: from the inbox to the lanes of channels, and how each try ended.

A lane is what has one target: a webhook, or a channel. A delivery is due when its time has come. Claiming one moves its
`due_at` to the end of a lease, so that one whose worker died is simply due again; `attempts` grows with each claim and
fences the writes of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from nova_workers.contracts.deliveries import INBOX, DeliveryItem, NewDelivery
from nova_workers.ledger.database import Connection, Row

__all__ = [
    "FailedTry",
    "Failing",
    "add_deliveries",
    "claim_deliveries",
    "count_failure",
    "release_deliveries",
    "settle_delivered",
    "settle_failed",
    "take_unrouted",
]

_ITEM = "d.id, d.tenant_id, d.kind, d.target, d.payload, d.created_at, d.agent_id, d.thread_id, d.run_id, d.webhook_id"

# What came into the inbox and no channel has heard of. Taken once: the mark is part of the transaction that adds the
# rows of the channels.
_TAKE_UNROUTED = f"""
WITH fresh AS (
    SELECT id FROM deliveries WHERE target = '{INBOX}' AND NOT routed ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE deliveries d SET routed = true FROM fresh WHERE d.id = fresh.id
RETURNING {_ITEM}, 0 AS attempt
"""

# A run's end is told once to each target, however often somebody sets about it.
_ADD = """
INSERT INTO deliveries (id, tenant_id, kind, target, payload, agent_id, thread_id, run_id, webhook_id)
SELECT * FROM unnest(:ids::text[], :tenant_ids::text[], :kinds::text[], :targets::text[], :payloads::jsonb[],
                     :agent_ids::text[], :thread_ids::text[], :run_ids::text[],
                     :webhook_ids::text[])
    ON CONFLICT DO NOTHING
"""

# From lane to lane by the index, so that it costs a step a lane, however long each is; then some of each lane, so that
# none holds up another. Rows are locked before they are read, and locked ones are passed over. An address that fails
# gets one try at a time, after a rest; one that is switched off keeps what it has.
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
     WHERE l.target = ANY (:channels)
        OR (:webhooks AND w.enabled AND (w.rests_until IS NULL OR w.rests_until <= now()))
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
   SET attempts = d.attempts + 1, due_at = now() + :lease::interval
  FROM due
 WHERE d.id = due.id
RETURNING {_ITEM}, d.attempts AS attempt
"""

# An address that takes something is well again.
_DELIVERED = """
WITH done AS (
    UPDATE deliveries
       SET status = 'delivered', delivered_at = now(), response_status = :response_status, error = NULL
     WHERE id = :delivery_id AND attempts = :attempt AND status = 'pending'
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
 WHERE id = :delivery_id AND attempts = :attempt AND status = 'pending'
RETURNING id
"""

# Rests grow from the first to the longest. `unwanted`: the address asks for nothing more, and is switched off at once.
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

# Gives deliveries back as if they had not been claimed: the worker stops, which is not the address's fault.
_RELEASE = """
UPDATE deliveries d
   SET attempts = d.attempts - 1, due_at = now()
  FROM unnest(:delivery_ids::text[], :attempts::int[]) AS held(id, attempt)
 WHERE d.id = held.id AND d.attempts = held.attempt AND d.status = 'pending'
"""


@dataclass(frozen=True, slots=True)
class FailedTry:
    """How a try came to nothing.

    Attributes:
        final: Whether there is no other.
        delay: Time until the next.
    """

    error: str
    final: bool
    delay: timedelta = timedelta()
    response_status: int | None = None


@dataclass(frozen=True, slots=True)
class Failing:
    """How a webhook stands after a failure."""

    enabled: bool
    url: str
    failures: int
    disabled_reason: str | None


async def take_unrouted(connection: Connection, *, limit: int) -> list[DeliveryItem]:
    """Take what came into the inbox and was not routed, and mark it. In the transaction that adds what follows."""
    return [_item(row) for row in await connection.fetch(_TAKE_UNROUTED, limit=limit)]


async def add_deliveries(connection: Connection, deliveries: Sequence[NewDelivery]) -> None:
    """Put deliveries into the outbox. The end of a run that a target was told of is left out."""
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
    under_way: Mapping[str, int],
    per_lane: int,
    rest_after: int,
    channels: Sequence[str],
    webhooks: bool,
    limit: int,
    lease: timedelta,
) -> list[DeliveryItem]:
    """Claim deliveries that are due, some of each lane.

    Args:
        connection: One statement.
        under_way: Lanes of this process with tries that have not ended, and how many.
        per_lane: Most tries of one lane at a time.
        rest_after: A webhook with so many failures gets one try at a time.
        channels: Names of the channels that there are here.
        webhooks: Whether webhooks are among them.
        limit: Most in all.
        lease: Time until what is claimed is due again.
    """
    rows = await connection.fetch(
        _CLAIM,
        busy_targets=list(under_way),
        busy_tries=list(under_way.values()),
        per_lane=per_lane,
        rest_after=rest_after,
        channels=list(channels),
        webhooks=webhooks,
        limit=limit,
        lease=lease,
    )
    return [_item(row) for row in rows]


async def settle_delivered(connection: Connection, item: DeliveryItem, response_status: int | None) -> bool:
    """Write that a try came through. Returns whether it counted: one that came too late does not."""
    return (
        await connection.fetchval(
            _DELIVERED, delivery_id=item.id, attempt=item.attempt, response_status=response_status
        )
        is not None
    )


async def settle_failed(connection: Connection, item: DeliveryItem, failed: FailedTry) -> bool:
    """Write that a try came to nothing. Returns whether it counted: one that came too late does not."""
    return (
        await connection.fetchval(
            _FAILED,
            delivery_id=item.id,
            attempt=item.attempt,
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
    """Count a failure of a webhook, let it rest, and switch it off where it is time.

    Args:
        connection: In the transaction that settles the try.
        webhook_id: Which one.
        rest_after: It rests from so many failures in a row on.
        rest_s: Its first and its longest rest.
        disable_after: It is switched off after so many failures in a row...
        disable_span: ...if the first of them is so long ago.
        unwanted: It is switched off at once.
        error: Of this failure.

    Returns:
        How it stands. None where it is gone or was switched off before.
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


async def release_deliveries(connection: Connection, items: Sequence[DeliveryItem]) -> None:
    """Give claimed deliveries back, due at once, without counting the try."""
    await connection.execute(
        _RELEASE, delivery_ids=[item.id for item in items], attempts=[item.attempt for item in items]
    )


def _item(row: Row) -> DeliveryItem:
    return DeliveryItem(**dict(row))
