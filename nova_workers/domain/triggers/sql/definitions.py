"""Rows of triggers. Validation is done by the caller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any

from nova_workers.base.errors import LimitExceeded, deleted, existing
from nova_workers.contracts.http.triggers import CatchUp, Overlap, TriggerAction, TriggerKind, TriggerView
from nova_workers.ledger.database import Connection, Row

MAX_AGENT_TRIGGERS = 50
"""An agent's. Approximate: two concurrent creates may both take the last free place."""

_COLUMNS = """
id, agent_id, kind, schedule, timezone, prompt, action, title, enabled, thread_id, starts_at, ends_at, created_by,
created_at, updated_at, jitter_s, overlap, catchup_s, catchup, max_runs_per_day, max_cost_usd_per_day,
pause_after_failures, gate, failures, paused_reason, next_slot_at, next_fire_at
"""

# The database's clock decides what is due, so a wrong clock of a process does no harm.
_NOW = "SELECT now()"

# `created_at` is the moment from which its occurrences were computed.
_CREATE = f"""
INSERT INTO triggers (id, tenant_id, agent_id, created_by, created_at, kind, schedule, timezone, prompt, action, title,
                      enabled, thread_id, starts_at, ends_at, jitter_s, overlap, catchup_s, catchup, max_runs_per_day,
                      max_cost_usd_per_day, pause_after_failures, gate, next_slot_at, next_fire_at)
SELECT :trigger_id, :tenant_id, :agent_id, :created_by, :created_at, :kind, :schedule, :timezone, :prompt, :action,
       :title, :enabled, :thread_id, :starts_at, :ends_at, :jitter_s, :overlap, :catchup_s, :catchup, :max_runs_per_day,
       :max_cost_usd_per_day, :pause_after_failures, :gate, :next_slot_at, :next_fire_at
 WHERE (SELECT count(*) FROM triggers WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND deleted_at IS NULL)
       < :at_most
RETURNING {_COLUMNS}
"""

_GET = f"SELECT {_COLUMNS}, deleted_at FROM triggers WHERE tenant_id = :tenant_id AND id = :trigger_id"
_LOCK = f"{_GET} FOR UPDATE"

_FIND = f"""
SELECT {_COLUMNS} FROM triggers
 WHERE tenant_id = :tenant_id AND id = ANY(:trigger_ids::text[]) AND deleted_at IS NULL
"""

# One statement per set of filters, so that each is planned for the index that fits it.
_LIST = f"""
SELECT {_COLUMNS} FROM triggers
 WHERE tenant_id = :tenant_id AND deleted_at IS NULL AND (:before::text IS NULL OR id < :before)
 ORDER BY id DESC
 LIMIT :limit
"""
_LIST_PAUSED = f"""
SELECT {_COLUMNS} FROM triggers
 WHERE tenant_id = :tenant_id AND deleted_at IS NULL AND paused_reason IS NOT NULL
   AND (:before::text IS NULL OR id < :before) AND (:agent_id::text IS NULL OR agent_id = :agent_id)
 ORDER BY id DESC
 LIMIT :limit
"""
_LIST_OF_AGENT = f"""
SELECT {_COLUMNS} FROM triggers
 WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND deleted_at IS NULL
   AND (:before::text IS NULL OR id < :before)
 ORDER BY id DESC
 LIMIT :limit
"""

_UPDATE = f"""
UPDATE triggers
   SET kind = :kind, schedule = :schedule, timezone = :timezone, prompt = :prompt, action = :action, title = :title,
       enabled = :enabled, thread_id = :thread_id, starts_at = :starts_at, ends_at = :ends_at, jitter_s = :jitter_s,
       overlap = :overlap, catchup_s = :catchup_s, catchup = :catchup, max_runs_per_day = :max_runs_per_day,
       max_cost_usd_per_day = :max_cost_usd_per_day, pause_after_failures = :pause_after_failures, gate = :gate,
       next_slot_at = :next_slot_at, next_fire_at = :next_fire_at,
       gate_seen = CASE WHEN gate IS NOT DISTINCT FROM :gate THEN gate_seen END, updated_at = now()
 WHERE tenant_id = :tenant_id AND id = :trigger_id AND deleted_at IS NULL
RETURNING {_COLUMNS}
"""

_RESUME = f"""
UPDATE triggers
   SET paused_reason = NULL, failures = 0, next_slot_at = :next_slot_at, next_fire_at = :next_fire_at,
       updated_at = now()
 WHERE tenant_id = :tenant_id AND id = :trigger_id AND deleted_at IS NULL
RETURNING {_COLUMNS}
"""

_DELETE = """
UPDATE triggers SET deleted_at = now(), updated_at = now(), next_slot_at = NULL, next_fire_at = NULL
 WHERE tenant_id = :tenant_id AND id = :trigger_id AND deleted_at IS NULL
RETURNING id
"""


