"""The orchestration tools: what an agent of an orchestration has besides its own tools, by its role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field

from nova_workers.capabilities.seam import (
    CapabilityContext,
    DeclaredServer,
    NoConfig,
    Servers,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.contracts.orchestration import MAX_PROMPT_CHARS, MAX_SUMMARY_CHARS, AgentDescriptor, SpawnRequest
from nova_workers.contracts.waits import MAX_WAIT_S, AwaitMessages
from nova_workers.errors import ToolFailure
from nova_workers.orchestration.actions import AgentActions, Caller, Spawned
from nova_workers.vocabulary import ENDED_AGENTS, AgentRole, AwaitedSender, Complexity

__all__ = ["CAPABILITY", "OrchestrationCapability"]

CAPABILITY = "orchestrator"
"""Name of the MCP server of these tools."""

_CHILD_ONLY = frozenset({"ask_parent", "report_progress"})
_EXPERT_TOOLS = frozenset({"ask_parent", "report_progress", "task_complete"})

_Prompt = Annotated[
    str,
    Field(min_length=1, max_length=MAX_PROMPT_CHARS, description="The task, with everything that the child must know."),
]
_ChildId = Annotated[str, Field(min_length=1, max_length=64, description="The child's id, or a unique part of it.")]
_Text = Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS)]
_Names = Annotated[tuple[str, ...] | None, Field(max_length=100)]


class _NoInput(ToolInput):
    pass


class _AskParent(ToolInput):
    question: _Text


class _Respond(ToolInput):
    child_id: _ChildId
    correlation_id: Annotated[
        str | None, Field(max_length=64, description="Of the question. Leave it out for the child's newest question.")
    ] = None
    response: _Text


class _Wait(ToolInput):
    timeout: Annotated[float, Field(ge=0, le=MAX_WAIT_S, description="Seconds to wait at most; 0 waits for ever.")] = 0


class _PromptChild(ToolInput):
    child_id: _ChildId
    prompt: _Prompt


class _Child(ToolInput):
    prompt: _Prompt
    tools: Annotated[_Names, Field(description="Native tools that it may use. Leave it out for all.")] = None
    model: Annotated[str | None, Field(max_length=200, description="Leave it out to have one chosen.")] = None
    cwd: Annotated[str | None, Field(max_length=1_000, description="Working directory. Leave it out for yours.")] = None
    mcp_servers: Annotated[_Names, Field(description="Plugins that it needs besides those that match its task.")] = None
    complexity: Annotated[Complexity | None, Field(description="How hard the task is; chooses a model that fits.")] = (
        None
    )
    role: Annotated[str, Field(pattern="^(WORKER|REVIEWER)$", description="WORKER, or REVIEWER for checks.")] = "WORKER"
    name: Annotated[str | None, Field(max_length=100, description="A short name for people.")] = None


class _Spawn(_Child):
    wait: Annotated[bool, Field(description="Wait for its result. Otherwise get it with wait_for_message.")] = True


class _SpawnParallel(ToolInput):
    children: Annotated[tuple[_Child, ...], Field(min_length=1, max_length=50)]
    wait: Annotated[bool, Field(description="Wait for all results.")] = True


class _Restart(_PromptChild):
    wait: Annotated[bool, Field(description="Wait for its result.")] = True


class _ConsultExpert(ToolInput):
    expert_id: Annotated[str, Field(min_length=1, max_length=64)]
    question: _Text


class _Progress(ToolInput):
    status: Annotated[str, Field(min_length=1, max_length=2_000)]
    percent: Annotated[float | None, Field(ge=0, le=100)] = None


class _Complete(ToolInput):
    summary: Annotated[str, Field(max_length=MAX_SUMMARY_CHARS, description="What was done and found.")]
    artifacts: Annotated[dict[str, Any], Field(description="Results by name, such as paths of files.")] = Field(
        default_factory=dict[str, Any]
    )


class _ChildStatus(ToolInput):
    child_id: _ChildId


class OrchestrationCapability:
    """Gives every agent of an orchestration the tools of its role. It is never granted."""

    name = CAPABILITY
    description = "Lets agents of an orchestration spawn, ask, prompt and watch other agents."
    config: type[BaseModel] = NoConfig

    def __init__(self, actions: AgentActions) -> None:
        self._actions = actions
        self.tools: tuple[ToolDeclaration[Any], ...] = self._declare()

    @staticmethod
    def injected(context: CapabilityContext) -> bool:
        """Whether the run is one of an orchestration's agent."""
        return context.place is not None

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> Servers:
        """Return the tools of the agent's role."""
        role: AgentRole = "WORKER" if context.place is None else context.place.role
        tools = tuple(tool for tool in self.tools if _has(role, tool.name))
        return DeclaredServer(CAPABILITY, tools, replace(context, config=config))

    def _declare(self) -> tuple[ToolDeclaration[Any], ...]:
        # Repeated after a crash, each finds what the first call did: all are idempotent.
        return (
            ToolDeclaration(
                "ask_parent",
                "Ask the agent that gave you your task, and wait for the answer.",
                _AskParent,
                self._ask_parent,
                idempotent=True,
            ),
            ToolDeclaration(
                "respond_to_child",
                "Answer a question of a child. The child goes on with the answer.",
                _Respond,
                self._respond,
                idempotent=True,
            ),
            ToolDeclaration(
                "wait_for_message",
                "Wait for the next message: a result or a question of a child, or a prompt.",
                _Wait,
                self._wait,
                idempotent=True,
            ),
            ToolDeclaration(
                "send_child_prompt",
                "Send a message to a child that works. It gets it when it waits for messages, or at its end.",
                _PromptChild,
                self._prompt_child,
                idempotent=True,
            ),
            ToolDeclaration(
                "spawn_child",
                "Give a task to a child agent. A child that has done a similar task takes it, or else a fresh one.",
                _Spawn,
                self._spawn,
                idempotent=True,
            ),
            ToolDeclaration(
                "spawn_children_parallel",
                "Give tasks to several child agents that work at the same time.",
                _SpawnParallel,
                self._spawn_parallel,
                idempotent=True,
            ),
            ToolDeclaration(
                "restart_child",
                "Give another task to a child that has ended. It remembers its conversation.",
                _Restart,
                self._restart,
                idempotent=True,
            ),
            ToolDeclaration(
                "consult_expert",
                "Ask a configured expert, and wait for the answer.",
                _ConsultExpert,
                self._consult_expert,
                idempotent=True,
            ),
            ToolDeclaration(
                "report_progress",
                "Report how far you are. Does not wait.",
                _Progress,
                self._report_progress,
                idempotent=True,
            ),
            ToolDeclaration(
                "task_complete",
                "Declare your task complete, with a summary of the result. Your turn ends; children that still work "
                "are ended.",
                _Complete,
                self._complete,
                idempotent=True,
            ),
            ToolDeclaration(
                "check_child_status",
                "See the state of one child.",
                _ChildStatus,
                self._check_child,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                "get_children_status",
                "See the states of all your children.",
                _NoInput,
                self._children_status,
                idempotent=True,
                read_only=True,
            ),
        )

    async def _ask_parent(self, context: CapabilityContext, given: _AskParent) -> AwaitMessages:
        correlation_id, parent_id = await self._actions.ask_parent(_caller(context), given.question)
        return AwaitMessages(sender="parent", correlation_ids=(correlation_id,), agent_ids=(parent_id,))

    async def _respond(self, context: CapabilityContext, given: _Respond) -> str:
        child_id = await self._actions.respond(_caller(context), given.child_id, given.correlation_id, given.response)
        return f"{child_id} has the answer and goes on."

    async def _wait(self, context: CapabilityContext, given: _Wait) -> AwaitMessages:
        if not given.timeout:
            await self._actions.expect_message(_caller(context))
        return AwaitMessages(sender="any", timeout_s=given.timeout or None)

    async def _prompt_child(self, context: CapabilityContext, given: _PromptChild) -> str:
        child = await self._actions.prompt_child(_caller(context), given.child_id, given.prompt)
        return f"{child.id} ({child.state}) has the message."

    async def _spawn(self, context: CapabilityContext, given: _Spawn) -> str | AwaitMessages:
        (spawned,) = await self._actions.spawn(_caller(context), [_request(given)])
        return _awaited([spawned], "child") if given.wait else _describe_spawn(spawned)

    async def _spawn_parallel(self, context: CapabilityContext, given: _SpawnParallel) -> str | AwaitMessages:
        spawned = await self._actions.spawn(_caller(context), [_request(child) for child in given.children])
        return _awaited(spawned, "child") if given.wait else "\n".join(map(_describe_spawn, spawned))

    async def _restart(self, context: CapabilityContext, given: _Restart) -> str | AwaitMessages:
        spawned = await self._actions.restart(_caller(context), given.child_id, given.prompt)
        return _awaited([spawned], "child") if given.wait else _describe_spawn(spawned)

    async def _consult_expert(self, context: CapabilityContext, given: _ConsultExpert) -> AwaitMessages:
        request = SpawnRequest(given.question, role="EXPERT", expert_id=given.expert_id)
        return _awaited(await self._actions.spawn(_caller(context), [request]), "expert")

    async def _report_progress(self, context: CapabilityContext, given: _Progress) -> str:
        await self._actions.report_progress(_caller(context), given.status, given.percent)
        return "Reported."

    async def _complete(self, context: CapabilityContext, given: _Complete) -> str:
        await self._actions.complete(_caller(context), given.summary, given.artifacts)
        return "The task is complete."

    async def _check_child(self, context: CapabilityContext, given: _ChildStatus) -> str:
        _, children = await self._actions.family(_caller(context))
        wanted = given.child_id.strip().casefold()
        found = [child for child in children if wanted in child.id.casefold()]
        if len(found) != 1:
            known = ", ".join(child.id for child in (found or children)) or "none"
            raise ToolFailure(
                f"child_id: {given.child_id!r} matches {len(found)} of your children. There are: {known}."
            )
        return _describe_child(found[0])

    async def _children_status(self, context: CapabilityContext, __: _NoInput) -> str:
        _, children = await self._actions.family(_caller(context))
        return "\n".join(map(_describe_child, children)) or "You have no children."


