"""The turns of the current version that the candidate of a rollout answers, too."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from nova_workers.base.ids import id_at
from nova_workers.contracts.http.rollouts import RolloutView, ShadowView
from nova_workers.domain.rollouts.sql.records import HUNDREDTHS
from nova_workers.ledger.database import Connection

WITHIN: Final = timedelta(minutes=15)
"""How long ago a turn may have begun: each look for turns reads as many as began in this time."""

_NOW = "SELECT now()"

# By a hash of the turn that differs from rollout to rollout, so that each time the same turns are chosen.
_CHOOSE = """
SELECT u.run_id
  FROM turns u
 WHERE u.tenant_id = :tenant_id AND u.rollout_id = :rollout_id AND u.agent_version = :version AND u.id >= :first_id
   AND u.status IN ('succeeded', 'failed') AND u.run_id IS NOT NULL
   AND (hashtextextended(u.id, hashtext(:rollout_id)) & 2147483647) % 10000 < :share
   AND NOT EXISTS (SELECT FROM evaluation_trials t WHERE t.run_id = u.run_id)
 ORDER BY u.id
 LIMIT :limit
"""


async def choose_runs(
    connection: Connection, tenant_id: str, rollout: RolloutView, shadow: ShadowView, *, limit: int
) -> list[str]:
    """Return ended runs of the current version that are in the share of the shadow, and that it has not answered."""
    now = await connection.fetchval(_NOW)
    rows = await connection.fetch(
        _CHOOSE,
        tenant_id=tenant_id,
        rollout_id=rollout.id,
        version=rollout.baseline_version,
        first_id=id_at("turn", now - WITHIN),
        share=round(shadow.percent * HUNDREDTHS),
        limit=limit,
    )
    return [row["run_id"] for row in rows]