@dataclass(frozen=True, slots=True)
class NewTrigger:
    """Validated settings of a trigger, as they are stored."""

    kind: TriggerKind
    schedule: str
    timezone: str
    prompt: str
    action: TriggerAction
    title: str | None
    enabled: bool
    thread_id: str | None
    starts_at: datetime | None
    ends_at: datetime | None
    jitter_s: int
    overlap: Overlap
    catchup_s: int
    catchup: CatchUp
    max_runs_per_day: int | None
    max_cost_usd_per_day: Decimal | None
    pause_after_failures: int
    gate: dict[str, Any] | None
    next_slot_at: datetime | None
    """The first occurrence without an outcome; null does not fire."""
    next_fire_at: datetime | None
    """The same, with jitter."""


async def database_now(connection: Connection) -> datetime:
    """Return the database's time, which decides what is due."""
    return await connection.fetchval(_NOW)


async def create_trigger(
    connection: Connection,
    tenant_id: str,
    agent_id: str,
    trigger: NewTrigger,
    *,
    trigger_id: str,
    created_by: str,
    at: datetime,
) -> TriggerView:
    """Store a new trigger with the creation time `at`, from which its occurrences were computed.

    Raises:
        LimitExceeded: The agent has the most triggers allowed.
    """
    row = await connection.fetchrow(
        _CREATE,
        trigger_id=trigger_id,
        tenant_id=tenant_id,
        agent_id=agent_id,
        created_by=created_by,
        created_at=at,
        at_most=MAX_AGENT_TRIGGERS,
        **_values(trigger),
    )
    if row is None:
        raise LimitExceeded(
            f"Agent {agent_id!r} has {MAX_AGENT_TRIGGERS} triggers, which is the most. Delete some.",
            limit=MAX_AGENT_TRIGGERS,
        )
    return TriggerView(**row)


async def get_trigger(connection: Connection, tenant_id: str, trigger_id: str) -> TriggerView:
    """Return a trigger.

    Raises:
        NotFound: There is no such trigger.
        Gone: It was deleted.
    """
    return _found(await connection.fetchrow(_GET, tenant_id=tenant_id, trigger_id=trigger_id), trigger_id)


async def find_triggers(connection: Connection, tenant_id: str, trigger_ids: Sequence[str]) -> list[TriggerView]:
    """Return those of some triggers that exist."""
    rows = await connection.fetch(_FIND, tenant_id=tenant_id, trigger_ids=trigger_ids)
    return [TriggerView(**row) for row in rows]


async def lock_trigger(connection: Connection, tenant_id: str, trigger_id: str) -> TriggerView:
    """Return a trigger, locked until the transaction ends.

    Raises:
        NotFound: There is no such trigger.
        Gone: It was deleted.
    """
    return _found(await connection.fetchrow(_LOCK, tenant_id=tenant_id, trigger_id=trigger_id), trigger_id)


async def list_triggers(
    connection: Connection,
    tenant_id: str,
    *,
    agent_id: str | None,
    before: str | None,
    limit: int,
    paused: bool = False,
) -> list[TriggerView]:
    """Return triggers, newest first, from before the trigger `before`.

    Args:
        paused: Only those that paused after failures.
    """
    if paused:
        rows = await connection.fetch(_LIST_PAUSED, tenant_id=tenant_id, before=before, limit=limit, agent_id=agent_id)
    elif agent_id is not None:
        rows = await connection.fetch(
            _LIST_OF_AGENT, tenant_id=tenant_id, before=before, limit=limit, agent_id=agent_id
        )
    else:
        rows = await connection.fetch(_LIST, tenant_id=tenant_id, before=before, limit=limit)
    return [TriggerView(**row) for row in rows]


async def update_trigger(connection: Connection, tenant_id: str, trigger_id: str, trigger: NewTrigger) -> TriggerView:
    """Replace the settings of a trigger.

    Raises:
        NotFound: There is no such trigger.
        Gone: It was deleted.
    """
    row = await connection.fetchrow(_UPDATE, tenant_id=tenant_id, trigger_id=trigger_id, **_values(trigger))
    return await get_trigger(connection, tenant_id, trigger_id) if row is None else TriggerView(**row)


async def resume_trigger(
    connection: Connection, tenant_id: str, trigger_id: str, *, occurrence: datetime | None, fire_at: datetime | None
) -> TriggerView:
    """End a trigger's pause, and reset its failures.

    Raises:
        NotFound: There is no such trigger.
        Gone: It was deleted.
    """
    row = await connection.fetchrow(
        _RESUME, tenant_id=tenant_id, trigger_id=trigger_id, next_slot_at=occurrence, next_fire_at=fire_at
    )
    return await get_trigger(connection, tenant_id, trigger_id) if row is None else TriggerView(**row)


async def delete_trigger(connection: Connection, tenant_id: str, trigger_id: str) -> None:
    """Delete a trigger.

    Raises:
        NotFound: There is no such trigger.
        Gone: It was deleted before.
    """
    if await connection.fetchval(_DELETE, tenant_id=tenant_id, trigger_id=trigger_id) is None:
        await get_trigger(connection, tenant_id, trigger_id)


def _values(trigger: NewTrigger) -> dict[str, Any]:
    return {field.name: getattr(trigger, field.name) for field in fields(trigger)}


def _found(row: Row | None, trigger_id: str) -> TriggerView:
    row = existing(row, "trigger", trigger_id)
    if row["deleted_at"] is not None:
        raise deleted("trigger", trigger_id)
    return TriggerView(**row)
