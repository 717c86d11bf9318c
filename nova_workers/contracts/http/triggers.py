"""Triggers on the wire: when an agent starts by itself, and with which words."""

from datetime import datetime
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints, TypeAdapter, model_validator

from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.bodies import Body, View
from nova_workers.contracts.content import storable
from nova_workers.vocabulary import CatchUp, FiringOutcome, Overlap, SkipReason, TriggerKind

__all__ = [
    "CATCHUP_S",
    "GATE",
    "MAX_PROMPT_CHARS",
    "MIN_PERIOD_S",
    "PAUSE_AFTER_FAILURES",
    "CatchUp",
    "CatchUpWindow",
    "DayCost",
    "DayRuns",
    "Firing",
    "FiringOutcome",
    "Gate",
    "IdleGate",
    "Jitter",
    "OpenTasksGate",
    "Overlap",
    "PauseAfter",
    "SkipReason",
    "TriggerCreate",
    "TriggerFiringView",
    "TriggerKind",
    "TriggerPatch",
    "TriggerPreview",
    "TriggerView",
    "UrlGate",
]


MIN_PERIOD_S = 60
"""Shortest period of `every`. Whatever comes more often is a loop, not a schedule."""
MAX_PROMPT_CHARS = 100_000
CATCHUP_S = 3_600
PAUSE_AFTER_FAILURES = 5

Jitter = Annotated[int, Field(ge=0, le=86_400)]
CatchUpWindow = Annotated[int, Field(ge=0, le=30 * 86_400)]
DayRuns = Annotated[int, Field(ge=1, le=1_000_000)]
DayCost = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]
PauseAfter = Annotated[int, Field(ge=0, le=1_000)]

_Schedule = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
_Timezone = Annotated[str, StringConstraints(min_length=1, max_length=64)]
_Prompt = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_PROMPT_CHARS),
    AfterValidator(storable),
]
_Title = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), AfterValidator(storable)
]
_ThreadId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")]


_FOLLOWED = frozenset({301, 302, 303, 307, 308})


class UrlGate(Body):
    """Fires where an address answers, or answers something new. It is fetched as agents' tools fetch, without login."""

    kind: Literal["url"]
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]\S*$", max_length=2_000), AfterValidator(storable)]
    expect_status: Annotated[int, Field(ge=200, le=599)] = 200
    changed: bool = False
    """Only if the body is another than when it fired last."""

    @model_validator(mode="after")
    def _can_open(self) -> Self:
        if self.expect_status in _FOLLOWED:
            raise ValueError(f"expect_status {self.expect_status} never opens the gate, since redirects are followed")
        try:
            parts = urlsplit(self.url)
            usable = bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ValueError(f"the url {self.url!r} never opens the gate: its host or port cannot be used")
        return self


class OpenTasksGate(Body):
    """Fires where the agent owns an active task."""

    kind: Literal["open_tasks"]


class IdleGate(Body):
    """Fires where the agent has been left alone: none of its runs is open, or ended within so many seconds."""

    kind: Literal["idle"]
    for_s: Annotated[int, Field(ge=1, le=30 * 86_400)]


Gate = Annotated[UrlGate | OpenTasksGate | IdleGate, Field(discriminator="kind")]
GATE: TypeAdapter[UrlGate | OpenTasksGate | IdleGate] = TypeAdapter(Gate)


class TriggerCreate(Body):
    """A new trigger."""

    agent_id: AgentId
    kind: TriggerKind
    schedule: _Schedule
    """`cron`: five fields, or six with seconds as the last. `at`: a time in RFC 3339, in the future. `every`: a period
    in seconds, at least 60."""
    timezone: _Timezone | None = None
    """IANA name, such as ``Europe/Berlin``; what a cron line is meant in. Null takes the fleet's."""
    prompt: _Prompt
    """What the agent is told each time."""
    title: _Title | None = None
    enabled: bool = True
    thread_id: _ThreadId | None = None
    """A thread of the agent that every firing goes on with; null makes a new one each time."""
    starts_at: AwareDatetime | None = None
    """Nothing fires before. A period counts from here."""
    ends_at: AwareDatetime | None = None
    """Nothing fires after."""
    jitter_s: Jitter = 0
    """Each slot fires up to so many seconds later, by chance of its own; less than the time between two slots."""
    overlap: Overlap = "skip"
    """When a slot comes while a run of an earlier one is open: leave it out, stand in line, or cancel the other."""
    catchup_s: CatchUpWindow = CATCHUP_S
    """How late a slot may fire when nobody fired it in time. Later it is skipped."""
    catchup: CatchUp = "once"
    """What becomes of several such slots: the latest fires, or each does."""
    max_runs_per_day: DayRuns | None = None
    """Of a day of the tenant's."""
    max_cost_usd_per_day: DayCost | None = None
    """No run begins once those of the day have cost so much."""
    pause_after_failures: PauseAfter = PAUSE_AFTER_FAILURES
    """It pauses after so many failed runs in a row; 0 is never."""
    gate: Gate | None = None
    """What has to be so for a slot to fire; looking costs no model call."""


class TriggerPatch(Body):
    """Fields to change; those left out stay.

    Null clears ``title``, ``thread_id``, ``starts_at``, ``ends_at``, ``max_runs_per_day``, ``max_cost_usd_per_day`` and
    ``gate``.
    """

    kind: TriggerKind | None = None
    schedule: _Schedule | None = None
    timezone: _Timezone | None = None
    prompt: _Prompt | None = None
    title: _Title | None = None
    enabled: bool | None = None
    thread_id: _ThreadId | None = None
    starts_at: AwareDatetime | None = None
    ends_at: AwareDatetime | None = None
    jitter_s: Jitter | None = None
    overlap: Overlap | None = None
    catchup_s: CatchUpWindow | None = None
    catchup: CatchUp | None = None
    max_runs_per_day: DayRuns | None = None
    max_cost_usd_per_day: DayCost | None = None
    pause_after_failures: PauseAfter | None = None
    gate: Gate | None = None


class TriggerView(View):
    """A trigger as it stands."""

    id: str
    agent_id: str
    kind: TriggerKind
    schedule: str
    timezone: str
    prompt: str
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
    max_cost_usd_per_day: float | None
    pause_after_failures: int
    gate: Gate | None
    failures: int
    """Failed runs in a row."""
    paused_reason: str | None
    """Why it does not fire though it is enabled; `resume` ends that."""
    next_slot_at: datetime | None
    """The next time by its schedule; null does not fire."""
    next_fire_at: datetime | None
    """When it fires next: the slot and its jitter, or when somebody looks again while its agent is paused."""
    created_by: str
    """``person``, or the id of the agent that made it."""
    created_at: datetime
    updated_at: datetime


class Firing(View):
    """One time at which a trigger fires."""

    at: datetime
    """In UTC."""
    local: str
    """The same in the trigger's time zone, in RFC 3339."""


class TriggerFiringView(View):
    """What came of one slot of a trigger."""

    id: str
    trigger_id: str
    scheduled_for: datetime
    """The slot, without jitter; of a firing that somebody asked for, when that was."""
    fired_at: datetime
    outcome: FiringOutcome
    run_id: str | None
    run_status: str | None
    """As it stands; null where there is none, or it was deleted."""
    thread_id: str | None
    skip_reason: SkipReason | None
    detail: str | None
    """The reason in words."""
    manual: bool
    """Somebody asked for it."""


class TriggerPreview(View):
    """The next times at which a trigger would fire if it were enabled; fewer than asked for where it ends."""

    trigger_id: str
    enabled: bool
    timezone: str
    firings: list[Firing] = Field(default_factory=list[Firing])
