"""``/v1/triggers``: schedules by which agents start."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import StringConstraints

from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.triggers import (
    SchedulePreview,
    TriggerCreate,
    TriggerFiringView,
    TriggerKind,
    TriggerPatch,
    TriggerPreview,
    TriggerView,
)
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.triggers.rules import definitions as workspace
from nova_workers.domain.triggers.rules.gate_addresses import check_gate_address, gate_rules
from nova_workers.domain.triggers.sql import definitions as ledger
from nova_workers.domain.triggers.sql import outcomes as trigger_outcomes

from ...auth import WorkspaceCaller, WorkspaceReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdQuery, Flag, TriggerIdPath
from ...repeats import RepeatableRequest
from ...state import ApiState, State

router = APIRouter(prefix="/v1/triggers", tags=["triggers"], route_class=StrictRoute)

PERSON = "person"

PausedQuery = Annotated[Flag, Query(description="Only those that paused after failures.")]
KindQuery = Annotated[TriggerKind, Query(description="The form of the schedule.")]
ScheduleQuery = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]{1,200}$")],
    Query(description="As a trigger has it: a cron line, a time in RFC 3339, or seconds."),
]
TimezoneQuery = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_+/-]{1,64}$")] | None,
    Query(description="IANA name; that of a new trigger without."),
]
Count = Annotated[int, Query(ge=1, le=100, description="Most firings to return.")]


def _check_gate(body: TriggerCreate | TriggerPatch, state: ApiState) -> None:
    settings = state.services.settings
    check_gate_address(body.gate, gate_rules(settings.tools, timeout_s=settings.triggers.gate_timeout_s))


@router.post("", status_code=201, responses=problems(404, 409, 410, body=True))
async def create_trigger(
    body: TriggerCreate, caller: WorkspaceCaller, state: State, repeats: RepeatableRequest
) -> TriggerView:
    """Create a trigger."""
    services, key = state.services, repeats.bound_to(body)
    _check_gate(body, state)

    async def write() -> tuple[TriggerView, bool]:
        async with services.database.transaction() as connection:
            return await workspace.create_once(
                connection, caller.tenant_id, body, timezone=services.settings.timezone, by=PERSON, request=key
            )

    return await repeats.once("the trigger", write)


@router.get("", responses=problems(400, 410, 422))
async def list_triggers(
    *,
    caller: WorkspaceReader,
    state: State,
    agent_id: AgentIdQuery = None,
    paused: PausedQuery = False,
    paging: PageQuery,
) -> Page[TriggerView]:
    """List triggers, newest first."""
    listing = paging.of(caller.tenant_id, "triggers", str, agent_id, paused)
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, agent_id)
        rows = await ledger.list_triggers(
            connection,
            caller.tenant_id,
            agent_id=agent_id,
            paused=paused,
            before=listing.key,
            limit=listing.rows,
        )
    return listing.page(rows, lambda trigger: trigger.id)


@router.get("/preview", responses=problems(422))
async def preview_schedule(
    *,
    caller: WorkspaceReader,
    state: State,
    kind: KindQuery,
    schedule: ScheduleQuery,
    timezone: TimezoneQuery = None,
    count: Count = 5,
) -> SchedulePreview:
    """Get the next times of a schedule that no trigger has yet."""
    zone = timezone or state.services.settings.timezone
    async with state.services.database.connection() as connection:
        return await workspace.preview_schedule(connection, kind=kind, schedule=schedule, timezone=zone, count=count)


@router.get("/{trigger_id}", responses=problems(404, 410))
async def get_trigger(trigger_id: TriggerIdPath, caller: WorkspaceReader, state: State) -> TriggerView:
    """Get a trigger."""
    async with state.services.database.connection() as connection:
        return await ledger.get_trigger(connection, caller.tenant_id, trigger_id)


@router.patch("/{trigger_id}", responses=problems(404, 410, body=True))
async def patch_trigger(
    trigger_id: TriggerIdPath, body: TriggerPatch, caller: WorkspaceCaller, state: State
) -> TriggerView:
    """Change the given fields. Null clears title, thread_id, starts_at, ends_at, gate and the limits of a day."""
    _check_gate(body, state)
    async with state.services.database.transaction() as connection:
        return await workspace.patch_trigger(connection, caller.tenant_id, trigger_id, body)


@router.delete("/{trigger_id}", status_code=204, responses=problems(404, 410))
async def delete_trigger(trigger_id: TriggerIdPath, caller: WorkspaceCaller, state: State) -> None:
    """Delete a trigger."""
    async with state.services.database.connection() as connection:
        await ledger.delete_trigger(connection, caller.tenant_id, trigger_id)


@router.get("/{trigger_id}/preview", responses=problems(404, 410, 422))
async def preview_trigger(
    trigger_id: TriggerIdPath, caller: WorkspaceReader, state: State, count: Count = 5
) -> TriggerPreview:
    """Get the next times at which a trigger fires, as if it were enabled."""
    async with state.services.database.connection() as connection:
        trigger = await ledger.get_trigger(connection, caller.tenant_id, trigger_id)
        return await workspace.preview(connection, trigger, count=count)


@router.post("/{trigger_id}/resume", responses=problems(404, 410, 422))
async def resume_trigger(trigger_id: TriggerIdPath, caller: WorkspaceCaller, state: State) -> TriggerView:
    """End a trigger's pause. It continues with its next occurrence, and its count of failures restarts."""
    async with state.services.database.transaction() as connection:
        return await workspace.resume_trigger(connection, caller.tenant_id, trigger_id)


@router.post("/{trigger_id}/fire", status_code=201, responses=problems(404, 409, 410))
async def fire_trigger(
    trigger_id: TriggerIdPath, caller: WorkspaceCaller, state: State, repeats: RepeatableRequest
) -> TriggerFiringView:
    """Fire a trigger now, regardless of its schedule, its gate and its open runs. Its daily limits apply."""
    firing, is_replay = await state.services.triggers.fire(caller.tenant_id, trigger_id, request=repeats.bound_to(None))
    repeats.mark(is_replay)
    return firing


@router.get("/{trigger_id}/firings", responses=problems(400, 404, 410, 422), name="list_trigger_firings")
async def list_firings(
    trigger_id: TriggerIdPath, caller: WorkspaceReader, state: State, paging: PageQuery
) -> Page[TriggerFiringView]:
    """List the firings of a trigger's occurrences, the latest first."""
    listing = paging.of(caller.tenant_id, "trigger_firings", str, trigger_id)
    async with state.services.database.connection() as connection:
        await ledger.get_trigger(connection, caller.tenant_id, trigger_id)
        rows = await trigger_outcomes.list_firings(
            connection,
            caller.tenant_id,
            trigger_id,
            before=None if listing.key is None else datetime.fromisoformat(listing.key),
            limit=listing.rows,
        )
    return listing.page(rows, lambda firing: firing.scheduled_for.isoformat())
