"""Which queued run goes next when there are more runs than worker slots, and which runs a cap holds back.

Tenants and agents with queued runs are found by skip scans over `ix_runs__fair`. Each agent's runs are examined in
order until one is on a free thread. So the cost grows with the runs queued on held threads, not with all queued runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from nova_workers.contracts.installs import Installation
from nova_workers.contracts.runs import COMMON_POOL, SHARED_LOSSES, Doorbell, WorkerPool
from nova_workers.domain.runs.sql.claim import ANY_LOSSES, PAUSED, TENANT_POOL
from nova_workers.domain.runs.sql.filters import QUEUE_ORDER
from nova_workers.ledger.database import Connection

_FRONT = 256
"""Runs of an agent whose threads are looked up one by one, and its most doorbells in a pass of the reconciler."""

# Tenants and agents with queued runs. `tenant_runs` and `agent_runs` are their running runs of this queue, whose worker
# slots are shared out; `room` is what their caps leave, which count running runs of both queues.
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
     WHERE (:tenant_id::text IS NULL OR r.tenant_id = :tenant_id) AND (:pool::text IS NULL OR {TENANT_POOL} = :pool)
       AND NOT {PAUSED}
       AND (CAST(:provides AS text[]) IS NULL OR a.needs IS NULL OR a.needs <@ CAST(:provides AS text[]))
)
"""

# The queued runs of an agent `o`, and whether a run's thread is free: no run is active, and none is held until a time.
# A scalar subquery is evaluated row by row in index order until one matches; as a join the planner may scan every
# thread.
_LINE = """
q.status = 'queued' AND q.queue = :queue AND q.tenant_id = o.tenant_id AND q.agent_id = o.agent_id
AND (q.hold IS NULL OR q.held_until IS NULL)
"""
_FREE = """
(SELECT h.active_run_id IS NULL
        AND NOT EXISTS (SELECT FROM runs x WHERE x.thread_id = h.id AND x.hold IS NOT NULL AND x.held_until IS NOT NULL)
   FROM threads h WHERE h.id = q.thread_id)
"""
# The threads of the agent's first queued runs. They are excluded by a hash from then on, as are those of its running
# runs: a held thread with thousands of queued runs does not cost a thread lookup for each of them.
_FRONT_THREADS = f"""
SELECT f.thread_id
  FROM (SELECT q.thread_id FROM runs q WHERE {_LINE} ORDER BY q.priority DESC, q.queued_at LIMIT {_FRONT}) f
"""
_RUNNING_THREADS = """
SELECT h.thread_id FROM runs h WHERE h.status = 'running' AND h.tenant_id = o.tenant_id AND h.agent_id = o.agent_id
"""
_HELD_IN_FRONT = f"""
SELECT h.id FROM threads h WHERE h.id IN ({_FRONT_THREADS}) AND h.active_run_id IS NOT NULL
"""

