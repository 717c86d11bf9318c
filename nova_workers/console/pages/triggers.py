"""Triggers: the list with what fires next on a time axis, one trigger with its firings, and its form."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import cast, get_args

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from nova_workers.base.errors import InvalidInput, Rejected
from nova_workers.base.vocabulary import CatchUp, Overlap, TriggerAction, TriggerKind
from nova_workers.console.access import agent_choices, name_of_thread
from nova_workers.console.actions import Done, act
from nova_workers.console.drawing.time_axis import Mark, time_axis
from nova_workers.console.formats import brief
from nova_workers.console.forms import Form, build, changes, read_form
from nova_workers.console.local_times import read_local
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import fragment, render, see_other
from nova_workers.console.schedules import DAYS, UNITS, WAYS, Built, built_from, schedule_of, sentence
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.http.triggers import TriggerCreate, TriggerFiringView, TriggerPatch, TriggerView

_TEXTS = ("prompt", "kind", "schedule", "action", "overlap", "catchup")
_OPTIONAL = ("title", "timezone", "thread_id", "max_runs_per_day", "max_cost_usd_per_day")
_TIMES = ("starts_at", "ends_at")
_NUMBERS = ("jitter_s", "catchup_s", "pause_after_failures")
_PREVIEWED = 10
_AHEAD = timedelta(days=1)


async def show_list(request: Request) -> Response:
    """Show a page of triggers, newest first, and when each of these fires next within a day."""
    page = await client_of(request).triggers.list(
        agent_id=filter_of(request, "agent"), limit=PAGE_SIZE, cursor=cursor_of(request)
    )
    now = state_of(request).clock.now()
    marks = [Mark(at, "next", _name(trigger)) for trigger in page.items if (at := _next_of(trigger)) is not None]
    end = min(max((mark.at for mark in marks), default=now), now + _AHEAD)
    return render(
        request,
        "triggers/list.html",
        triggers=page.items,
        pager=pager(request, page),
        axis=time_axis(marks, now, now, end),
    )


async def show(request: Request) -> Response:
    """Show a trigger: its past and next firings on an axis, and what came of each."""
    client, trigger_id = client_of(request), request.path_params["trigger"]
    trigger, preview, firings = await asyncio.gather(
        client.triggers.get(trigger_id),
        client.triggers.preview(trigger_id, count=_PREVIEWED),
        client.triggers.firings(trigger_id, limit=PAGE_SIZE, cursor=cursor_of(request)),
    )
    coming = [firing.at for firing in preview.firings] if trigger.enabled and not trigger.paused_reason else []
    return render(
        request,
        "triggers/show.html",
        trigger=trigger,
        conversation=await name_of_thread(client, trigger.thread_id),
        preview=preview,
        firings=firings.items,
        pager=pager(request, firings),
        axis=_axis(firings.items[:_PREVIEWED], coming, state_of(request).clock.now()),
    )


async def new(request: Request) -> Response:
    """Show an empty form, and create a trigger."""
    form = Form()
    if request.method == "POST":
        form = await read_form(request)
        try:
            given = {"agent_id": form.given("agent_id"), **_of(form)}
            calls, body = client_of(request).triggers, build(TriggerCreate, given)
            trigger = await calls.create(body, idempotency_key=form.given("key"))
        except Rejected as error:
            form = _refused(form, error)
        else:
            return see_other(request, f"/triggers/{trigger.id}", flash="The trigger was created.")
    agents, me = await asyncio.gather(agent_choices(client_of(request)), client_of(request).whoami())
    return _editor(request, form, None, agents, me.timezone)


async def edit(request: Request) -> Response:
    """Show a trigger's form, and change it."""
    client, trigger_id, form = client_of(request), request.path_params["trigger"], Form()
    if request.method == "POST":
        form = await read_form(request)
        try:
            stored = await client.triggers.get(trigger_id)
            await client.triggers.patch(trigger_id, changes(TriggerPatch, stored, _of(form, stored)))
        except Rejected as error:
            form = _refused(form, error)
        else:
            return see_other(request, f"/triggers/{trigger_id}", flash="Saved.")
    trigger = await client.triggers.get(trigger_id)
    return _editor(request, form, trigger, [], trigger.timezone)


async def preview(request: Request) -> Response:
    """Return the schedule of the builder's fields in a sentence, with its next times, as a part of the form's page."""
    client, given = client_of(request), request.query_params
    form = Form(dict(given), {name: tuple(given.getlist(name)) for name in given})
    try:
        kind, schedule = schedule_of(form)
        if kind == "at":
            return HTMLResponse("")
        zone = form.given("timezone") or "UTC"
        coming, tenant = await asyncio.gather(
            client.triggers.preview_schedule(kind=cast(TriggerKind, kind), schedule=schedule, timezone=zone, count=5),
            client.tenants.get(),
        )
    except Rejected as error:
        return HTMLResponse(fragment(request, "triggers/preview.html", "refused", error.message))
    words = sentence(kind, schedule, zone)
    return HTMLResponse(fragment(request, "triggers/preview.html", "coming", words, coming.firings, tenant))


