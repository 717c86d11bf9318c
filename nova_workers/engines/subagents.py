"""The `Task` tool: lets a turn call a subagent, which runs as a nested turn inside the call.

A subagent uses those of the turn's tools that its allow-list permits, but not `Task`: there is only one level. It sees
its prompt, without the conversation. Its steps are not journalled: after a crash the whole call is reported as
interrupted. Its usage counts against the turn's budget and is part of the step's usage.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Protocol

from nova_workers.base.errors import ToolFailure
from nova_workers.contracts.content import JsonObject, text_block
from nova_workers.contracts.engine import EngineResult, SubagentConfig, ToolCall, TurnListener
from nova_workers.engines.mcp.toolbox import ReportProgress, ToolDefinition
from nova_workers.engines.turn import ToolOutcome

TASK_TOOL = "Task"

PlaySubagent = Callable[[SubagentConfig, str, TurnListener], Awaitable[EngineResult]]
"""Runs a subagent's turn with its configuration, prompt and listener."""


class SharedTools(Protocol):
    """The tools of a turn, which its subagents share."""

    async def connect(self) -> Mapping[str, ToolDefinition]:
        """Return all tools by name, in a stable order."""
        ...

    @property
    def missing(self) -> str | None:
        """A note to the model about tools that are missing; None if there are all."""
        ...

    def leave_out(self, name: str, why: str) -> bool:
        """Leave out a tool from now on. Return whether there was one of this name."""
        ...

    async def is_idempotent(self, name: str) -> bool:
        """Return whether the tool may be run again after a crash."""
        ...

    def reads_only(self, name: str) -> bool:
        """Return whether the tool is known to change nothing."""
        ...

    async def call(self, call: ToolCall, report_progress: ReportProgress | None = None) -> ToolOutcome:
        """Run a call. Raises `ToolFailure`."""
        ...


class AllowedTools:
    """The subset of a turn's tools that a subagent may use. Implements the nested turn's `Tools`."""

    def __init__(
        self, tools: SharedTools, allowed: tuple[str, ...] | None, report_progress: ReportProgress | None
    ) -> None:
        self._tools = tools
        self._allowed = allowed
        self._report_progress = report_progress
        self._own_calls = secrets.token_hex(6)

    async def connect(self) -> Mapping[str, ToolDefinition]:
        """Return the allowed tools, in the turn's order."""
        return {name: tool for name, tool in (await self._tools.connect()).items() if self._has(name)}

    @property
    def missing(self) -> str | None:
        """A note to the model about tools that are missing; None if there are all."""
        return self._tools.missing

    def leave_out(self, name: str, why: str) -> bool:
        """Leave out a tool from now on, also for the other agents of the turn."""
        return self._tools.leave_out(name, why)

    async def is_idempotent(self, name: str) -> bool:
        """Return whether the tool may be run again after a crash."""
        return self._has(name) and await self._tools.is_idempotent(name)

    def reads_only(self, name: str) -> bool:
        """Return whether the tool is known to change nothing."""
        return self._has(name) and self._tools.reads_only(name)

    async def call(self, call: ToolCall) -> ToolOutcome:
        """Run a call. Raises `ToolFailure`."""
        if not self._has(call.tool_name):
            known = ", ".join(await self.connect()) or "none"
            raise ToolFailure(f"There is no tool {call.tool_name!r}. Available: {known}.", tool=call.tool_name)
        # Ids are unique in one conversation, and tools recognize a call of the turn's journal by its id.
        own = replace(call, id=f"{self._own_calls}-{call.id}")
        report = self._report_progress
        return await self._tools.call(own, None if report is None else lambda _, progress: report(call, progress))

    def _has(self, name: str) -> bool:
        return self._allowed is None or name in self._allowed


class WithSubagents:
    """A turn's tools plus `Task`. Implements the turn's `Tools`."""

    def __init__(
        self,
        tools: SharedTools,
        agents: Mapping[str, SubagentConfig],
        listener: TurnListener,
        play: PlaySubagent,
    ) -> None:
        """Set up the tools; without agents there is no `Task`.

        Args:
            tools: The turn's other tools.
            agents: The subagents by name.
            listener: The turn's listener. A subagent gets its own from `TurnListener.subagent`.
            play: Runs a subagent's turn.
        """
        self._tools = tools
        self._agents = agents
        self._listener = listener
        self._play = play

    async def connect(self) -> Mapping[str, ToolDefinition]:
        """Return all tools by name, `Task` last."""
        tools = dict(await self._tools.connect())
        if self._agents:
            tools[TASK_TOOL] = ToolDefinition(TASK_TOOL, _describe(self._agents), _schema(self._agents), False)
        return tools

    @property
    def missing(self) -> str | None:
        """A note to the model about tools that are missing; None if there are all."""
        return self._tools.missing

    def leave_out(self, name: str, why: str) -> bool:
        """Leave out a tool from now on, also for the other agents of the turn."""
        return self._tools.leave_out(name, why)

    async def is_idempotent(self, name: str) -> bool:
        """Return whether the tool may be run again after a crash; never for `Task`, whose effects are unknown."""
        return not self._is_task(name) and await self._tools.is_idempotent(name)

    def reads_only(self, name: str) -> bool:
        """Return whether the tool is known to change nothing."""
        return not self._is_task(name) and self._tools.reads_only(name)

    async def call(self, call: ToolCall) -> ToolOutcome:
        """Run a call. Raises `ToolFailure`."""
        if not self._is_task(call.tool_name):
            return await self._tools.call(call)
        return await self._run(call)

    def _is_task(self, name: str) -> bool:
        return name == TASK_TOOL and bool(self._agents)

    async def _run(self, call: ToolCall) -> ToolOutcome:
        name, prompt = call.params.get("agent"), call.params.get("prompt")
        agent = self._agents.get(name) if isinstance(name, str) else None
        if agent is None or not isinstance(name, str):
            raise ToolFailure(f"There is no agent {name!r}. Available: {', '.join(self._agents)}.", tool=TASK_TOOL)
        if not isinstance(prompt, str) or not prompt.strip():
            raise ToolFailure("Task: 'prompt' must say what the agent is to do.", tool=TASK_TOOL)
        return _outcome(name, await self._play(agent, prompt, self._listener.subagent(call.id, name)))


def _outcome(name: str, result: EngineResult) -> ToolOutcome:
    if result.error is not None:
        partial = f"\nUntil then it had said: {result.text}" if result.text.strip() else ""
        return ToolOutcome((text_block(f"{name} failed: {result.error.message}{partial}"),), failed=True)
    text = result.text if result.text.strip() else "(It ended without a word.)"
    if result.stop_reason != "end_turn":
        text = f"{text}\n[{name} was stopped before it was done: {result.limit or result.stop_reason}]"
    return ToolOutcome((text_block(text),))


def _describe(agents: Mapping[str, SubagentConfig]) -> str:
    lines = "\n".join(f"- {name}: {agent.description}" for name, agent in agents.items())
    return (
        "Give a task to an agent that works on its own and reports back. It knows nothing of this conversation: "
        f"say in the prompt all that it needs. Calls made together run at the same time. Agents:\n{lines}"
    )


def _schema(agents: Mapping[str, SubagentConfig]) -> JsonObject:
    return {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": list(agents)},
            "prompt": {"type": "string", "description": "The whole task, with all that the agent needs to know."},
        },
        "required": ["agent", "prompt"],
        "additionalProperties": False,
    }
