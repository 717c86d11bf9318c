"""Trigger definitions: validation, and the time of the next occurrence.

All times are from the database's clock, so a host whose clock is wrong computes the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Any

from nova_workers.base.errors import Gone, InvalidInput, NotFound, missing
from nova_workers.base.ids import new_id
from nova_workers.contracts.http.triggers import (
    Firing,
    SchedulePreview,
    TriggerCreate,
    TriggerKind,
    TriggerPatch,
    TriggerPreview,
    TriggerView,
)
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.agents.sql.records import get_agent
from nova_workers.domain.idempotency.sql import name_made, once
from nova_workers.domain.threads.sql.records import get_thread
from nova_workers.domain.triggers.rules.occurrences import check_jitter, jitter_of
from nova_workers.domain.triggers.rules.schedules import Schedule, next_firings, parse_schedule
from nova_workers.domain.triggers.sql import definitions as ledger
from nova_workers.domain.triggers.sql.definitions import NewTrigger
from nova_workers.domain.triggers.sql.firing import skip_queued
from nova_workers.ledger.database import Connection

_TIMING = frozenset({"kind", "schedule", "timezone", "starts_at", "ends_at", "jitter_s"})
_CLEARED = frozenset({"title", "thread_id", "starts_at", "ends_at", "max_runs_per_day", "max_cost_usd_per_day", "gate"})


async def create_trigger(
    connection: Connection, tenant_id: str, given: TriggerCreate, *, timezone: str, by: str
) -> TriggerView:
    """Create a trigger.

    Args:
        connection: A connection, in a transaction or not.
        tenant_id: The owner.
        given: The request.
        timezone: The default, if `given` has none.
        by: ``person``, or the id of the agent that creates it.

    Raises:
        InvalidInput: A field has the wrong form, it would never fire, or the thread belongs to another agent.
        NotFound: There is no such agent.
        Gone: The agent was deleted.
        LimitExceeded: The agent has the maximum number of triggers.
    """
    values = given.model_dump(exclude={"agent_id"}) | {"timezone": given.timezone or timezone}
    await get_agent(connection, tenant_id, given.agent_id)
    await _require_thread(connection, tenant_id, given.agent_id, given.thread_id)
    _check_action(values)
    now, trigger_id = await ledger.database_now(connection), new_id("trg")
    trigger = await asyncio.to_thread(_timed, values, trigger_id, now, now)
    return await ledger.create_trigger(
        connection, tenant_id, given.agent_id, trigger, trigger_id=trigger_id, created_by=by, at=now
    )


async def create_once(
    connection: Connection,
    tenant_id: str,
    given: TriggerCreate,
    *,
    timezone: str,
    by: str,
    request: RequestKey | None,
) -> tuple[TriggerView, bool]:
    """Create a trigger as `create_trigger` does, once for a request's key. Must be called inside a transaction.

    Returns:
        The trigger, and whether an earlier request with the key made it.

    Raises:
        IdempotencyMismatch: The key was used for another request.
        Gone: The trigger of the earlier request was deleted.
        NovaError: See `create_trigger`.
    """

    async def create() -> TriggerView:
        made = await create_trigger(connection, tenant_id, given, timezone=timezone, by=by)
        await name_made(connection, tenant_id, request, made.id)
        return made

    return await once(
        connection, tenant_id, request, create, lambda made_id: ledger.get_trigger(connection, tenant_id, made_id)
    )


async def patch_trigger(
    connection: Connection, tenant_id: str, trigger_id: str, given: TriggerPatch, *, of: str | None = None
) -> TriggerView:
    """Change the fields that `given` sets. Must be called inside a transaction.

    Args:
        connection: Inside a transaction.
        tenant_id: The owner.
        given: The fields to change.
        of: The agent that the trigger must belong to; None allows any.

    Raises:
        InvalidInput: A field has the wrong form, it would never fire, or the thread belongs to another agent.
        NotFound: There is no such trigger.
        Gone: It was deleted.
    """
    present = await ledger.lock_trigger(connection, tenant_id, trigger_id)
    if of is not None and present.agent_id != of:
        raise missing("trigger", trigger_id)
    changes = given.model_dump(exclude_unset=True)
    for name, value in changes.items():
        if value is None and name not in _CLEARED:
            raise InvalidInput(f"{name}: it cannot be null; leave it out to keep what it is.", field=name)
    values = present.model_dump(include={field.name for field in fields(NewTrigger)}) | changes
    _check_action(values)
    if "thread_id" in changes:
        await _require_thread(connection, tenant_id, present.agent_id, values["thread_id"])
    if changes.get("enabled") is False:
        values |= {"next_slot_at": None, "next_fire_at": None}
        await skip_queued(
            connection, trigger_id, "stopped", "The trigger was switched off while the occurrence was queued."
        )
    if changes.keys() & _TIMING or changes.get("enabled"):
        now = await ledger.database_now(connection)
        # An occurrence that is due and has not fired stays due, unless the schedule changed.
        keep = present.next_slot_at if present.enabled and not changes.keys() & _TIMING else None
        paused = present.paused_reason is not None
        trigger = await asyncio.to_thread(_timed, values, trigger_id, now, present.created_at, keep=keep, paused=paused)
    else:
        trigger = NewTrigger(**_stored(values))
    return await ledger.update_trigger(connection, tenant_id, trigger_id, trigger)


async def resume_trigger(connection: Connection, tenant_id: str, trigger_id: str) -> TriggerView:
    """End a trigger's pause: it continues with the next occurrence from now. Must be called inside a transaction.

    For one that is not paused, only its count of failures is reset.

    Raises:
        InvalidInput: It would never fire again.
        NotFound: There is no such trigger.
        Gone: It was deleted.
    """
    present = await ledger.lock_trigger(connection, tenant_id, trigger_id)
    occurrence, fire_at = present.next_slot_at, present.next_fire_at
    if present.paused_reason is not None and present.enabled:
        now = await ledger.database_now(connection)
        trigger = await asyncio.to_thread(_timed, present.model_dump(), trigger_id, now, present.created_at)
        occurrence, fire_at = trigger.next_slot_at, trigger.next_fire_at
    return await ledger.resume_trigger(connection, tenant_id, trigger_id, occurrence=occurrence, fire_at=fire_at)


async def preview(connection: Connection, trigger: TriggerView, *, count: int) -> TriggerPreview:
    """Return the next times at which a trigger would fire if it were enabled, at most `count`."""
    now = await ledger.database_now(connection)

    def compute() -> list[Firing]:
        schedule = _schedule(trigger.model_dump())
        occurrences = islice(next_firings(schedule, after=now, made_at=trigger.created_at), count)
        moments = [occurrence + jitter_of(trigger.id, occurrence, trigger.jitter_s) for occurrence in occurrences]
        return [Firing(at=at, local=at.astimezone(schedule.zone).isoformat()) for at in moments]

    # Takes some milliseconds, and reads time zones from disk.
    firings = await asyncio.to_thread(compute)
    return TriggerPreview(trigger_id=trigger.id, enabled=trigger.enabled, timezone=trigger.timezone, firings=firings)


async def preview_schedule(
    connection: Connection, *, kind: TriggerKind, schedule: str, timezone: str, count: int
) -> SchedulePreview:
    """Return the next times of a schedule, at most `count`; a period counts from now.

    Raises:
        InvalidInput: A part has the wrong form; the field is ``schedule`` or ``timezone``.
    """
    now = await ledger.database_now(connection)

    def compute() -> list[Firing]:
        parsed = parse_schedule(kind, schedule, timezone)
        moments = islice(next_firings(parsed, after=now, made_at=now), count)
        return [Firing(at=at, local=at.astimezone(parsed.zone).isoformat()) for at in moments]

    return SchedulePreview(timezone=timezone, firings=await asyncio.to_thread(compute))


def _timed(
    values: Mapping[str, Any],
    trigger_id: str,
    now: datetime,
    made_at: datetime,
    *,
    keep: datetime | None = None,
    paused: bool = False,
) -> NewTrigger:
    """Check when a trigger fires, and compute its next occurrence: `keep`, if one is still unprocessed."""
    schedule = _schedule(values)
    occurrence = next(next_firings(schedule, after=now, made_at=made_at), None)
    if occurrence is None and keep is None:
        raise InvalidInput(
            f"schedule: {schedule.kind} {schedule.text!r} never fires after {now.isoformat(timespec='seconds')}"
            f"{_bounds(schedule)}. Give a time in the future.",
            field="schedule",
        )
    jitter_s = values["jitter_s"]
    check_jitter(schedule, jitter_s, after=now, made_at=made_at)
    occurrence = keep or occurrence
    if occurrence is None or not values["enabled"] or paused:
        return NewTrigger(**_stored({**values, "schedule": schedule.text, "next_slot_at": None, "next_fire_at": None}))
    fire_at = occurrence + jitter_of(trigger_id, occurrence, jitter_s)
    return NewTrigger(
        **_stored({**values, "schedule": schedule.text, "next_slot_at": occurrence, "next_fire_at": fire_at})
    )


def _stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the trigger's columns."""
    cost = values["max_cost_usd_per_day"]
    own = {field.name: values[field.name] for field in fields(NewTrigger)}
    return own | {"max_cost_usd_per_day": None if cost is None else Decimal(str(cost))}


