"""Tools that give work to children."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nova_workers.base.vocabulary import Complexity
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.orchestration import SpawnRequest
from nova_workers.contracts.waits import AwaitMessages
from nova_workers.domain.capabilities.rules.seam import CapabilityContext, ToolDeclaration, ToolInput
from nova_workers.domain.orchestrations.rules.actions import AgentActions
from nova_workers.domain.orchestrations.tools.seam import (
    ChildId,
    Declarations,
    Prompt,
    await_spawned,
    caller_of,
    describe_spawned,
)

_Names = Annotated[tuple[str, ...] | None, Field(max_length=100)]


class _Child(ToolInput):
    prompt: Prompt
    tools: Annotated[
        _Names,
        Field(
            description="All that it may use of your tools, besides those of orchestrations: native tools, tools of "
            "capabilities, whole capabilities. Leave it out for those of its role."
        ),
    ] = None
    model: Annotated[str | None, Field(max_length=200, description="Leave it out to have one chosen.")] = None
    cwd: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1_000,
            description="Working directory, the only place where it may write; a name is below yours, and made. Left "
            "out: yours for a child that works while you wait for it alone; else one of its own, if it may write.",
        ),
    ] = None
    mcp_servers: Annotated[_Names, Field(description="Plugins that it needs besides those that match its task.")] = None
    complexity: Annotated[Complexity | None, Field(description="How hard the task is; chooses a model that fits.")] = (
        None
    )
    role: Annotated[str, Field(pattern="^(WORKER|REVIEWER)$", description="WORKER, or REVIEWER for checks.")] = "WORKER"
    name: Annotated[str | None, Field(max_length=100, description="A short name for people.")] = None
    output_schema: Annotated[
        JsonObject | None,
        Field(description="JSON schema of its result, which is then JSON. Leave it out for a summary in words."),
    ] = None
    reuse: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=64,
            description="Id of a child of yours that has ended or waits for messages: it takes the task, and remembers "
            "its conversation. Leave it out for a fresh child.",
        ),
    ] = None

    def request(self) -> SpawnRequest:
        return SpawnRequest(
            prompt=self.prompt,
            role="REVIEWER" if self.role == "REVIEWER" else "WORKER",
            name=self.name,
            tools=self.tools,
            model=self.model,
            cwd=self.cwd,
            mcp_servers=self.mcp_servers,
            complexity=self.complexity,
            output_schema=self.output_schema,
            reuse=self.reuse,
        )


class _Spawn(_Child):
    wait: Annotated[bool, Field(description="Wait for its result. Otherwise get it with wait_for_message.")] = True


class _SpawnParallel(ToolInput):
    children: Annotated[tuple[_Child, ...], Field(min_length=1, max_length=50)]
    wait: Annotated[bool, Field(description="Wait for all results.")] = True


class _Restart(ToolInput):
    child_id: ChildId
    prompt: Prompt
    wait: Annotated[bool, Field(description="Wait for its result.")] = True


class _Children:
    def __init__(self, actions: AgentActions) -> None:
        self._actions = actions

    async def spawn(self, context: CapabilityContext, given: _Spawn) -> str | AwaitMessages:
        (spawned,) = await self._actions.spawn(caller_of(context), [given.request()], waits=given.wait)
        return await_spawned([spawned], "child") if given.wait else describe_spawned(spawned)

    async def spawn_parallel(self, context: CapabilityContext, given: _SpawnParallel) -> str | AwaitMessages:
        spawned = await self._actions.spawn(
            caller_of(context), [child.request() for child in given.children], waits=given.wait
        )
        return await_spawned(spawned, "child") if given.wait else "\n".join(map(describe_spawned, spawned))

    async def restart(self, context: CapabilityContext, given: _Restart) -> str | AwaitMessages:
        spawned = await self._actions.restart(caller_of(context), given.child_id, given.prompt)
        return await_spawned([spawned], "child") if given.wait else describe_spawned(spawned)


def child_tools(actions: AgentActions) -> Declarations:
    """Return the tools."""
    tools = _Children(actions)
    return (
        ToolDeclaration(
            "spawn_child",
            "Give a task to a fresh child agent, which knows only its prompt.",
            _Spawn,
            tools.spawn,
            idempotent=True,
        ),
        ToolDeclaration(
            "spawn_children_parallel",
            "Give tasks to several child agents that work at the same time.",
            _SpawnParallel,
            tools.spawn_parallel,
            idempotent=True,
        ),
        ToolDeclaration(
            "restart_child",
            "Give another task to a child that has ended. It remembers its conversation.",
            _Restart,
            tools.restart,
            idempotent=True,
        ),
    )
