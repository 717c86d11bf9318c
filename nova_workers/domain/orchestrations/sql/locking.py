"""Locks a tree: the first statement of every transaction that changes it. And reads what no transaction changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from nova_workers.base.errors import OrchestrationError, RunLost, existing
from nova_workers.base.vocabulary import RunQueue
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.orchestration import OrchestrationLimits
from nova_workers.contracts.waits import AwaitMessages
from nova_workers.domain.runs.sql.filters import IS_RUNNING
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.stored import read_stored

EXTERNAL_WAIT_S = 30
"""A wait of an external master that was not renewed for this long is ignored: its request has ended."""

_COLUMNS = f"""
o.id, o.tenant_id, o.agent_id, o.master_id, o.config, o.limits, o.queue, o.deadline_at, o.finished_at, o.is_external,
o.master_seen_at,
(SELECT jsonb_object_agg(w.key, w.value->'request') FROM jsonb_each(o.master_waits) w
  WHERE (w.value->>'at')::timestamptz > now() - interval '{EXTERNAL_WAIT_S} seconds') AS master_waits
"""

_LOCK = f"SELECT {_COLUMNS} FROM orchestrations o WHERE o.tenant_id = :tenant_id AND o.id = :id FOR UPDATE"

# The same for a tool call: only while the calling run is held under its fence, and its agent has not ended. A worker
# that lost the run, or whose agent was killed, changes nothing.
_FIND_OF_RUN = f"""
SELECT {_COLUMNS}
  FROM orchestrations o
 WHERE o.id = :id
   AND EXISTS (SELECT 1 FROM orchestration_agents a JOIN runs r ON r.id = a.run_id
                WHERE a.id = :agent_id AND a.orchestration_id = o.id AND r.id = :run_id AND r.fence = :fence
                  AND {IS_RUNNING} AND a.state NOT IN ('COMPLETED', 'FAILED', 'KILLED'))
"""
_LOCK_OF_RUN = f"{_FIND_OF_RUN} FOR UPDATE OF o"

_SKIP_LOCKED = f"SELECT {_COLUMNS} FROM orchestrations o WHERE o.id = :id FOR UPDATE SKIP LOCKED"

# The same for a request of an external master, which it records.
_LOCK_OF_EXTERNAL = f"""
UPDATE orchestrations o SET master_seen_at = now()
 WHERE o.tenant_id = :tenant_id AND o.id = :id AND o.is_external
   AND EXISTS (SELECT 1 FROM orchestration_agents a
                WHERE a.id = o.master_id AND a.run_id = :run_id
                  AND a.state NOT IN ('COMPLETED', 'FAILED', 'KILLED'))
RETURNING {_COLUMNS}
"""

_CONFIG = "SELECT config FROM orchestrations WHERE tenant_id = :tenant_id AND id = :id"


@dataclass(frozen=True, slots=True)
class LockedTree:
    """An orchestration whose row this transaction has locked."""

    id: str
    tenant_id: str
    agent_id: str
    master_id: str
    config: JsonObject
    """`orchestrations.rules.config.values.OrchestrationConfig`, frozen at the start."""
    limits: OrchestrationLimits
    queue: RunQueue
    deadline_at: datetime | None
    finished_at: datetime | None
    is_external: bool
    """Whether its master is a program outside of the fleet."""
    master_seen_at: datetime | None
    """Latest request of an external master."""
    master_waits: Mapping[str, AwaitMessages]
    """What an external master waits for now, by the keys of its calls."""


async def frozen_config(connection: Connection, tenant_id: str, orchestration_id: str) -> JsonObject:
    """Return the configuration of an orchestration, as it was frozen at its start.

    Raises:
        NotFound: No such orchestration in this tenant.
    """
    row = existing(
        await connection.fetchrow(_CONFIG, tenant_id=tenant_id, id=orchestration_id), "orchestration", orchestration_id
    )
    config: JsonObject = row["config"]
    return config


async def lock_tree(connection: Connection, tenant_id: str, orchestration_id: str) -> LockedTree:
    """Lock an orchestration until the transaction ends.

    Raises:
        NotFound: No such orchestration in this tenant.
    """
    row = existing(
        await connection.fetchrow(_LOCK, tenant_id=tenant_id, id=orchestration_id), "orchestration", orchestration_id
    )
    return _tree(row)


async def lock_tree_of_run(
    connection: Connection, orchestration_id: str, *, agent_id: str, run_id: str, fence: int, lock: bool = True
) -> LockedTree:
    """Lock the orchestration of a running agent for one of its tool calls.

    Args:
        lock: False only reads, for what is prepared before the transaction.

    Raises:
        RunLost: Another claim holds the run, or the agent was ended.
    """
    statement = _LOCK_OF_RUN if lock else _FIND_OF_RUN
    row = await connection.fetchrow(statement, id=orchestration_id, agent_id=agent_id, run_id=run_id, fence=fence)
    if row is None:
        raise RunLost(f"Run {run_id!r} no longer works for agent {agent_id!r}.", run_id=run_id)
    return _tree(row)


async def lock_tree_of_external(
    connection: Connection, tenant_id: str, orchestration_id: str, *, run_id: str
) -> LockedTree:
    """Lock the orchestration of an external master for one of its requests.

    Raises:
        OrchestrationError: The master has ended.
    """
    row = await connection.fetchrow(_LOCK_OF_EXTERNAL, tenant_id=tenant_id, id=orchestration_id, run_id=run_id)
    if row is None:
        raise OrchestrationError(f"The master of orchestration {orchestration_id!r} has ended. Start another one.")
    return _tree(row)


async def skip_locked_trees(connection: Connection, orchestration_id: str) -> LockedTree | None:
    """Lock an orchestration; None if another transaction changes it now, or it is gone."""
    row = await connection.fetchrow(_SKIP_LOCKED, id=orchestration_id)
    return None if row is None else _tree(row)


def _tree(row: Row) -> LockedTree:
    return LockedTree(
        id=row["id"],
        tenant_id=row["tenant_id"],
        agent_id=row["agent_id"],
        master_id=row["master_id"],
        config=row["config"],
        limits=read_stored(OrchestrationLimits.model_validate, row["limits"]),
        queue=row["queue"],
        deadline_at=row["deadline_at"],
        finished_at=row["finished_at"],
        is_external=row["is_external"],
        master_seen_at=row["master_seen_at"],
        master_waits={
            key: read_stored(AwaitMessages.model_validate, request)
            for key, request in (row["master_waits"] or {}).items()
        },
    )
