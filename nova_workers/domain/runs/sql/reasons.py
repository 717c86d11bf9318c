"""Reads all that may hold a run back, in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nova_workers.base.errors import existing
from nova_workers.base.vocabulary import RunStatus
from nova_workers.contracts.content import JsonObject
from nova_workers.domain.runs.sql.claim import PAUSES
from nova_workers.domain.runs.sql.filters import POSITION
from nova_workers.domain.runs.sql.installs import LACKING
from nova_workers.ledger.database import Connection

_MAX_CALLS = 20

_FACTS = f"""
SELECT r.id AS run_id, r.thread_id, r.status, r.queue, r.attempt, r.losses, r.worker_id, r.queued_at, r.rang_at,
       r.start_at, r.claimed_at, r.lease_expires_at, r.finished_at, r.cancel_requested_at, r.held_since, r.held_until,
       r.hold IS NOT NULL AS is_held, r.hold_detail, now() AS at,
       (SELECT jsonb_agg(jsonb_build_object('scope', s.scope, 'target', s.target, 'reason', s.reason,
                                            'since', s.created_at) ORDER BY s.created_at)
          FROM switches s
         WHERE {PAUSES}) AS pauses,
       b.id AS busy_run_id, b.status AS busy_status, COALESCE(b.claimed_at, b.started_at) AS busy_since,
       f.id AS first_run_id, f.queued_at AS first_since,
       {POSITION} AS before,
       w.max_running AS tenant_most, a.max_running AS agent_most,
       (SELECT count(*)::int FROM runs o WHERE o.tenant_id = r.tenant_id AND o.status = 'running') AS tenant_running,
       (SELECT count(*)::int FROM runs o
         WHERE o.tenant_id = r.tenant_id AND o.agent_id = r.agent_id AND o.status = 'running') AS agent_running,
       {LACKING} AS lacking,
       (SELECT max(m.created_at) FROM messages m WHERE m.turn_id = r.turn_id) AS stepped_at,
       (SELECT jsonb_agg(c.tool_name ORDER BY c.step, c.sequence)
          FROM (SELECT * FROM tool_calls c
                 WHERE c.turn_id = r.turn_id AND c.status IN ('pending', 'approved')
                 ORDER BY c.step, c.sequence
                 LIMIT {_MAX_CALLS}) c) AS calls,
       (SELECT jsonb_agg(jsonb_build_object('kind', x.kind, 'since', x.created_at, 'until', x.due_at,
                                            'child_run_id', x.child_run_id, 'child_status', c.status) ORDER BY x.id)
          FROM run_waits x LEFT JOIN runs c ON c.id = x.child_run_id
         WHERE x.run_id = r.id AND x.status = 'open') AS waits
  FROM runs r
  JOIN threads t ON t.id = r.thread_id
  JOIN tenants w ON w.id = r.tenant_id
  JOIN agents a ON a.tenant_id = r.tenant_id AND a.id = r.agent_id
  LEFT JOIN runs b ON b.id = t.active_run_id AND b.id <> r.id
  LEFT JOIN LATERAL (
        SELECT o.id, o.queued_at FROM runs o
         WHERE o.thread_id = r.thread_id AND o.status = 'queued' AND o.id <> r.id
         ORDER BY o.attempt > 0 DESC, o.front DESC, o.seq
         LIMIT 1) f ON true
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id
"""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the ledger knows of a run that may not move. Times are of Postgres.

    Attributes:
        at: When this was read.
        pauses: Each with `scope`, `target`, `reason` and `since`.
        busy_run_id: Another run that holds the conversation, with its status, and since when it does.
        first_run_id: The first of the other queued runs of the conversation.
        before: How many queued runs of the conversation go before this one, counted up to the limit.
        lacking: The code of users that it needs and no live worker has.
        stepped_at: When the last message of its turn was committed.
        calls: The tools of calls that were committed and have no result.
        waits: Open waits, each with `kind`, `since`, `until`, `child_run_id` and `child_status`.
    """

    run_id: str
    thread_id: str
    status: RunStatus
    queue: str
    attempt: int
    losses: int
    worker_id: str | None
    queued_at: datetime
    rang_at: datetime
    start_at: datetime | None
    claimed_at: datetime | None
    lease_expires_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    is_held: bool
    hold_detail: JsonObject | None
    held_since: datetime | None
    held_until: datetime | None
    at: datetime
    pauses: Sequence[JsonObject]
    busy_run_id: str | None
    busy_status: str | None
    busy_since: datetime | None
    first_run_id: str | None
    first_since: datetime | None
    before: int
    tenant_most: int | None
    agent_most: int | None
    tenant_running: int
    agent_running: int
    lacking: Sequence[str] | None
    stepped_at: datetime | None
    calls: Sequence[str]
    waits: Sequence[JsonObject]


async def read_run_facts(connection: Connection, tenant_id: str, run_id: str) -> RunFacts:
    """Return the facts that may hold a run back.

    Raises:
        NotFound: There is no such run.
    """
    row = existing(await connection.fetchrow(_FACTS, tenant_id=tenant_id, run_id=run_id), "run", run_id)
    listed: dict[str, Any] = {name: row[name] or () for name in ("pauses", "calls", "waits")}
    return RunFacts(**{**row, **listed})
