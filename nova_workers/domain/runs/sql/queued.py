"""Why queued runs wait: how many for which reason. The reason of one run is in `reads`."""

from __future__ import annotations

from nova_workers.contracts.http.fleet import MAX_QUEUED_COUNTED, QueuedGroup
from nova_workers.contracts.runs import SHARED_LOSSES
from nova_workers.domain.runs.sql.installs import LIVE_INSTALL
from nova_workers.ledger.database import Connection

# The oldest queued runs, of one tenant or of all, so that the cost is bounded however long the backlog is. What holds
# an agent's runs back, its pauses and caps, is read once for each agent. The order in a thread is that of the claim.
_COUNT = f"""
WITH oldest AS (
    SELECT r.tenant_id, r.agent_id, r.thread_id, r.queue, r.queued_at, r.losses, r.needs,
           r.agent_version IS NULL AND r.asked_version IS NULL AS is_of_newest,
           r.hold IS NOT NULL AS is_held,
           row_number() OVER (PARTITION BY r.thread_id ORDER BY r.attempt = 0, NOT r.front, r.seq) AS place
      FROM (SELECT * FROM runs
             WHERE status = 'queued' AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
             ORDER BY id
             LIMIT :limit) r
), running AS (
    SELECT tenant_id, agent_id, count(*) AS runs
      FROM runs
     WHERE status = 'running' AND (:tenant_id::text IS NULL OR tenant_id = :tenant_id)
     GROUP BY tenant_id, agent_id
), agent AS (
    SELECT p.tenant_id, p.agent_id,
           (SELECT s.scope FROM switches s
             WHERE s.scope = 'fleet'
                OR (s.scope = 'tenant' AND s.tenant_id = p.tenant_id)
                OR (s.scope IN ('agent', 'rename') AND s.tenant_id = p.tenant_id AND s.target = p.agent_id)
             LIMIT 1) AS paused,
           CASE WHEN w.max_running <= (SELECT COALESCE(sum(x.runs), 0) FROM running x WHERE x.tenant_id = p.tenant_id)
                THEN 'tenant_full'
                WHEN a.max_running <= (SELECT COALESCE(sum(x.runs), 0) FROM running x
                                        WHERE x.tenant_id = p.tenant_id AND x.agent_id = p.agent_id)
                THEN 'agent_full' END AS is_full,
           a.needs
      FROM (SELECT DISTINCT tenant_id, agent_id FROM oldest) p
      JOIN tenants w ON w.id = p.tenant_id
      JOIN agents a ON a.tenant_id = p.tenant_id AND a.id = p.agent_id
)
SELECT o.queue,
       CASE WHEN g.paused = 'rename' THEN 'agent_renamed'
            WHEN g.paused IS NOT NULL THEN g.paused || '_paused'
            WHEN o.is_held THEN 'provider'
            WHEN t.active_run_id IS NOT NULL THEN 'thread_busy'
            WHEN o.place > 1 THEN 'behind_in_thread'
            WHEN g.is_full IS NULL AND n.needs IS NOT NULL
                 AND NOT EXISTS (SELECT FROM worker_installs i WHERE {LIVE_INSTALL} AND n.needs <@ i.provides)
            THEN 'project'
            WHEN g.is_full IS NULL AND o.losses >= {SHARED_LOSSES} THEN 'suspect'
            ELSE COALESCE(g.is_full, 'worker') END AS reason,
       count(*)::int AS runs,
       GREATEST(EXTRACT(EPOCH FROM now() - min(o.queued_at))::float8, 0) AS oldest_age_s
  FROM oldest o
  JOIN threads t ON t.id = o.thread_id
  JOIN agent g ON g.tenant_id = o.tenant_id AND g.agent_id = o.agent_id
 CROSS JOIN LATERAL (SELECT CASE WHEN o.is_of_newest THEN g.needs ELSE o.needs END AS needs) n
 GROUP BY 1, 2
 ORDER BY 3 DESC, 1, 2
"""


async def count_queued(connection: Connection, tenant_id: str | None) -> list[QueuedGroup]:
    """Return how many of the oldest queued runs wait for what, of one tenant or of all; the largest group first."""
    rows = await connection.fetch(_COUNT, tenant_id=tenant_id, limit=MAX_QUEUED_COUNTED)
    return [QueuedGroup(**row) for row in rows]