# This process's own counts come with the call: what it dealt to tenants (`dealt_floor` is the minimum) and when it
# served agents. A tenant that already has its share of the running runs, rounded up, comes last; of the others the one
# with the least dealt for its weight is next. Tenants are examined in that order until one has a free thread. Within a
# tenant: priority, then the agent with the fewest running runs, the longest not served, and the oldest run. Runs behind
# the first 256 of an agent are examined only if none of those is on a free thread. `needs_no_slot`: the thread of the
# doorbell has a canceled run, which needs only to be ended, or a suspect, which executes in a process of its own. A
# suspect is chosen by its own doorbell only, unless this process may execute it.
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
                  AND (c.cancel_requested_at IS NOT NULL OR c.losses >= :most_losses)) AS needs_no_slot,
       (SELECT {TENANT_POOL} FROM threads h JOIN tenants w ON w.id = h.tenant_id
         WHERE h.id = :doorbell_thread_id) AS doorbell_pool,
       (SELECT a.needs IS NOT NULL FROM threads h JOIN agents a ON a.tenant_id = h.tenant_id AND a.id = h.agent_id
         WHERE h.id = :doorbell_thread_id) AS doorbell_needs_code
  FROM tenant t
 CROSS JOIN LATERAL (
       SELECT o.agent_id, first.id, first.thread_id
         FROM open o
        CROSS JOIN LATERAL (
              (SELECT q.id, q.thread_id, q.priority, q.queued_at
                 FROM (SELECT q.id, q.thread_id, q.priority, q.queued_at
                         FROM runs q
                        WHERE {_LINE} AND q.losses < :most_losses
                        ORDER BY q.priority DESC, q.queued_at
                        LIMIT {_FRONT}) q
                WHERE NOT q.thread_id = ANY(:excluded_threads::text[]) AND {_FREE}
                ORDER BY q.priority DESC, q.queued_at
                LIMIT 1)
              UNION ALL
              (SELECT q.id, q.thread_id, q.priority, q.queued_at
                 FROM runs q
                WHERE {_LINE} AND q.losses < :most_losses
                  AND q.thread_id NOT IN ({_FRONT_THREADS} UNION ALL {_RUNNING_THREADS})
                  AND NOT q.thread_id = ANY(:excluded_threads::text[]) AND {_FREE}
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

# For capped tenants and agents: the first run of each free thread, up to the room left, less those with a recent
# doorbell. The same statement updates `rang_at`, so two reconcilers do not ring twice.
_UNDER_CAPS = f"""
WITH {_OPEN}, due AS (
    SELECT next.id
      FROM open o
     CROSS JOIN LATERAL (
           SELECT l.id, l.overdue, count(*) FILTER (WHERE NOT l.overdue) OVER () AS fresh,
                  row_number() OVER (PARTITION BY l.overdue ORDER BY l.priority DESC, l.queued_at) AS place
             FROM (SELECT q.id, q.priority, q.queued_at, q.rang_at < now() - :older_than::interval AS overdue
                     FROM runs q
                    WHERE {_LINE} AND q.thread_id NOT IN ({_HELD_IN_FRONT}) AND {_FREE} AND q.rang_at < 'infinity'
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
RETURNING r.id AS run_id, r.thread_id, r.queue
"""


# Of threads whose doorbells reported a suspect, those whose next run is one that a process could claim now; and the
# first of them, which are reserved for the processes that are about to start. Until such a process claims its run,
# `rang_at` is in the future: no other worker starts one for it, and the reconciler does not ring. Runs that ended a
# process of their own come last, since most suspects were only beside such a run; of the others the oldest is first, in
# whatever order their doorbells came. What another transaction has locked is left to the next call.
_SUSPECTS = f"""
WITH due AS MATERIALIZED (
    SELECT next.id, next.thread_id, next.queue, next.losses, next.created_at
      FROM unnest(:thread_ids::text[]) AS w(thread_id)
     CROSS JOIN LATERAL (
           SELECT r.id, r.thread_id, r.queue, r.losses, r.created_at, r.rang_at
             FROM runs r
            WHERE r.thread_id = w.thread_id AND r.status = 'queued' AND NOT {PAUSED}
            ORDER BY {QUEUE_ORDER}
            LIMIT 1) next
     WHERE next.losses >= :shared_losses AND next.rang_at <= now()
       AND (SELECT t.active_run_id IS NULL FROM threads t WHERE t.id = w.thread_id)
), taken AS (
    SELECT r.id
      FROM runs r
     WHERE r.id IN (SELECT d.id FROM due d) AND r.status = 'queued' AND r.rang_at <= now()
     ORDER BY r.losses > :shared_losses, r.created_at, r.id
     LIMIT :most
       FOR UPDATE OF r SKIP LOCKED
), reserved AS (
    UPDATE runs r SET rang_at = now() + :start FROM taken WHERE r.id = taken.id
)
SELECT d.id, d.thread_id, d.queue, taken.id IS NOT NULL AS taken
  FROM due d LEFT JOIN taken ON taken.id = d.id
 ORDER BY d.losses > :shared_losses, d.created_at, d.id
"""


@dataclass(frozen=True, slots=True)
class NextSuspects:
    """What to do with the doorbells of suspects.

    Attributes:
        taken: Reserved: start a process for each, in this order.
        waiting: Threads whose suspects wait for a later call. A suspect of any other thread is ended, held back, or
            another worker's.
    """

    taken: tuple[Doorbell, ...] = ()
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Served:
    """What this process has served so far.

    Attributes:
        floor: The least that counts as dealt to any tenant, so that a new tenant does not catch up.
        dealt: Turns divided by weight, of tenants above the floor.
        agents: When agents were served, as growing numbers, by ``<tenant>/<agent>``.
        last: The tenant that was served last; it comes after its equals.
    """

    floor: float = 0.0
    dealt: Mapping[str, float] = field(default_factory=dict[str, float])
    agents: Mapping[str, int] = field(default_factory=dict[str, int])
    last: str | None = None


@dataclass(frozen=True, slots=True)
class Entitled:
    """The run that goes next. Its thread is free; a claim takes the thread's first run."""

    bell: Doorbell
    tenant_id: str
    agent_id: str
    weight: int
    dealt: float
    """What its tenant had been dealt before this run."""
    needs_no_slot: bool
    """The doorbell's thread has a run that is canceled, or executes in a process of its own, and so goes first."""
    doorbell_pool: str | None = None
    """The pool of workers that the doorbell's thread needs; None without a doorbell."""
    doorbell_needs_code: bool = False
    """Whether the agent of the doorbell's thread needs code of users, which not every worker has."""


async def find_entitled(
    connection: Connection,
    queue: str,
    served: Served | None = None,
    *,
    pool: WorkerPool | None = COMMON_POOL,
    tenant_id: str | None = None,
    excluded_threads: Collection[str] = (),
    doorbell_thread_id: str | None = None,
    with_suspects: bool = True,
    installation: Installation | None = None,
) -> Entitled | None:
    """Return the run that goes next on a queue.

    Args:
        served: What this process has served so far.
        pool: Only of tenants of this pool of workers; None for all.
        tenant_id: Only of this tenant.
        excluded_threads: Threads to leave out.
        with_suspects: Whether a run that lost many workers may be chosen like any other.
        installation: Only of agents that need no other code of users; None for all.

    Returns:
        None if every queued run is behind a held thread, a pause or a full cap.
    """
    served = served or Served()
    row = await connection.fetchrow(
        _ENTITLED,
        queue=queue,
        pool=None if pool is None else pool.name,
        trust_pools={} if pool is None else dict(pool.by_trust),
        tenant_id=tenant_id,
        dealt_tenants=list(served.dealt),
        dealt_amounts=list(served.dealt.values()),
        dealt_floor=served.floor,
        served_agents=list(served.agents),
        served_at=list(served.agents.values()),
        excluded_threads=list(excluded_threads),
        doorbell_thread_id=doorbell_thread_id,
        last_tenant_id=served.last,
        most_losses=ANY_LOSSES if with_suspects else SHARED_LOSSES,
        provides=None if installation is None else list(installation.provides),
    )
    if row is None:
        return None
    bell = Doorbell(row["id"], row["thread_id"], queue)
    return Entitled(
        bell,
        row["tenant_id"],
        row["agent_id"],
        row["weight"],
        row["dealt"],
        row["needs_no_slot"],
        row["doorbell_pool"],
        bool(row["doorbell_needs_code"]),
    )


async def take_doorbells_under_caps(connection: Connection, *, queue: str, older_than_s: float) -> list[Doorbell]:
    """Return runs of capped tenants and agents that have room and no recent doorbell, and record one for each."""
    rows = await connection.fetch(
        _UNDER_CAPS,
        queue=queue,
        pool=None,
        trust_pools={},
        tenant_id=None,
        provides=None,
        older_than=timedelta(seconds=older_than_s),
    )
    return [Doorbell(**row) for row in rows]


async def take_suspects(
    connection: Connection, thread_ids: Collection[str], *, most: int, start_s: float
) -> NextSuspects:
    """Reserve the suspects that go next, of threads whose doorbells reported one.

    Args:
        most: How many processes may start.
        start_s: How long a reservation lasts: the time from here to the claim.
    """
    rows = await connection.fetch(
        _SUSPECTS,
        thread_ids=list(thread_ids),
        shared_losses=SHARED_LOSSES,
        most=most,
        start=timedelta(seconds=start_s),
    )
    return NextSuspects(
        tuple(Doorbell(row["id"], row["thread_id"], row["queue"]) for row in rows if row["taken"]),
        frozenset(row["thread_id"] for row in rows if not row["taken"]),
    )
