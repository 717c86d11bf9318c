"""Rollouts of agents. Each change is guarded by the step that it was decided at, so that it happens once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from nova_workers.base.errors import existing
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import OPEN_ROLLOUTS, sql_list
from nova_workers.contracts.bodies import View
from nova_workers.contracts.http.rollouts import (
    RolloutBreach,
    RolloutLook,
    RolloutStart,
    RolloutStep,
    RolloutView,
    ShadowView,
)
from nova_workers.ledger.database import Connection

HUNDREDTHS = 100
"""The parts of a percent in which the ledger has shares."""

_OPEN = f"status IN {sql_list(OPEN_ROLLOUTS)}"

_COLUMNS = f"""
id, agent_id, version, baseline_version, status, steps, step, share / {HUNDREDTHS}.0::float8 AS percent, step_ends_at,
guardrails, min_runs, run_metadata AS metadata, key_id, shadow, breach, reason, created_at, updated_at, ended_at
"""

_START = f"""
INSERT INTO rollouts (id, tenant_id, agent_id, version, baseline_version, steps, share, step_ends_at, guardrails,
                      min_runs, run_metadata, key_id)
VALUES (:rollout_id, :tenant_id, :agent_id, :version, :baseline_version, :steps, :share, now() + :lasts::interval,
        :guardrails, :min_runs, :metadata, :key_id)
ON CONFLICT (tenant_id, agent_id) WHERE {_OPEN} DO NOTHING
RETURNING {_COLUMNS}
"""

_NEWEST = f"""
SELECT {_COLUMNS} FROM rollouts
 WHERE tenant_id = :tenant_id AND agent_id = :agent_id
 ORDER BY id DESC
 LIMIT 1
"""

_LIST = f"""
SELECT {_COLUMNS} FROM rollouts
 WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND (:before::text IS NULL OR id < :before)
 ORDER BY id DESC
 LIMIT :limit
"""

_LIST_OPEN = f"SELECT tenant_id, agent_id, id FROM rollouts WHERE {_OPEN} ORDER BY id"

_LOCK = f"""
SELECT looks, step_ends_at <= now() AS is_due, {_COLUMNS}
  FROM rollouts WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND {_OPEN}
   FOR UPDATE
"""

# Of the next step. A rollout that waits for an approval continues, too.
_ADVANCE = f"""
UPDATE rollouts
   SET step = step + 1, share = :share, step_ends_at = now() + :lasts::interval, status = 'running', updated_at = now()
 WHERE tenant_id = :tenant_id AND id = :rollout_id AND step = :step AND {_OPEN}
RETURNING {_COLUMNS}
"""

_AWAIT = f"""
UPDATE rollouts
   SET status = 'waiting', step_ends_at = NULL, updated_at = now()
 WHERE tenant_id = :tenant_id AND id = :rollout_id AND step = :step AND status = 'running'
RETURNING {_COLUMNS}
"""

_END = f"""
UPDATE rollouts
   SET status = CASE WHEN :promoted THEN 'promoted' ELSE 'stopped' END, breach = :breach, reason = :reason,
       step_ends_at = NULL, ended_at = now(), promoted_at = CASE WHEN :promoted THEN now() END, updated_at = now()
 WHERE tenant_id = :tenant_id AND id = :rollout_id AND {_OPEN}
RETURNING {_COLUMNS}
"""

_GET = f"SELECT {_COLUMNS} FROM rollouts WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND id = :rollout_id"

# What was found at earlier looks of other guardrails stays.
_SET_SHADOW = f"""
UPDATE rollouts SET shadow = :shadow WHERE tenant_id = :tenant_id AND id = :rollout_id AND {_OPEN}
RETURNING {_COLUMNS}
"""

_RECORD_LOOKS = f"""
UPDATE rollouts SET looks = :looks, judged = judged || :found::jsonb
 WHERE tenant_id = :tenant_id AND id = :rollout_id AND {_OPEN}
"""

_JUDGED = "SELECT looks, judged AS found FROM rollouts WHERE tenant_id = :tenant_id AND id = :rollout_id"

_NEEDS = """
SELECT agent_needs(c.spec) IS NOT DISTINCT FROM agent_needs(b.spec) AS same
  FROM agent_versions c, agent_versions b
 WHERE c.tenant_id = :tenant_id AND c.agent_id = :agent_id AND c.version = :version
   AND b.tenant_id = c.tenant_id AND b.agent_id = c.agent_id AND b.version = :baseline_version
