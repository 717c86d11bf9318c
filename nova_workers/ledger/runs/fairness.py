"""Whose turn it is when more stands in line than there are slots, and what a cap holds back.

Tenants and agents in line are found by skipping from one to the next in `ix_runs__fair`, and of each agent the runs are
looked at in their order until one stands on a thread that is free. So what is read grows with what stands in line on
threads that are held, and not with what stands there on others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from nova_workers.contracts.runs import Doorbell
from nova_workers.ledger.database import Connection
from nova_workers.ledger.runs.claim import PAUSED

__all__ = ["Entitled", "Served", "find_entitled", "take_doorbells_under_caps"]

_FRONT = 256
"""Runs of an agent whose threads are looked up one by one, and doorbells of it in a pass of the reconciler."""

# Who stands in line, and how many runs each has: `tenant_runs` and `agent_runs` of this queue, whose slots are dealt
# out; `room` is what caps leave it, which count the runs of both.
_OPEN = f"""
RECURSIVE line AS (
    (SELECT r.tenant_id, r.agent_id
       FROM runs r
      WHERE r.status = 'queued' AND r.queue = :queue AND r.tenant_id >= COALESCE(:tenant_id::text, '')
      ORDER BY r.tenant_id, r.agent_id
      LIMIT 1)
    UNION ALL
    SELECT following.tenant_id, following.agent_id
      FROM line l
     CROSS JOIN LATERAL (
           SELECT r.tenant_id, r.agent_id
             FROM runs r
            WHERE r.status = 'queued' AND r.queue = :queue AND (r.tenant_id, r.agent_id) > (l.tenant_id, l.agent_id)
            ORDER BY r.tenant_id, r.agent_id
            LIMIT 1) following
     WHERE :tenant_id::text IS NULL OR l.tenant_id = :tenant_id
), busy AS MATERIALIZED (
    SELECT tenant_id, agent_id, count(*)::int AS runs, (count(*) FILTER (WHERE queue = :queue))::int AS here
      FROM runs
     WHERE status = 'running'
     GROUP BY tenant_id, agent_id
), busy_tenants AS MATERIALIZED (
    SELECT tenant_id, sum(runs)::int AS runs, sum(here)::int AS here FROM busy GROUP BY tenant_id
), open AS MATERIALIZED (
    SELECT r.tenant_id, r.agent_id, w.weight, COALESCE(bt.here, 0) AS tenant_runs, COALESCE(b.here, 0) AS agent_runs,
           LEAST(w.max_running - COALESCE(bt.runs, 0), a.max_running - COALESCE(b.runs, 0)) AS room
      FROM line r
      JOIN tenants w ON w.id = r.tenant_id
      JOIN agents a ON a.tenant_id = r.tenant_id AND a.id = r.agent_id
      LEFT JOIN busy b ON b.tenant_id = r.tenant_id AND b.agent_id = r.agent_id
      LEFT JOIN busy_tenants bt ON bt.tenant_id = r.tenant_id
     WHERE (:tenant_id::text IS NULL OR r.tenant_id = :tenant_id) AND NOT {PAUSED}
)
"""

# The line of an agent `o`, and whether the thread of a run in it is free. A subquery of one value is looked up row by
# row, in the order of the index, until one is found: as a join it may become a look at every thread.
_LINE = """
q.status = 'queued' AND q.queue = :queue AND q.tenant_id = o.tenant_id AND q.agent_id = o.agent_id
"""
_FREE = "(SELECT h.active_run_id IS NULL FROM threads h WHERE h.id = q.thread_id)"
# The threads of its first runs. Those that are held are told by a hash from then on: a thread that is held with
# thousands in its line costs no look at the thread for each of them.
_FRONT_THREADS = f"""
SELECT f.thread_id
  FROM (SELECT q.thread_id FROM runs q WHERE {_LINE} ORDER BY q.priority DESC, q.queued_at LIMIT {_FRONT}) f
"""
_HELD_IN_FRONT = f"""
SELECT h.id FROM threads h WHERE h.id IN ({_FRONT_THREADS}) AND h.active_run_id IS NOT NULL
"""

# What this process dealt to tenants, and when it served agents, comes with the call; `dealt_floor` counts as nothing.
# On the thread of the doorbell a canceled run may wait for nothing but its end. A tenant that has its share of the
# runs, rounded up, stands back; of the others the one that was dealt the least for its weight is next. Tenants are
# looked into in that order, until one has a thread that is free. Within it: priority, then the agent with the fewest
# runs, the longest not served, and the oldest run. Behind the front of an agent's line is only looked where nobody in
# it stands on a thread that is free.
_ENTITLED = f"""
WITH {_OPEN}, tenant AS MATERIALIZED (
    SELECT o.tenant_id, o.weight,
           o.tenant_runs >= ceil((sum(o.tenant_runs) OVER () + 1) * o.weight::numeric / sum(o.weight) OVER ()) AS sated,
           GREATEST(COALESCE(d.dealt, 0), :dealt_floor::float8) AS dealt,
           o.tenant_id IS NOT DISTINCT FROM :last_tenant_id AS just_served
      FROM (SELECT DISTINCT tenant_id, weight, tenant_runs FROM open WHERE room IS NULL OR room > 0) o
      LEFT JOIN unnest(:dealt_tenants::text[], :dealt_amounts::float8[]) AS d(tenant_id, dealt)
             ON d.tenant_id = o.tenant_id
     ORDER BY sated, dealt, just_served, o.tenant_id
)
SELECT t.tenant_id, t.weight, t.dealt, best.agent_id, best.id, best.thread_id,
       EXISTS (SELECT FROM runs c
                WHERE c.thread_id = :doorbell_thread_id AND c.status = 'queued'
                  AND c.cancel_requested_at IS NOT NULL) AS ends_first
  FROM tenant t
 CROSS JOIN LATERAL (
       SELECT o.agent_id, first.id, first.thread_id
         FROM open o
        CROSS JOIN LATERAL (
              (SELECT q.id, q.thread_id, q.priority, q.queued_at
                 FROM (SELECT q.id, q.thread_id, q.priority, q.queued_at
                         FROM runs q
                        WHERE {_LINE}
                        ORDER BY q.priority DESC, q.queued_at
                        LIMIT {_FRONT}) q
                WHERE NOT q.thread_id = ANY(:passing_over::text[]) AND {_FREE}
                ORDER BY q.priority DESC, q.queued_at
                LIMIT 1)
              UNION ALL
              (SELECT q.id, q.thread_id, q.priority, q.queued_at
                 FROM runs q
                WHERE {_LINE} AND q.thread_id NOT IN ({_FRONT_THREADS})
                  AND NOT q.thread_id = ANY(:passing_over::text[]) AND {_FREE}
                ORDER BY q.priority DESC, q.queued_at
                LIMIT 1)
              LIMIT 1) first
         LEFT JOIN unnest(:served_agents::text[], :served_at::bigint[]) AS s(agent, served)
           ON s.agent = o.tenant_id || '/' || o.agent_id
        WHERE o.tenant_id = t.tenant_id AND (o.room IS NULL OR o.room > 0)
        ORDER BY first.priority DESC, o.agent_runs, COALESCE(s.served, 0), first.queued_at, o.agent_id
        LIMIT 1) best
 ORDER BY t.sated, t.dealt, t.just_served, t.tenant_id
 LIMIT 1