def _has(role: AgentRole, tool: str) -> bool:
    if role == "EXPERT":
        return tool in _EXPERT_TOOLS
    return role != "MASTER" or tool not in _CHILD_ONLY


def _caller(context: CapabilityContext) -> Caller:
    assert context.place is not None  # noqa: S101 - `injected` gives the tools to agents of orchestrations only
    return Caller(
        tenant_id=context.tenant_id,
        orchestration_id=context.place.orchestration_id,
        agent_id=context.place.agent_id,
        run_id=context.run_id,
        fence=context.fence,
        key=None if context.call_id is None else f"{context.turn_id} {context.call_id}",
    )


def _request(given: _Child) -> SpawnRequest:
    return SpawnRequest(
        prompt=given.prompt,
        role="REVIEWER" if given.role == "REVIEWER" else "WORKER",
        name=given.name,
        tools=given.tools,
        model=given.model,
        cwd=given.cwd,
        mcp_servers=given.mcp_servers,
        complexity=given.complexity,
    )


def _awaited(spawned: Sequence[Spawned], sender: AwaitedSender) -> AwaitMessages:
    return AwaitMessages(
        sender=sender,
        correlation_ids=tuple(each.run_id for each in spawned),
        agent_ids=tuple(each.agent_id for each in spawned),
    )


_HOW: Mapping[str, str] = {
    "spawned": "is a new child and works on it",
    "restarted": "was restarted and works on it",
    "prompted": "was idle and works on it",
}


def _describe_spawn(spawned: Spawned) -> str:
    return f"{spawned.agent_id} {_HOW[spawned.how]}. Get its result with wait_for_message."


def _describe_child(child: AgentDescriptor) -> str:
    parts = [f"{child.id} {child.name} ({child.role}): {child.state}"]
    if child.progress is not None:
        percent = child.progress.get("percent")
        share = "" if percent is None else f" ({percent:g} %)"
        parts.append(f"progress: {child.progress.get('status')}{share}")
    if child.model is not None:
        parts.append(f"model: {child.model}")
    if child.state in ENDED_AGENTS:
        result = child.summary or child.error_message
        if result:
            parts.append(f"result: {result}")
    return "; ".join(parts)
