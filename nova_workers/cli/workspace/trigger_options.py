"""Options of `nova triggers`, and the fields that they set."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from nova_workers.errors import InvalidInput

__all__ = [
    "ActionOption",
    "AtOption",
    "CatchupOption",
    "CatchupWindowOption",
    "CronOption",
    "EndsOption",
    "EveryOption",
    "GateOption",
    "JitterOption",
    "MaxCostOption",
    "MaxRunsOption",
    "OverlapOption",
    "PauseAfterOption",
    "StartsOption",
    "ThreadOption",
    "TimezoneOption",
    "TitleOption",
    "TriggerArgument",
    "bounds",
    "given",
    "when",
]

TriggerArgument = Annotated[str, typer.Argument(help="The trigger's id.")]
CronOption = Annotated[
    str | None, typer.Option(help="By the clock: minute, hour, day, month, weekday; a sixth field is the second.")
]
AtOption = Annotated[str | None, typer.Option(help="Once: date, time and offset, such as 2030-05-01T09:00:00+02:00.")]
EveryOption = Annotated[int | None, typer.Option(help="Again and again: the period in seconds.")]
TimezoneOption = Annotated[str | None, typer.Option(help="What --cron is meant in, such as Europe/Berlin.")]
ActionOption = Annotated[
    str | None,
    typer.Option(help="What it starts: run, or orchestrate with the prompt as the task. Default: run."),
]
TitleOption = Annotated[str | None, typer.Option(help="A title for people.")]
ThreadOption = Annotated[str | None, typer.Option(help="Go on with this thread each time. Default: a new one.")]
StartsOption = Annotated[str | None, typer.Option(help="Nothing fires before this time.")]
EndsOption = Annotated[str | None, typer.Option(help="Nothing fires after this time.")]
JitterOption = Annotated[int | None, typer.Option(help="Fire up to this many seconds later, at random.")]
OverlapOption = Annotated[
    str | None, typer.Option(help="While an earlier run is open: skip, queue or cancel_other. Default: skip.")
]
CatchupOption = Annotated[
    str | None, typer.Option(help="For occurrences missed: fire once (the latest) or each. Default: once.")
]
CatchupWindowOption = Annotated[
    int | None, typer.Option(help="How many seconds late an occurrence may fire; later it is skipped. Default: 3600.")
]
MaxRunsOption = Annotated[int | None, typer.Option(help="Most runs of a day; 0 for no limit.")]
MaxCostOption = Annotated[float | None, typer.Option(help="US dollars of a day; 0 for no limit.")]
PauseAfterOption = Annotated[
    int | None, typer.Option(help="Pause after this many consecutive failed runs; 0 is never. Default: 5.")
]
GateOption = Annotated[
    str | None,
    typer.Option(help='What has to be so to fire, as JSON, such as \'{"kind": "open_tasks"}\'. See docs/triggers.md.'),
]


def when(cron: str | None, at: str | None, every: int | None) -> dict[str, Any]:
    """Return kind and schedule; empty if none is given."""
    given = [(kind, str(value)) for kind, value in (("cron", cron), ("at", at), ("every", every)) if value is not None]
    if len(given) > 1:
        raise InvalidInput("Give one of --cron, --at and --every.")
    return {"kind": given[0][0], "schedule": given[0][1]} if given else {}


def given(
    prompt: str | None,
    timezone: str | None,
    title: str | None,
    thread: str | None,
    starts: str | None,
    ends: str | None,
    action: str | None,
) -> dict[str, Any]:
    """Return the given fields, without those of `bounds`."""
    values: Mapping[str, str | None] = {
        "prompt": prompt,
        "timezone": timezone,
        "title": title,
        "thread_id": thread,
        "starts_at": starts,
        "ends_at": ends,
        "action": action,
    }
    return {name: value for name, value in values.items() if value is not None}


def bounds(
    jitter: int | None,
    overlap: str | None,
    catchup: str | None,
    catchup_window: int | None,
    max_runs: int | None,
    max_cost: float | None,
    pause_after: int | None,
    gate: str | None,
) -> dict[str, Any]:
    """Return the given fields that limit how often and whether an occurrence fires."""
    values: dict[str, Any] = {
        "jitter_s": jitter,
        "overlap": overlap,
        "catchup": catchup,
        "catchup_s": catchup_window,
        "max_runs_per_day": max_runs,
        "max_cost_usd_per_day": max_cost,
        "pause_after_failures": pause_after,
        "gate": _gate(gate),
    }
    found = {name: value for name, value in values.items() if value is not None}
    # An empty value removes the field.
    return found | {name: "" for name in ("max_runs_per_day", "max_cost_usd_per_day") if found.get(name) == 0}


def _gate(text: str | None) -> Any:
    if not text:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"--gate: {text!r} is no JSON: {error}") from error