async def fire(request: Request) -> Response:
    """Begin a run now."""
    calls, trigger_id = client_of(request).triggers, request.path_params["trigger"]
    return await act(request, f"/triggers/{trigger_id}", lambda: calls.fire(trigger_id), "It fired.")


async def resume(request: Request) -> Response:
    """End a pause."""
    calls, trigger_id = client_of(request).triggers, request.path_params["trigger"]
    return await act(request, f"/triggers/{trigger_id}", lambda: calls.resume(trigger_id), "The trigger fires again.")


async def switch(request: Request) -> Response:
    """Enable or disable a trigger."""
    calls, trigger_id, form = client_of(request).triggers, request.path_params["trigger"], await read_form(request)
    enabled = form.value("enabled") == "yes"
    return await act(
        request,
        f"/triggers/{trigger_id}",
        lambda: calls.patch(trigger_id, TriggerPatch(enabled=enabled)),
        "Enabled." if enabled else "Disabled.",
    )


async def delete(request: Request) -> Response:
    """Delete a trigger."""
    calls, trigger_id = client_of(request).triggers, request.path_params["trigger"]
    deleted = Done("The trigger was deleted.", "/triggers")
    return await act(request, f"/triggers/{trigger_id}", lambda: calls.delete(trigger_id), deleted)


def _editor(
    request: Request, form: Form, trigger: TriggerView | None, agents: list[tuple[str, str]] | None, timezone: str
) -> Response:
    return render(
        request,
        "triggers/edit.html",
        status=422 if form.problem else 200,
        form=form,
        trigger=trigger,
        agents=agents,
        timezone=timezone,
        built=built_from(trigger.kind, trigger.schedule) if trigger else Built(),
        ways=WAYS,
        units=UNITS,
        days=DAYS,
        actions=get_args(TriggerAction),
        overlaps=get_args(Overlap),
        catchups=get_args(CatchUp),
        enabled="enabled" in form.values if form.values else trigger is None or trigger.enabled,
    )


def _of(form: Form, stored: TriggerView | None = None) -> dict[str, object]:
    """Return the body's fields. A blank number keeps what is there; a blank optional field clears it in a change."""
    fields: dict[str, object] = {name: form.value(name) for name in _TEXTS}
    fields["kind"], fields["schedule"] = schedule_of(form)
    fields.update((name, form.given(name)) for name in _NUMBERS if form.given(name) is not None)
    fields.update((name, form.given(name)) for name in _OPTIONAL if stored or form.given(name) is not None)
    if fields.get("timezone") is None:
        fields.pop("timezone", None)
    zone = form.given("timezone") or (stored.timezone if stored else "UTC")
    for name in _TIMES:
        at = read_local(name, form.given(name), zone, getattr(stored, name, None))
        if stored or at is not None:
            fields[name] = at
    if fields["kind"] == "at":
        once = datetime.fromisoformat(stored.schedule) if stored and stored.kind == "at" else None
        at = read_local("at", form.given("at"), zone, once)
        if at is None:
            raise InvalidInput("Give the date and the time at which it fires.", field="at")
        fields["schedule"] = at.isoformat().replace("+00:00", "Z")
    return {**fields, "enabled": "enabled" in form.values}


def _refused(form: Form, error: Rejected) -> Form:
    """Return a form with what was refused: of a schedule, at the field of the builder that it was built of."""
    refused, field = form.refused(error), {"at": "at", "every": "every", "weekly": "time"}.get(form.value("kind"))
    if field is None or "schedule" not in refused.errors:
        return refused
    return replace(refused, errors={**refused.errors, field: refused.errors["schedule"]})


def _axis(past: Sequence[TriggerFiringView], coming: Sequence[datetime], now: datetime) -> object:
    marks = [Mark(firing.scheduled_for, _tone(firing), firing.outcome) for firing in past]
    marks += [Mark(at, "next", "next") for at in coming]
    if not marks:
        return None
    times = [mark.at for mark in marks]
    return time_axis(marks, now, min(*times, now), max(*times, now))


def _tone(firing: TriggerFiringView) -> str:
    if firing.run_status in {"failed", "timed_out", "canceled"}:
        return "failed"
    return "started" if firing.run_id is not None else "skipped"


def _next_of(trigger: TriggerView) -> datetime | None:
    return trigger.next_fire_at if trigger.enabled and not trigger.paused_reason else None


def _name(trigger: TriggerView) -> str:
    return trigger.title or brief(trigger.prompt, 60)


PAGE = PageModule(
    routes=(
        Route("/triggers", show_list),
        Route("/triggers/new", new, methods=["GET", "POST"]),
        Route("/triggers/preview", preview),
        Route("/triggers/{trigger:id}", show),
        Route("/triggers/{trigger:id}/edit", edit, methods=["GET", "POST"]),
        Route("/triggers/{trigger:id}/fire", fire, methods=["POST"]),
        Route("/triggers/{trigger:id}/resume", resume, methods=["POST"]),
        Route("/triggers/{trigger:id}/switch", switch, methods=["POST"]),
        Route("/triggers/{trigger:id}/delete", delete, methods=["POST"]),
    ),
    nav=(
        NavEntry(
            "Build", "Triggers", "/triggers", "triggers", key="t", id_prefix="trg_", scope="workspace:read", main=6
        ),
    ),
)