"""


class OpenRollout(RolloutView):
    """A locked rollout that has not ended.

    Attributes:
        looks: Of each guardrail, after how many values of the candidate it was judged last.
        is_due: Whether the time of its step has passed; None if it has none.
    """

    looks: dict[str, int]
    is_due: bool | None


class Judged(View):
    """How far the guardrails of a rollout were judged.

    Attributes:
        looks: Of each, after how many values of the candidate it was judged last.
        found: What that look found.
    """

    looks: dict[str, int]
    found: dict[str, RolloutLook]


async def insert_rollout(
    connection: Connection, tenant_id: str, agent_id: str, start: RolloutStart, *, baseline_version: int
) -> RolloutView | None:
    """Begin a rollout at its first step. None if the agent has an open one."""
    stored = start.model_dump(mode="json")
    first = start.steps[0]
    row = await connection.fetchrow(
        _START,
        rollout_id=new_id("rol"),
        tenant_id=tenant_id,
        agent_id=agent_id,
        version=start.version,
        baseline_version=baseline_version,
        steps=stored["steps"],
        share=_share(first),
        lasts=_lasts(first),
        guardrails=stored["guardrails"],
        min_runs=start.min_runs,
        metadata=stored["metadata"],
        key_id=start.key_id,
    )
    return None if row is None else RolloutView(**row)


async def set_shadow(connection: Connection, tenant_id: str, rollout_id: str, shadow: ShadowView) -> RolloutView:
    """Let a rollout that has just begun have a shadow."""
    row = await connection.fetchrow(
        _SET_SHADOW, tenant_id=tenant_id, rollout_id=rollout_id, shadow=shadow.model_dump(mode="json")
    )
    assert row is not None  # noqa: S101 - this transaction made it
    return RolloutView(**row)


async def find_rollout(connection: Connection, tenant_id: str, agent_id: str) -> RolloutView | None:
    """Return the newest rollout of an agent, which is the open one if there is one."""
    row = await connection.fetchrow(_NEWEST, tenant_id=tenant_id, agent_id=agent_id)
    return None if row is None else RolloutView(**row)


async def get_rollout(connection: Connection, tenant_id: str, agent_id: str, rollout_id: str) -> RolloutView:
    """Return a rollout of an agent.

    Raises:
        NotFound: The agent has had no such rollout.
    """
    row = await connection.fetchrow(_GET, tenant_id=tenant_id, agent_id=agent_id, rollout_id=rollout_id)
    return RolloutView(**existing(row, "rollout", rollout_id))


async def list_rollouts(
    connection: Connection, tenant_id: str, agent_id: str, *, before: str | None, limit: int
) -> list[RolloutView]:
    """Return the rollouts of an agent, newest first, from before the one with the id `before`."""
    rows = await connection.fetch(_LIST, tenant_id=tenant_id, agent_id=agent_id, before=before, limit=limit)
    return [RolloutView(**row) for row in rows]


async def list_open(connection: Connection) -> list[tuple[str, str]]:
    """Return tenant and agent of each open rollout, of all tenants."""
    return [(row["tenant_id"], row["agent_id"]) for row in await connection.fetch(_LIST_OPEN)]


async def lock_open(connection: Connection, tenant_id: str, agent_id: str) -> OpenRollout | None:
    """Return the open rollout of an agent, locked until the transaction ends. The agent is locked before it."""
    row = await connection.fetchrow(_LOCK, tenant_id=tenant_id, agent_id=agent_id)
    return None if row is None else OpenRollout(**row)


async def advance(connection: Connection, tenant_id: str, rollout: RolloutView) -> RolloutView | None:
    """Begin the next step of a rollout. None if it is at another step by now, or has ended."""
    following = rollout.steps[rollout.step + 1]
    row = await connection.fetchrow(
        _ADVANCE,
        tenant_id=tenant_id,
        rollout_id=rollout.id,
        step=rollout.step,
        share=_share(following),
        lasts=_lasts(following),
    )
    return None if row is None else RolloutView(**row)


async def await_approval(connection: Connection, tenant_id: str, rollout: RolloutView) -> RolloutView | None:
    """Let a rollout wait for a person. None if it does already, is at another step, or has ended."""
    row = await connection.fetchrow(_AWAIT, tenant_id=tenant_id, rollout_id=rollout.id, step=rollout.step)
    return None if row is None else RolloutView(**row)


async def end(
    connection: Connection,
    tenant_id: str,
    rollout_id: str,
    *,
    promoted: bool,
    reason: str,
    breach: RolloutBreach | None = None,
) -> RolloutView | None:
    """End a rollout. None if it has ended."""
    row = await connection.fetchrow(
        _END,
        tenant_id=tenant_id,
        rollout_id=rollout_id,
        promoted=promoted,
        reason=reason,
        breach=None if breach is None else breach.model_dump(mode="json"),
    )
    return None if row is None else RolloutView(**row)


async def record_looks(
    connection: Connection,
    tenant_id: str,
    rollout_id: str,
    looks: Mapping[str, int],
    found: Mapping[str, RolloutLook],
) -> None:
    """Record which looks were judged, so that each is judged once, and what they found by measure."""
    await connection.execute(
        _RECORD_LOOKS,
        tenant_id=tenant_id,
        rollout_id=rollout_id,
        looks=dict(looks),
        found={measure: look.model_dump(mode="json") for measure, look in found.items()},
    )


async def read_judged(connection: Connection, tenant_id: str, rollout_id: str) -> Judged:
    """Return how far the guardrails of a rollout were judged.

    Raises:
        NotFound: There is no such rollout.
    """
    row = await connection.fetchrow(_JUDGED, tenant_id=tenant_id, rollout_id=rollout_id)
    return Judged(**existing(row, "rollout", rollout_id))


async def have_same_needs(
    connection: Connection, tenant_id: str, agent_id: str, *, version: int, baseline_version: int
) -> bool:
    """Return whether two versions of an agent need the same code of users."""
    same: Any = await connection.fetchval(
        _NEEDS, tenant_id=tenant_id, agent_id=agent_id, version=version, baseline_version=baseline_version
    )
    return bool(same)


def _share(step: RolloutStep) -> int:
    return round(step.percent * HUNDREDTHS)


def _lasts(step: RolloutStep) -> timedelta | None:
    return None if step.hours is None else timedelta(hours=step.hours)
