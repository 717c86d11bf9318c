"""The HTTP contract of triggers, which start agents automatically with a prompt."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, AwareDatetime, Field, StrictBool, StringConstraints, TypeAdapter, model_validator

from nova_workers.base.vocabulary import CatchUp, FiringOutcome, Overlap, SkipReason, TriggerAction, TriggerKind
from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.authors.rights import ADDRESSEE, BOUND, FREE, MESSAGE, OUTBOUND, PARTS, Right, authored
from nova_workers.contracts.bodies import Body, OneLine, View
from nova_workers.contracts.content import storable

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
    "TriggerAction",
    "TriggerCreate",
    "TriggerFiringView",
    "TriggerKind",
    "TriggerPatch",
    "TriggerPreview",
    "TriggerView",
    "UrlGate",
]


MIN_PERIOD_S = 60
"""Shortest period of `every`. Anything more frequent is a loop, not a schedule."""
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
    OneLine, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), AfterValidator(storable)
]
_ThreadId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")]


_FOLLOWED = frozenset({301, 302, 303, 307, 308})


@authored(
    kind=FREE,
    url=OUTBOUND,
    expect_status=FREE,
    changed=FREE,
)
class UrlGate(Body):
    """Opens if an address answers with a status, or with a new body. Fetched as by agents' tools, without login."""

    kind: Literal["url"]
    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]\S*$", max_length=2_000), AfterValidator(storable)]
    expect_status: Annotated[int, Field(ge=200, le=599)] = 200
    changed: StrictBool = False
    """Only if the body differs from the one at the last firing."""

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
            raise ValueError("the url never opens the gate: its host or port cannot be used")
        return self


@authored(
    kind=FREE,
)
class OpenTasksGate(Body):
    """Opens if the agent owns an active task."""

    kind: Literal["open_tasks"]


@authored(
    kind=FREE,
    for_s=BOUND,
)
class IdleGate(Body):
    """Opens if the agent is idle: none of its runs is open, or ended within the last `for_s` seconds."""

    kind: Literal["idle"]
    for_s: Annotated[int, Field(ge=1, le=30 * 86_400)]


Gate = Annotated[UrlGate | OpenTasksGate | IdleGate, Field(discriminator="kind")]
GATE: TypeAdapter[UrlGate | OpenTasksGate | IdleGate] = TypeAdapter(Gate, config={"defer_build": True})


_RIGHTS: Final[Mapping[str, Right]] = {
    "kind": BOUND,
    "schedule": BOUND,
    "timezone": BOUND,
    "prompt": MESSAGE,
    "action": ADDRESSEE,
    "title": FREE,
    "enabled": FREE,
    "thread_id": ADDRESSEE,
    "starts_at": BOUND,
    "ends_at": BOUND,
    "jitter_s": BOUND,
    "overlap": BOUND,
    "catchup_s": BOUND,
    "catchup": BOUND,
    "max_runs_per_day": BOUND,
    "max_cost_usd_per_day": BOUND,
    "pause_after_failures": BOUND,
    "gate": PARTS,
}


@authored(agent_id=ADDRESSEE, **_RIGHTS)
class TriggerCreate(Body):
    """A new trigger."""

    agent_id: AgentId
    kind: TriggerKind
    schedule: _Schedule
    """`cron`: five fields, or six with seconds as the last. `at`: a time in RFC 3339, in the future. `every`: a period
    in seconds, at least 60."""
    timezone: _Timezone | None = None
    """IANA name, such as ``Europe/Berlin``; the time zone of a cron line. Null takes the fleet's."""
    prompt: _Prompt
    """The message that the agent gets each time, or the task of the orchestration."""
    action: TriggerAction = "run"
    """What it starts: a run of the agent, or an orchestration under it, which has threads of its own."""
    title: _Title | None = None
    enabled: StrictBool = True
    thread_id: _ThreadId | None = None
    """The agent's thread that every firing continues; null creates a new thread each time."""
    starts_at: AwareDatetime | None = None
    """It does not fire before. A period counts from here."""
    ends_at: AwareDatetime | None = None
    """It does not fire after."""
    jitter_s: Jitter = 0
    """Each occurrence fires up to this many seconds later, at random; less than the time between two occurrences."""
    overlap: Overlap = "skip"
    """If an occurrence is due while an earlier one's run is open: skip it, queue it, or cancel the earlier run."""
    catchup_s: CatchUpWindow = CATCHUP_S
    """How late a missed occurrence may still fire. After that it is skipped."""
    catchup: CatchUp = "once"
    """Of several missed occurrences, whether only the latest fires or all of them do."""
    max_runs_per_day: DayRuns | None = None
    """Limit of runs in a day of the tenant's time zone."""
    max_cost_usd_per_day: DayCost | None = None
    """No run begins once the day's runs have cost this much."""
    pause_after_failures: PauseAfter = PAUSE_AFTER_FAILURES
    """It pauses after this many consecutive failed runs; 0 is never."""
    gate: Gate | None = None
    """A condition for firing, checked without a model call."""


@authored(**_RIGHTS)
class TriggerPatch(Body):
    """Fields to change; omitted fields stay unchanged.

    Null clears ``title``, ``thread_id``, ``starts_at``, ``ends_at``, ``max_runs_per_day``, ``max_cost_usd_per_day`` and
    ``gate``.
    """

    kind: TriggerKind | None = None
    schedule: _Schedule | None = None
    timezone: _Timezone | None = None
    prompt: _Prompt | None = None
    action: TriggerAction | None = None
    title: _Title | None = None
    enabled: StrictBool | None = None
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
    """A trigger."""

    id: str
    agent_id: str
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
    max_cost_usd_per_day: float | None
    pause_after_failures: int
    gate: Gate | None
    failures: int
    """Consecutive failed runs."""
    paused_reason: str | None
    """Why it does not fire although it is enabled; `resume` clears it."""
    next_slot_at: datetime | None
    """The next time by its schedule; null if it does not fire."""
    next_fire_at: datetime | None
    """When it fires next: the occurrence plus jitter or, while its agent is paused, the time of the next check."""
    created_by: str
    """``person``, or the id of the agent that made it."""
    created_at: datetime
    updated_at: datetime


class Firing(View):
    """One time at which a trigger fires."""

    at: datetime
    """The time in UTC."""
    local: str
    """The same in the trigger's time zone, in RFC 3339."""


class TriggerFiringView(View):
    """The outcome of one trigger occurrence."""

    id: str
    trigger_id: str
    scheduled_for: datetime
    """The planned time without jitter; for a manual firing, the time of the request."""
    fired_at: datetime
    outcome: FiringOutcome
    run_id: str | None
    run_status: str | None
    """The run's current status; null if there is no run, or it was deleted."""
    thread_id: str | None
    skip_reason: SkipReason | None
    detail: str | None
    """A description of the reason."""
    manual: bool
    """Whether it was requested rather than scheduled."""


class SchedulePreview(View):
    """The next times of a schedule that no trigger has yet; fewer than requested if it ends before."""

    timezone: str
    firings: list[Firing] = Field(default_factory=list[Firing])


class TriggerPreview(View):
    """The next times at which a trigger would fire if enabled; fewer than requested if it ends before."""

    trigger_id: str
    enabled: bool
    timezone: str
    firings: list[Firing] = Field(default_factory=list[Firing])
