"""Scheduled runs become queued at their start time; collected messages become one turn."""

from __future__ import annotations

from dataclasses import dataclass

from nova_workers.contracts.runs import Doorbell
from nova_workers.ledger.database import Connection

MAX_COLLECTED = 100
"""Messages of one turn. Further ones become the next turn."""

# Queues due runs. A thread has at most one group of collected messages, which is due when its first message is. Threads
# and runs that another transaction has locked are left to the next pass (SKIP LOCKED), so nothing blocks and what is
# read here cannot change. The first run of a group is queued with the content of all; the others become `merged` into
# it, as with `steer`. A run canceled meanwhile is not among the locked rows.
_PROMOTE = """
WITH thread AS MATERIALIZED (
    SELECT t.id, t.next_seq
      FROM threads t
     WHERE t.id IN (SELECT r.thread_id FROM runs r
                     WHERE r.status = 'scheduled' AND r.start_at <= now()
                       AND (:thread_id::text IS NULL OR r.thread_id = :thread_id)
                     ORDER BY r.start_at
                     LIMIT :limit)
       FOR UPDATE SKIP LOCKED
), held AS MATERIALIZED (
    SELECT r.id, r.thread_id, r.seq, r.start_at, r.on_busy, r.content
      FROM runs r JOIN thread t ON t.id = r.thread_id
     WHERE r.status = 'scheduled' AND (r.start_at <= now() OR r.on_busy = 'collect')
       FOR UPDATE OF r SKIP LOCKED
), numbered AS (
    SELECT h.*, row_number() OVER (PARTITION BY thread_id, on_busy = 'collect' ORDER BY seq) AS nth,
           min(start_at) OVER (PARTITION BY thread_id, on_busy = 'collect') AS first_at
      FROM held h
), due AS MATERIALIZED (
    SELECT n.id, n.thread_id, n.seq, n.content, n.on_busy = 'collect' AS collected,
           n.on_busy = 'collect' AND n.nth > 1 AS joins, n.first_at, n.start_at
      FROM numbered n
     WHERE n.on_busy <> 'collect' OR (n.first_at <= now() AND n.nth <= :most)
), place AS (
    SELECT d.id, t.next_seq - 1 + row_number() OVER (PARTITION BY d.thread_id ORDER BY d.start_at, d.seq) AS seq
      FROM due d JOIN thread t ON t.id = d.thread_id
     WHERE NOT d.joins
), line AS (
    UPDATE threads t
       SET next_seq = t.next_seq + c.runs
      FROM (SELECT thread_id, count(*) AS runs FROM due WHERE NOT joins GROUP BY thread_id) c
     WHERE t.id = c.thread_id
), said AS (
    SELECT d.thread_id, jsonb_agg(b.block ORDER BY d.seq, b.nth) AS content
      FROM due d CROSS JOIN LATERAL jsonb_array_elements(d.content) WITH ORDINALITY AS b(block, nth)
     WHERE d.collected
     GROUP BY d.thread_id
), first AS (
    SELECT id, thread_id FROM due WHERE collected AND NOT joins
), joined AS (
    UPDATE runs r
       SET status = 'merged', merged_into = f.id, finished_at = now(), final_event_id = '0-1'
      FROM due d JOIN first f ON f.thread_id = d.thread_id
     WHERE r.id = d.id AND d.joins
    RETURNING r.id
), queued AS (
    UPDATE runs r
       SET status = 'queued', seq = p.seq, queued_at = now(), rang_at = now(),
           content = CASE WHEN d.collected THEN s.content ELSE r.content END
      FROM due d
      JOIN place p ON p.id = d.id
      LEFT JOIN said s ON s.thread_id = d.thread_id
     WHERE r.id = d.id
    RETURNING r.id, r.thread_id, r.queue
)
SELECT q.id, q.thread_id, q.queue,
       ARRAY(SELECT d.id FROM due d JOIN first f ON f.thread_id = d.thread_id WHERE f.id = q.id AND d.joins) AS joined
  FROM queued q
"""


@dataclass(frozen=True, slots=True)
class Promoted:
    """A run that was queued, and the runs whose messages were merged into it."""

    bell: Doorbell
    joined: tuple[str, ...]


async def promote_due(connection: Connection, *, thread_id: str | None = None, limit: int = 500) -> list[Promoted]:
    """Queue scheduled runs that are due, in one statement.

    Args:
        connection: One statement.
        thread_id: Only of this thread.
        limit: Most due runs to queue.
    """
    rows = await connection.fetch(_PROMOTE, thread_id=thread_id, limit=limit, most=MAX_COLLECTED)
    return [Promoted(Doorbell(row["id"], row["thread_id"], row["queue"]), tuple(row["joined"])) for row in rows]
