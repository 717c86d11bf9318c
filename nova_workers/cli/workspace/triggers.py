"""`nova triggers`: start agents at times or on demand."""

import json
from datetime import datetime
from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, build, changes, remote
from nova_workers.cli.resources import Argument, Filter, deletion, group, listing
from nova_workers.cli.terminal.output import Facts, Output, Shown, short
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.cli.workspace.trigger_options import TriggerArgument, TriggerOptions
from nova_workers.contracts.http.triggers import (
    Firing,
    TriggerCreate,
    TriggerFiringView,
    TriggerPatch,
    TriggerPreview,
    TriggerView,
)

app = group("Start agents at times or on demand.")

_SHOWN_FIRINGS = 3


def _next_time(trigger: TriggerView) -> Shown:
    if not trigger.enabled:
        return "off"
    return "paused" if trigger.paused_reason else trigger.next_fire_at or "never"


def _zone(trigger: TriggerView) -> Shown:
    return trigger.timezone if trigger.kind == "cron" else None


listing(
    app,
    "List triggers, newest first.",
    lambda nova: nova.triggers.list,
    Rows[TriggerView](
        "No triggers. Make one with `nova triggers create`.",
        Column("id", lambda trigger: trigger.id),
        Column("agent", lambda trigger: trigger.agent_id, "spare"),
        Column("when", lambda trigger: f"{trigger.kind} {trigger.schedule}", "text"),
        Column("next", _next_time),
        Column("title", lambda trigger: short(trigger.title or trigger.prompt), "text"),
        Column("zone", _zone, "spare"),
        Column("made by", lambda trigger: trigger.created_by, "spare"),
    ),
    agent=Filter("Only those of this agent.", sent_as="agent_id"),
)


@remote(app, "show")
async def show(session: Session, trigger: TriggerArgument) -> None:
    """Show a trigger, and when it fires next."""
    await _show(session, await session.client.triggers.get(trigger))


@remote(app, "create")
async def create(
    session: Session,
    agent: Annotated[str, typer.Argument(help="The agent that starts.")],
    prompt: Annotated[str, typer.Argument(help="The message of each run.")],
    options: TriggerOptions,
    off: Annotated[bool, typer.Option("--off", help="Make it switched off.")] = False,
) -> None:
    """Create a trigger."""
    timing = options.timing()
    if not timing:
        raise InvalidInput("Say when: give --cron, --at or --every.")
    values = {name: value for name, value in options.others().items() if value != ""}
    body = build(TriggerCreate, {"agent_id": agent, "prompt": prompt, **timing, **values, "enabled": not off})
    await _show(session, await session.client.triggers.create(body))


@remote(app, "edit")
async def edit(
    session: Session,
    trigger: TriggerArgument,
    options: TriggerOptions,
    prompt: Annotated[str | None, typer.Option(help="The message of each run.")] = None,
) -> None:
    """Change a trigger. An empty --title, --thread, --starts, --ends or --gate removes it."""
    changed = changes("an option such as --cron", **options.timing(), **options.others(), prompt=prompt)
    body = build(TriggerPatch, {name: None if value == "" else value for name, value in changed.items()})
    await _show(session, await session.client.triggers.patch(trigger, body))


@remote(app, "on")
async def on(session: Session, trigger: TriggerArgument) -> None:
    """Switch a trigger on."""
    await _show(session, await session.client.triggers.patch(trigger, TriggerPatch(enabled=True)))


@remote(app, "off")
async def off(session: Session, trigger: TriggerArgument) -> None:
    """Switch a trigger off without deleting it."""
    await _show(session, await session.client.triggers.patch(trigger, TriggerPatch(enabled=False)))


@remote(app, "preview")
async def preview(
    session: Session,
    trigger: TriggerArgument,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100, help="Most firings.")] = 5,
) -> None:
    """Show when a trigger fires next, as if it were on."""
    session.out.write(await session.client.triggers.preview(trigger, count=count), _show_coming)


@remote(app, "resume")
async def resume(session: Session, trigger: TriggerArgument) -> None:
    """End a trigger's pause. It continues with its next occurrence."""
    await _show(session, await session.client.triggers.resume(trigger))


@remote(app, "fire")
async def fire(session: Session, trigger: TriggerArgument) -> None:
    """Fire a trigger now. Its schedule is unchanged."""
    firing = await session.client.triggers.fire(trigger)
    session.out.done(firing, f"run {firing.run_id} in thread {firing.thread_id}")


listing(
    app,
    "List the outcomes of a trigger's occurrences, the latest first.",
    lambda nova: nova.triggers.firings,
    Rows[TriggerFiringView](
        "Nothing came of it yet.",
        Column("planned for", lambda firing: firing.scheduled_for),
        Column("fired", lambda firing: firing.fired_at, "spare"),
        Column("outcome", lambda firing: f"{firing.outcome}{', by hand' if firing.manual else ''}"),
        Column("run", lambda firing: firing.run_id),
        Column("stands", lambda firing: firing.run_status, "spare"),
        Column("why", lambda firing: f"{firing.skip_reason}: {firing.detail}" if firing.skip_reason else None, "text"),
    ),
    name="firings",
    of=Argument("trigger", TriggerArgument),
)
deletion(app, "Delete triggers.", "triggers: Ids of triggers.", lambda nova: nova.triggers.delete)


def _show_coming(out: Output, coming: TriggerPreview) -> None:
    for firing in coming.firings:
        out.text(_local(firing))
    if not coming.firings:
        out.note("It never fires again.")


async def _show(session: Session, trigger: TriggerView) -> None:
    if session.out.json:
        session.out.document(trigger)
        return
    coming = await session.client.triggers.preview(trigger.id, count=_SHOWN_FIRINGS)
    session.out.facts(_facts(trigger, coming))


def _facts(trigger: TriggerView, coming: TriggerPreview) -> Facts:
    orchestrates = trigger.action == "orchestrate"
    return (
        ("id", trigger.id),
        ("agent", trigger.agent_id),
        ("title", trigger.title),
        ("starts an", "orchestration" if orchestrates else None),
        (trigger.kind, trigger.schedule),
        ("timezone", _zone(trigger)),
        ("on", _on(trigger)),
        ("why", trigger.paused_reason),
        ("next", _next(trigger, coming)),
        ("starts", trigger.starts_at),
        ("ends", trigger.ends_at),
        ("thread", trigger.thread_id or (None if orchestrates else "a new one each time")),
        ("overlap", trigger.overlap),
        ("catch-up", f"{trigger.catchup}, within {trigger.catchup_s} s"),
        ("most a day", _most(trigger)),
        ("gate", json.dumps(trigger.gate.model_dump(mode="json")) if trigger.gate else None),
        ("failures", trigger.failures or None),
        ("made by", trigger.created_by),
        ("updated", trigger.updated_at),
        ("prompt", trigger.prompt),
    )


def _on(trigger: TriggerView) -> str:
    if not trigger.enabled:
        return "no"
    return "paused" if trigger.paused_reason else "yes"


def _local(firing: Firing) -> str:
    """Return its time in the trigger's zone, without the fraction that jitter adds."""
    return datetime.fromisoformat(firing.local).isoformat(" ", "seconds")


def _most(trigger: TriggerView) -> str:
    runs, cost = trigger.max_runs_per_day, trigger.max_cost_usd_per_day
    return ", ".join(part for part in (f"{runs} runs" if runs else "", f"${cost:g}" if cost else "") if part)


def _next(trigger: TriggerView, coming: TriggerPreview) -> str:
    if not trigger.enabled or trigger.paused_reason:
        return ""
    return ", ".join(map(_local, coming.firings)) or "never"