"""

# Under a cap the first of each thread that is free, as many as there is room for beside those of them that were rung of
# late. Marked as rung in the same statement, so that two reconcilers do not ring twice.
_UNDER_CAPS = f"""
WITH {_OPEN}, due AS (
    SELECT next.id
      FROM open o
     CROSS JOIN LATERAL (
           SELECT l.id, l.overdue, count(*) FILTER (WHERE NOT l.overdue) OVER () AS fresh,
                  row_number() OVER (PARTITION BY l.overdue ORDER BY l.priority DESC, l.queued_at) AS place
             FROM (SELECT q.id, q.priority, q.queued_at, q.rang_at < now() - :older_than::interval AS overdue
                     FROM runs q
                    WHERE {_LINE} AND q.thread_id NOT IN ({_HELD_IN_FRONT}) AND {_FREE}
                      AND NOT EXISTS (SELECT FROM runs e
                                       WHERE e.thread_id = q.thread_id AND e.status = 'queued' AND e.seq < q.seq)
                    ORDER BY q.priority DESC, q.queued_at
                    LIMIT {_FRONT}) l) next
     WHERE o.room > 0 AND next.overdue AND next.place <= o.room - next.fresh
)
UPDATE runs r
   SET rang_at = now()
  FROM due
 WHERE r.id = due.id AND r.status = 'queued' AND r.rang_at < now() - :older_than::interval
RETURNING r.id, r.thread_id, r.queue
"""


@dataclass(frozen=True, slots=True)
class Served:
    """What a process has served so far.

    Attributes:
        floor: What a tenant counts as having been dealt at least: who comes late has nothing to catch up.
        dealt: Turns divided by weight, of tenants above the floor.
        agents: When agents were served, as growing numbers, by ``<tenant>/<agent>``.
        last: The tenant that was served last; of equals another goes before it.
    """

    floor: float = 0.0
    dealt: Mapping[str, float] = field(default_factory=dict[str, float])
    agents: Mapping[str, int] = field(default_factory=dict[str, int])
    last: str | None = None


@dataclass(frozen=True, slots=True)
class Entitled:
    """Whose turn it is: a run whose thread is free. The thread's first run is the one that is claimed."""

    bell: Doorbell
    tenant_id: str
    agent_id: str
    weight: int
    dealt: float
    """What its tenant had been dealt before."""
    ends_first: bool
    """The thread that was asked for has a canceled run, which waits for nothing but its end. That goes first."""


async def find_entitled(
    connection: Connection,
    queue: str,
    served: Served | None = None,
    *,
    tenant_id: str | None = None,
    passing_over: Collection[str] = (),
    asked_for: str | None = None,
) -> Entitled | None:
    """Return whose turn it is on a queue.

    Args:
        served: What this process has served so far.
        tenant_id: Only of this tenant.
        passing_over: Threads that are not to be named.
        asked_for: The thread of the doorbell.

    Returns:
        None where nobody stands in line but behind held threads, pauses and caps.
    """
    served = served or Served()
    row = await connection.fetchrow(
        _ENTITLED,
        queue=queue,
        tenant_id=tenant_id,
        dealt_tenants=list(served.dealt),
        dealt_amounts=list(served.dealt.values()),
        dealt_floor=served.floor,
        served_agents=list(served.agents),
        served_at=list(served.agents.values()),
        passing_over=list(passing_over),
        doorbell_thread_id=asked_for,
        last_tenant_id=served.last,
    )
    if row is None:
        return None
    bell = Doorbell(row["id"], row["thread_id"], queue)
    return Entitled(bell, row["tenant_id"], row["agent_id"], row["weight"], row["dealt"], row["ends_first"])


async def take_doorbells_under_caps(connection: Connection, *, queue: str, older_than_s: float) -> list[Doorbell]:
    """Return runs of capped tenants and agents that have room and for which nobody rang of late, as rung."""
    rows = await connection.fetch(_UNDER_CAPS, queue=queue, tenant_id=None, older_than=timedelta(seconds=older_than_s))
    return [Doorbell(row["id"], row["thread_id"], row["queue"]) for row in rows]