def _check_action(values: Mapping[str, Any]) -> None:
    if values["action"] == "orchestrate" and values["thread_id"] is not None:
        raise InvalidInput(
            "thread_id: an orchestration has threads of its own. Leave it out, or give the action 'run'.",
            field="thread_id",
        )


def _schedule(values: Mapping[str, Any]) -> Schedule:
    return parse_schedule(
        values["kind"],
        values["schedule"],
        values["timezone"],
        starts_at=values["starts_at"],
        ends_at=values["ends_at"],
    )


def _bounds(schedule: Schedule) -> str:
    return "".join(
        f", {name} {moment.isoformat(timespec='seconds')}"
        for name, moment in (("starting at", schedule.starts_at), ("ending at", schedule.ends_at))
        if moment is not None
    )


async def _require_thread(connection: Connection, tenant_id: str, agent_id: str, thread_id: str | None) -> None:
    if thread_id is None:
        return
    try:
        thread = await get_thread(connection, tenant_id, thread_id)
    except (NotFound, Gone) as error:
        raise InvalidInput(f"thread_id: {error.message}", field="thread_id") from error
    if thread.agent_id != agent_id:
        raise InvalidInput(
            f"thread_id: thread {thread_id!r} belongs to agent {thread.agent_id!r}, not to {agent_id!r}.",
            field="thread_id",
        )
