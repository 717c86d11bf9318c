"""Counts of runs and queues, and pauses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nova_workers.base.vocabulary import OPEN_RUNS, RUN_QUEUES, PauseScope, sql_list
from nova_workers.contracts.http.fleet import QueueDepth, SwitchView
from nova_workers.contracts.runs import Doorbell
from nova_workers.ledger.database import Connection

_RING_AT_ONCE = 500
"""Doorbells when a scope may run again; the reconciler rings for the rest within seconds."""

# Of one tenant or of all. Open runs come from their partial index, so the cost grows with the backlog only.
_OPEN = f"""
SELECT status, queue, count(*)::int AS runs,
       EXTRACT(EPOCH FROM now() - min(queued_at))::float8 AS oldest_age_s
  FROM runs
 WHERE status IN {sql_list(OPEN_RUNS)} AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
 GROUP BY status, queue
 ORDER BY status, queue
"""

_ENDED = """
SELECT status, count(*)::int AS runs
  FROM runs
 WHERE finished_at > now() - interval '1 hour' AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
 GROUP BY status
 ORDER BY status
"""

_SWITCHES = """
SELECT scope, target, reason, created_at
  FROM switches
 WHERE scope <> 'rename' AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id OR scope = 'fleet')
 ORDER BY created_at, scope, target
"""

_PAUSE = """
INSERT INTO switches (scope, tenant_id, target, reason) VALUES (:scope, :tenant_id, :target, :reason)
ON CONFLICT (scope, tenant_id, target) DO UPDATE SET reason = EXCLUDED.reason
"""

_RESUME = "DELETE FROM switches WHERE scope = :scope AND tenant_id = :tenant_id AND target = :target RETURNING scope"

# One queued run of each thread: a worker that gets its doorbell claims the thread's first run.
_FRONT = """
SELECT DISTINCT ON (thread_id) id AS run_id, thread_id, queue
  FROM runs
 WHERE status = 'queued' AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
   AND (:agent_id::text IS NULL OR agent_id = :agent_id)
 ORDER BY thread_id, seq
 LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class Switch:
    """The scope of a pause: the fleet, a tenant, or an agent of a tenant."""

    scope: PauseScope
    tenant_id: str
    agent_id: str | None = None

    def key(self) -> dict[str, str]:
        """Return its primary key; parts that do not apply are empty."""
        tenant_id = "" if self.scope == "fleet" else self.tenant_id
        target = (self.agent_id or "") if self.scope == "agent" else ""
        return {"scope": self.scope, "tenant_id": tenant_id, "target": target}


@dataclass(frozen=True, slots=True)
class Depth:
    """Open runs and runs that ended in the last hour, by status in a fixed order; and the queues."""

    runs: Mapping[str, int]
    queues: tuple[QueueDepth, ...]


async def fleet_depth(connection: Connection, tenant_id: str | None) -> Depth:
    """Return the numbers of runs and the depths of queues, of one tenant or of all."""
    runs: dict[str, int] = dict.fromkeys(OPEN_RUNS, 0)
    lines: dict[str, QueueDepth] = {
        queue: QueueDepth(queue=queue, queued=0, oldest_queued_age_s=None) for queue in RUN_QUEUES
    }
    for row in await connection.fetch(_OPEN, tenant_id=tenant_id):
        runs[row["status"]] += row["runs"]
        if row["status"] == "queued":
            lines[row["queue"]] = QueueDepth(
                queue=row["queue"], queued=row["runs"], oldest_queued_age_s=max(row["oldest_age_s"], 0.0)
            )
    for row in await connection.fetch(_ENDED, tenant_id=tenant_id):
        runs[row["status"]] = row["runs"]
    return Depth(runs=runs, queues=tuple(lines.values()))


async def list_switches(connection: Connection, tenant_id: str | None) -> list[SwitchView]:
    """Return the pauses that apply to a tenant, or all of them."""
    return [
        SwitchView(scope=row["scope"], target=row["target"] or None, reason=row["reason"], created_at=row["created_at"])
        for row in await connection.fetch(_SWITCHES, tenant_id=tenant_id)
    ]


async def pause(connection: Connection, switch: Switch, reason: str | None) -> None:
    """Pause new runs in the scope. Pausing again changes the reason."""
    await connection.execute(_PAUSE, **switch.key(), reason=reason)


async def resume(connection: Connection, switch: Switch) -> list[Doorbell]:
    """End a scope's pause. If it was paused, return the doorbells to ring (`first_queued_runs`)."""
    if await connection.fetchval(_RESUME, **switch.key()) is None:
        return []
    return await first_queued_runs(connection, switch)


async def first_queued_runs(connection: Connection, switch: Switch) -> list[Doorbell]:
    """Return one queued run of each thread in a scope that may run again, to ring their doorbells."""
    rows = await connection.fetch(
        _FRONT,
        tenant_id=None if switch.scope == "fleet" else switch.tenant_id,
        agent_id=switch.agent_id,
        limit=_RING_AT_ONCE,
    )
    return [Doorbell(**row) for row in rows]
