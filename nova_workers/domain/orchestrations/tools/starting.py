"""The `orchestrations` capability: gives a task to a tree of agents, and its result comes back."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from nova_workers.base.errors import ConfigurationError, ToolFailure, missing
from nova_workers.contracts.http.orchestrations import OrchestrationCreate, OrchestrationView
from nova_workers.contracts.orchestration import MAX_PROMPT_CHARS, ORCHESTRATIONS, Origin
from nova_workers.contracts.ports import OrchestrationControl
from nova_workers.contracts.waits import AwaitOrchestration
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.orchestrations.sql.trees import get_orchestration, list_orchestrations
from nova_workers.ledger.database import Database

_SOURCE = "agent"
_MAX_TASK_CHARS = 200

_Id = Annotated[
    str, Field(pattern=r"^orc_[0-9A-Z]{26}$", description="As start_orchestration or list_orchestrations gives it.")
]


class _Start(ToolInput):
    task: Annotated[
        str,
        Field(min_length=1, max_length=MAX_PROMPT_CHARS, pattern=r"\S", description="With all that they must know."),
    ]
    wait: Annotated[
        bool,
        Field(description="Wait for the result. Otherwise go on; the result comes to this conversation as a message."),
    ] = True
    model: Annotated[
        str | None,
        Field(min_length=1, max_length=200, description="The master's model. Leave it out for the default."),
    ] = None
    cwd: Annotated[
        str | None, Field(min_length=1, max_length=4_096, description="Working directory, within your directories.")
    ] = None
    token_budget: Annotated[int | None, Field(ge=1, le=10**12, description="Tokens of all agents together.")] = None
    cost_budget_usd: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, description="Cost of all agents together.")
    ] = None
    time_budget_s: Annotated[
        float | None, Field(gt=0, le=31_536_000, description="Seconds after which it is killed.")
    ] = None
    max_agent_depth: Annotated[int | None, Field(ge=0, le=50, description="Levels of agents below the master.")] = None
    max_concurrent_agents: Annotated[int | None, Field(ge=1, le=1_000, description="Agents that work at once.")] = None


class _One(ToolInput):
    orchestration_id: _Id


class _List(ToolInput):
    open: Annotated[bool | None, Field(description="True: only open ones. False: only those that have ended.")] = None
    limit: Annotated[int, Field(ge=1, le=50, description="Most to return.")] = 20
    before: Annotated[_Id | None, Field(description="Only older ones than this; to see more.")] = None


class _Kill(_One):
    reason: Annotated[str, Field(min_length=1, max_length=2_000, description="For the record.")]


class _OrchestrationTools:
    """An agent sees and kills only the orchestrations that it started."""

    def __init__(self, database: Database, control: OrchestrationControl | None) -> None:
        self._database = database
        self._given = control

    @property
    def _control(self) -> OrchestrationControl:
        if self._given is None:
            raise ConfigurationError("This process describes capabilities and does not serve them.")
        return self._given

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="start_orchestration",
                description=(
                    "Give a task that is too large for one agent to a tree of agents: a master plans, gives parts of "
                    "it to workers, and sums up. The agents have your rights, and know nothing of this conversation."
                ),
                input=_Start,
                run=self._start,
                # A repeated call finds the orchestration that the first one started.
                idempotent=True,
            ),
            ToolDeclaration(
                name="get_orchestration",
                description="See the state of an orchestration that you started, its cost so far, and its result.",
                input=_One,
                run=self._get,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="list_orchestrations",
                description="See the orchestrations that you started, newest first.",
                input=_List,
                run=self._list,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="wait_for_orchestration",
                description="Wait for the end of an orchestration that you started, and get its result.",
                input=_One,
                run=self._wait,
                idempotent=True,
            ),
            ToolDeclaration(
                name="kill_orchestration",
                description="End an orchestration that you started, with all of its agents. Partial results are kept.",
                input=_Kill,
                run=self._kill,
                idempotent=True,
            ),
        )

    async def _start(self, context: CapabilityContext, given: _Start) -> str | AwaitOrchestration:
        _require_top(context)
        wanted = OrchestrationCreate.model_validate(
            {
                **given.model_dump(exclude={"wait"}, exclude_none=True),
                "agent_id": context.agent_id,
                "queue": context.queue,
            }
        )
        origin = Origin(
            context.run_id,
            key=None if context.call_id is None else f"{context.turn_id} {context.call_id}",
            report_thread_id=None if given.wait else context.thread_id,
        )
        started = await self._control.start_by_agent(context.tenant_id, wanted, origin)
        if given.wait:
            return AwaitOrchestration(orchestration_id=started.orchestration_id, master_run_id=started.run_id)
        return (
            f"Started {started.orchestration_id}. When it ends, a message in this conversation reports it; "
            "get_orchestration shows how far it is."
        )

    async def _get(self, context: CapabilityContext, given: _One) -> str:
        return _describe(await self._own(context, given.orchestration_id))

    async def _list(self, context: CapabilityContext, given: _List) -> str:
        async with self._database.connection() as connection:
            found = await list_orchestrations(
                connection,
                context.tenant_id,
                open=given.open,
                agent_id=context.agent_id,
                source=_SOURCE,
                before=given.before,
                limit=given.limit,
            )
        return _lines(found, given.limit)

    async def _wait(self, context: CapabilityContext, given: _One) -> str | AwaitOrchestration:
        view = await self._own(context, given.orchestration_id)
        if view.finished_at is not None:
            return _describe(view)
        return AwaitOrchestration(orchestration_id=view.id, master_run_id=view.run_id)

    async def _kill(self, context: CapabilityContext, given: _Kill) -> str:
        view = await self._own(context, given.orchestration_id)
        killed = await self._control.kill(context.tenant_id, view.id, None, given.reason)
        return f"Ended {len(killed)} agents of {view.id}." if killed else f"{view.id} had ended: it is {view.state}."

    async def _own(self, context: CapabilityContext, orchestration_id: str) -> OrchestrationView:
        async with self._database.connection() as connection:
            view = await get_orchestration(connection, context.tenant_id, orchestration_id)
        if view.agent_id != context.agent_id or view.source != _SOURCE:
            raise missing("orchestration", orchestration_id)
        return view


def _require_top(context: CapabilityContext) -> None:
    """Refuse a start by an agent that another agent gave work to: the new tree would escape the bounds of that work."""
    if context.place is not None or context.depth:
        raise ToolFailure(
            "Another agent gave you this work, so you cannot start an orchestration, which would have limits of its "
            "own. Do it yourself, or say in your answer what should be orchestrated."
        )


def _describe(view: OrchestrationView) -> str:
    cost = "unknown" if view.usage.cost_usd is None else f"${view.usage.cost_usd:.4f}"
    agents = ", ".join(f"{count} {state}" for state, count in sorted(view.agents.items()))
    lines = [f"{view.id}: {view.state}. Agents: {agents}. Cost: {cost}."]
    if view.error is not None:
        lines.append(f"Error: {view.error.code}: {view.error.message}")
    if view.summary:
        lines.append(view.summary)
    return "\n\n".join(lines)


def _lines(found: Sequence[OrchestrationView], limit: int) -> str:
    if not found:
        return "There are none."
    lines = [f"{view.id}: {view.state}, started {view.created_at:%Y-%m-%d %H:%M} UTC. {_short(view)}" for view in found]
    if len(found) == limit:
        lines.append(f"There may be more: ask with before={found[-1].id}.")
    return "\n".join(lines)


def _short(view: OrchestrationView) -> str:
    return view.task if len(view.task) <= _MAX_TASK_CHARS else f"{view.task[:_MAX_TASK_CHARS]}…"


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    return ToolCapability(
        ORCHESTRATIONS,
        "Gives large tasks to a tree of agents with the rights of this one, and brings back the result.",
        _OrchestrationTools(parts.database, parts.orchestrations).declare(),
    )
