"""The `triggers` capability: an agent schedules its own runs."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from nova_workers.base.errors import Forbidden, InvalidInput, missing
from nova_workers.contracts.http.triggers import (
    CATCHUP_S,
    MAX_PROMPT_CHARS,
    PAUSE_AFTER_FAILURES,
    CatchUp,
    CatchUpWindow,
    DayCost,
    DayRuns,
    Gate,
    Jitter,
    Overlap,
    PauseAfter,
    TriggerCreate,
    TriggerKind,
    TriggerPatch,
    TriggerView,
    UrlGate,
)
from nova_workers.contracts.native import native_tools
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.triggers.rules import definitions as workspace
from nova_workers.domain.triggers.rules.cron import names_many_seconds
from nova_workers.domain.triggers.rules.gate_addresses import check_gate_address, gate_rules
from nova_workers.domain.triggers.sql.definitions import MAX_AGENT_TRIGGERS, delete_trigger, get_trigger, list_triggers
from nova_workers.ledger.database import Connection

_SHOWN_FIRINGS = 3
_SHOWN_PROMPT_CHARS = 200

_Schedule = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
    Field(
        description="cron: minute, hour, day of the month, month, day of the week, such as '30 9 * * mon-fri'. "
        "at: date, time and offset, such as '2030-05-01T09:00:00+02:00'. every: seconds, at least 60."
    ),
]
_Kind = Annotated[TriggerKind, Field(description="at: once; every: after each period; cron: by the clock.")]
_Timezone = Annotated[
    str | None, Field(max_length=64, description="What a cron line is meant in, such as 'Europe/Berlin'.")
]
_Prompt = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_PROMPT_CHARS),
    Field(description="What you will be told each time. You will know nothing of this conversation, so say it all."),
]
_Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
_Moment = Annotated[AwareDatetime | None, Field(description="With offset, such as '2030-05-01T09:00:00+02:00'.")]
_Jitter = Annotated[Jitter, Field(description="Fire up to so many seconds later, by chance.")]
_Overlap = Annotated[
    Overlap,
    Field(
        description="When the time comes and your run of an earlier time is still open: skip it, queue behind it, or "
        "cancel_other."
    ),
]
_CatchUpS = Annotated[
    CatchUpWindow,
    Field(description="How many seconds late a time may fire if the system was away."),
]
_CatchUp = Annotated[CatchUp, Field(description="Whether several such times fire once, or each of them.")]
_DayRuns = Annotated[DayRuns | None, Field(description="Most runs of a day.")]
_DayCost = Annotated[DayCost | None, Field(description="Nothing begins once a day's runs cost so many US dollars.")]
_PauseAfter = Annotated[
    PauseAfter, Field(description="Pause after so many failed runs in a row; only a person ends a pause. 0 is never.")
]
_Gate = Annotated[
    Gate | None,
    Field(
        description="What has to be so when the time comes, else it is skipped. url, for agents with web tools: an "
        "address answers with expect_status, and with changed only if its body is a new one. open_tasks: you own an "
        "active task. idle: you had no run for for_s seconds."
    ),
]
_WEB_TOOL = "WebFetch"
"""An agent without this tool must not request a URL by a `url` gate either."""
_BRAKES = ("max_runs_per_day", "max_cost_usd_per_day", "pause_after_failures")
_TriggerId = Annotated[
    str, StringConstraints(pattern=r"^trg_[0-9A-Z]{26}$"), Field(description="As trigger_list gives it.")
]


class _Create(ToolInput):
    kind: _Kind
    schedule: _Schedule
    prompt: _Prompt
    timezone: _Timezone = None
    title: _Title | None = None
    enabled: bool = True
    same_thread: Annotated[
        bool, Field(description="Go on with this conversation each time, rather than begin a new one.")
    ] = False
    starts_at: _Moment = None
    ends_at: _Moment = None
    jitter_s: _Jitter = 0
    overlap: _Overlap = "skip"
    catchup_s: _CatchUpS = CATCHUP_S
    catchup: _CatchUp = "once"
    max_runs_per_day: _DayRuns = None
    max_cost_usd_per_day: _DayCost = None
    pause_after_failures: _PauseAfter = PAUSE_AFTER_FAILURES
    gate: _Gate = None


class _List(ToolInput):
    limit: Annotated[int, Field(ge=1, le=MAX_AGENT_TRIGGERS, description="Most triggers to return.")] = 20
    before: Annotated[_TriggerId | None, Field(description="Only older ones than this; to see more.")] = None


class _Update(ToolInput):
    trigger_id: _TriggerId
    kind: _Kind | None = None
    schedule: _Schedule | None = None
    prompt: _Prompt | None = None
    timezone: _Timezone = None
    title: _Title | None = None
    enabled: bool | None = None
    starts_at: _Moment = None
    ends_at: _Moment = None
    jitter_s: _Jitter | None = None
    overlap: _Overlap | None = None
    catchup_s: _CatchUpS | None = None
    catchup: _CatchUp | None = None
    max_runs_per_day: _DayRuns = None
    max_cost_usd_per_day: _DayCost = None
    pause_after_failures: _PauseAfter | None = None
    gate: _Gate = None
    clear: Annotated[
        tuple[
            Literal["title", "starts_at", "ends_at", "thread_id", "gate", "max_runs_per_day", "max_cost_usd_per_day"],
            ...,
        ],
        Field(max_length=7, description="What to take away. Without thread_id each firing begins a new conversation."),
    ] = ()


class _Delete(ToolInput):
    trigger_id: _TriggerId


class _TriggerTools:
    """An agent sees and changes only the triggers that start it, including those made by others."""

    def __init__(self, parts: CapabilityParts) -> None:
        self._database = parts.database
        self._timezone = parts.settings.timezone
        self._gate_rules = gate_rules(parts.settings.tools, timeout_s=parts.settings.triggers.gate_timeout_s)

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="trigger_create",
                description="Have yourself started later, once or again and again, with words of your own.",
                input=_Create,
                run=self._create,
                atomic=True,
            ),
            ToolDeclaration(
                name="trigger_list",
                description="Look at your triggers, newest first.",
                input=_List,
                run=self._list,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="trigger_update",
                description="Change one of your triggers, or switch it on or off. What you leave out stays.",
                input=_Update,
                run=self._update,
                idempotent=True,
            ),
            ToolDeclaration(
                name="trigger_delete",
                description="Delete one of your triggers.",
                input=_Delete,
                run=self._delete,
                idempotent=True,
            ),
        )

    async def _create(self, context: CapabilityContext, given: _Create) -> str:
        _require_reach(context, given)
        check_gate_address(given.gate, self._gate_rules)
        fields = given.model_dump(exclude={"same_thread"})
        thread_id = context.thread_id if given.same_thread else None
        wanted = TriggerCreate(agent_id=context.agent_id, thread_id=thread_id, **fields)
        async with self._database.transaction() as connection:
            made = await workspace.create_trigger(
                connection, context.tenant_id, wanted, timezone=self._timezone, by=context.agent_id
            )
            _require_calm(made)
        return f"Made {await self._described(made)}"

    async def _list(self, context: CapabilityContext, given: _List) -> str:
        async with self._database.connection() as connection:
            triggers = await list_triggers(
                connection, context.tenant_id, agent_id=context.agent_id, before=given.before, limit=given.limit
            )
        if not triggers:
            return "You have no triggers." if given.before is None else "There are no older ones."
        parts = [f"{await self._described(trigger)}\n{_short(trigger.prompt)}" for trigger in triggers]
        if len(triggers) == given.limit:
            parts.append(f"There may be more: ask with before={triggers[-1].id}.")
        return "\n\n".join(parts)

    async def _update(self, context: CapabilityContext, given: _Update) -> str:
        _require_reach(context, given)
        check_gate_address(given.gate, self._gate_rules)
        changes: dict[str, Any] = given.model_dump(exclude={"trigger_id", "clear"}, exclude_none=True)
        both = sorted(changes.keys() & set(given.clear))
        if both:
            raise InvalidInput(f"clear: {both[0]} is given as well; give it or clear it.", field="clear")
        changes |= dict.fromkeys(given.clear)
        if not changes:
            raise InvalidInput("Nothing to change: give at least one field beside trigger_id.", field="trigger_id")
        async with self._database.transaction() as connection:
            if changes.keys() & set(_BRAKES):
                await _require_made_by_itself(connection, context, given.trigger_id)
            changed = await workspace.patch_trigger(
                connection,
                context.tenant_id,
                given.trigger_id,
                TriggerPatch.model_validate(changes),
                of=context.agent_id,
            )
            _require_calm(changed)
            if "prompt" in changes:
                _require_run(changed)
        return f"Changed {await self._described(changed)}"

    async def _delete(self, context: CapabilityContext, given: _Delete) -> str:
        async with self._database.transaction() as connection:
            await _require_own(connection, context, given.trigger_id)
            await delete_trigger(connection, context.tenant_id, given.trigger_id)
        return f"Deleted {given.trigger_id}."

    async def _described(self, trigger: TriggerView) -> str:
        title = f" {trigger.title!r}" if trigger.title else ""
        words = f"{trigger.id}{title}: {trigger.kind} {trigger.schedule} ({trigger.timezone})"
        if trigger.thread_id is not None:
            words += f", in thread {trigger.thread_id}"
        if not trigger.enabled:
            return f"{words}. It is switched off."
        if trigger.paused_reason is not None:
            return f"{words}. It is paused: {trigger.paused_reason} Only a person ends that."
        async with self._database.connection() as connection:
            coming = await workspace.preview(connection, trigger, count=_SHOWN_FIRINGS)
        return f"{words}. Next: {', '.join(firing.local for firing in coming.firings) or 'never'}."


async def _require_own(connection: Connection, context: CapabilityContext, trigger_id: str) -> None:
    trigger = await get_trigger(connection, context.tenant_id, trigger_id)
    if trigger.agent_id != context.agent_id:
        raise missing("trigger", trigger_id)


async def _require_made_by_itself(connection: Connection, context: CapabilityContext, trigger_id: str) -> None:
    """Keep an agent from changing the limits of a trigger that it did not create."""
    await _require_own(connection, context, trigger_id)
    trigger = await get_trigger(connection, context.tenant_id, trigger_id)
    if trigger.created_by != context.agent_id:
        raise Forbidden(
            f"Trigger {trigger_id!r} was made by {trigger.created_by!r}, who alone changes {', '.join(_BRAKES)}."
        )


def _require_reach(context: CapabilityContext, given: _Create | _Update) -> None:
    """Keep an agent from a gate that requests URLs if its trust gives it no tool for that. People may."""
    trust = context.agent.trust
    if isinstance(given.gate, UrlGate) and _WEB_TOOL not in native_tools(trust):
        raise Forbidden(f"gate: an agent of the trust {trust!r} has no web tools, so its gate asks no address.")


def _require_calm(trigger: TriggerView) -> None:
    """Keep an agent from starting itself more than once a minute. People may."""
    if trigger.kind == "cron" and names_many_seconds(trigger.schedule):
        raise InvalidInput(
            f"schedule: {trigger.schedule!r} fires more than once a minute; name one second.", field="schedule"
        )


def _require_run(trigger: TriggerView) -> None:
    """Keep an agent from giving tasks to the orchestrations that a person has a trigger start."""
    if trigger.action == "orchestrate":
        raise Forbidden(
            f"prompt: trigger {trigger.id!r} starts orchestrations, whose task only a person changes. Make a "
            "trigger of your own."
        )


def _short(prompt: str) -> str:
    return prompt if len(prompt) <= _SHOWN_PROMPT_CHARS else f"{prompt[:_SHOWN_PROMPT_CHARS]}…"


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    return ToolCapability(
        "triggers",
        "Lets the agent start by itself: once, by the clock, or again and again.",
        _TriggerTools(parts).declare(),
    )
