"""Options of `nova triggers`, and the fields that they set."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from nova_workers.base.errors import InvalidInput

TriggerArgument = Annotated[str, typer.Argument(help="The trigger's id.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOptions:
    """The options of `create` and `edit`. None: not given. An empty text, and 0 as a limit of a day, remove a field."""

    cron: Annotated[
        str | None, typer.Option(help="By the clock: minute, hour, day, month, weekday; a sixth field is the second.")
    ] = None
    at: Annotated[str | None, typer.Option(help="Once: date, time, offset, such as 2030-05-01T09:00:00+02:00.")] = None
    every: Annotated[int | None, typer.Option(help="Again and again: the period in seconds.")] = None
    timezone: Annotated[str | None, typer.Option(help="What --cron is meant in, such as Europe/Berlin.")] = None
    action: Annotated[
        str | None,
        typer.Option(help="What it starts: run, or orchestrate with the prompt as the task. Default: run."),
    ] = None
    title: Annotated[str | None, typer.Option(help="A title for people.")] = None
    thread: Annotated[str | None, typer.Option(help="Go on with this thread each time. Default: a new one.")] = None
    starts: Annotated[str | None, typer.Option(help="Nothing fires before this time.")] = None
    ends: Annotated[str | None, typer.Option(help="Nothing fires after this time.")] = None
    jitter: Annotated[int | None, typer.Option(help="Fire up to this many seconds later, at random.")] = None
    overlap: Annotated[
        str | None, typer.Option(help="While an earlier run is open: skip, queue or cancel_other. Default: skip.")
    ] = None
    catchup: Annotated[
        str | None, typer.Option(help="For occurrences missed: fire once (the latest) or each. Default: once.")
    ] = None
    catchup_window: Annotated[
        int | None,
        typer.Option(help="How many seconds late an occurrence may fire; later it is skipped. Default: 3600."),
    ] = None
    max_runs: Annotated[int | None, typer.Option(help="Most runs of a day; 0 for no limit.")] = None
    max_cost: Annotated[float | None, typer.Option(help="US dollars of a day; 0 for no limit.")] = None
    pause_after: Annotated[
        int | None, typer.Option(help="Pause after this many consecutive failed runs; 0 is never. Default: 5.")
    ] = None
    gate: Annotated[
        str | None,
        typer.Option(
            help='What has to be so to fire, as JSON, such as \'{"kind": "open_tasks"}\'. See docs/triggers.md.'
        ),
    ] = None

    def timing(self) -> dict[str, Any]:
        """Return kind and schedule; empty if none is given."""
        ways = {"cron": self.cron, "at": self.at, "every": self.every}
        given = [{"kind": kind, "schedule": str(value)} for kind, value in ways.items() if value is not None]
        if len(given) > 1:
            raise InvalidInput("Give one of --cron, --at and --every.")
        return given[0] if given else {}

    def others(self) -> dict[str, Any]:
        """Return the other given fields; an empty text is the value of one to remove."""
        values: dict[str, Any] = {
            "timezone": self.timezone,
            "action": self.action,
            "title": self.title,
            "thread_id": self.thread,
            "starts_at": self.starts,
            "ends_at": self.ends,
            "jitter_s": self.jitter,
            "overlap": self.overlap,
            "catchup": self.catchup,
            "catchup_s": self.catchup_window,
            "max_runs_per_day": "" if self.max_runs == 0 else self.max_runs,
            "max_cost_usd_per_day": "" if self.max_cost == 0 else self.max_cost,
            "pause_after_failures": self.pause_after,
            "gate": _gate(self.gate),
        }
        return {name: value for name, value in values.items() if value is not None}


def _gate(text: str | None) -> Any:
    if not text:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"--gate: {text!r} is no JSON: {error}") from error
