"""Turns with native tools, MCP servers and subagents, for engines that ask a model over the wire."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineOptions, EngineResult, SubagentConfig, TrustLevel, TurnListener
from nova_workers.contracts.native import SEARCH_TOOL
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.toolbox import Toolbox, ToolDefinition
from nova_workers.engines.native import NativeTools, Toolset, TurnTools
from nova_workers.engines.subagents import TASK_TOOL, AllowedTools, WithSubagents
from nova_workers.engines.turn import Budget, Interruption, Responder, Turn

__all__ = ["OfferedTools", "ToolTurns", "unreachable_note"]


class OfferedTools(Protocol):
    """The tools offered to the model, known once the servers are connected."""

    async def connect(self) -> Mapping[str, ToolDefinition]:
        """Return all tools by name, in a stable order."""
        ...

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Names of the servers that did not answer."""
        ...


MakeResponder = Callable[[EngineOptions, OfferedTools, tuple[JsonObject, ...]], Responder]
"""Makes the responder of a turn or of a subagent's turn from its options, its tools, and the provider's own tools."""


async def _without_server_tools(native: Toolset, _: TurnListener) -> Toolset:
    return replace(native, server_tools=())


def _as_is(listener: TurnListener) -> TurnListener:
    return listener


@dataclass(frozen=True, slots=True)
class ToolTurns:
    """Sets up turns, and plays those of their subagents. One object serves a process.

    Attributes:
        provider: The engine's name, for results.
        native: The native tools, offered by trust.
        connections: The process's MCP connections.
        admit: Returns the native tools without what the caller does not allow. The default offers no tools that the
            provider runs.
        watch: Wraps the listener of each turn.
    """

    provider: str
    native: NativeTools
    connections: ConnectionPool
    admit: Callable[[Toolset, TurnListener], Awaitable[Toolset]] = _without_server_tools
    watch: Callable[[TurnListener], TurnListener] = _as_is

    @asynccontextmanager
    async def open(
        self,
        options: EngineOptions,
        trust: TrustLevel,
        *,
        listener: TurnListener,
        abort: AbortSignal | None,
        make_responder: MakeResponder,
    ) -> AsyncGenerator[tuple[Turn, Callable[[], tuple[str, ...] | None]]]:
        """Set up one turn for the block, in which its engine plays it, and release its tools afterwards.

        Yields:
            The turn, and a function that returns the names of the tools that the model was offered (None if no model
            was called).
        """
        listener = self.watch(listener)
        budget = Budget(options)
        native = await self.admit(self.native.for_turn(options, trust), listener)
        toolbox = Toolbox(options.mcp_servers, pool=self.connections, report_progress=listener.on_tool_progress)
        shared = TurnTools(native, toolbox)

        async def play_subagent(agent: SubagentConfig, prompt: str, nested: TurnListener) -> EngineResult:
            below = _options_of(agent, options)
            allowed = AllowedTools(shared, agent.tools, nested.on_tool_progress)
            responder = make_responder(below, allowed, _allowed_of(native.server_tools, agent))
            # A stop of the parent turn cancels the call in which this runs.
            with Interruption() as interruption:
                turn = Turn(
                    responder,
                    allowed,
                    below,
                    self.watch(nested),
                    interruption,
                    budget=Budget(below, parent=budget),
                    reads_only=allowed.reads_only,
                    defers=False,
                )
                return await turn.play(prompt, provider=self.provider)

        tools = WithSubagents(shared, options.agents, listener, play_subagent)
        responder = make_responder(options, tools, native.server_tools)
        try:
            with Interruption(abort, options.timeout_s) as interruption:
                turn = Turn(
                    responder, tools, options, listener, interruption, budget=budget, reads_only=tools.reads_only
                )
                yield turn, partial(_offered, shared, native.server_tools, options)
        finally:
            await shared.close()


def unreachable_note(names: tuple[str, ...]) -> str:
    """Return the note to the model about servers whose tools are missing."""
    return (
        f"These tool servers do not answer at the moment, so their tools are missing: {', '.join(names)}. "
        "Where that keeps you from doing what is asked, say so."
    )


def _options_of(agent: SubagentConfig, options: EngineOptions) -> EngineOptions:
    """Return a subagent's options: its own prompt, model and limits, with the turn's other settings."""
    return EngineOptions(
        cwd=options.cwd,
        directories=options.directories,
        system_prompt=agent.prompt,
        model=agent.model or options.model,
        max_turns=agent.max_turns,
        max_tokens=options.max_tokens,
        max_tool_output_chars=options.max_tool_output_chars,
        reasoning_timeout_s=options.reasoning_timeout_s,
        tool_timeout_s=options.tool_timeout_s,
        fallback_models=options.fallback_models,
        conversation=options.conversation,
        run_id=options.run_id,
    )


def _offered(tools: TurnTools, server_tools: tuple[JsonObject, ...], options: EngineOptions) -> tuple[str, ...] | None:
    """Return the names of the tools that the model was offered; None if no model was called."""
    if tools.offered is None:
        return None
    return (*(str(tool["name"]) for tool in server_tools), *tools.offered, *((TASK_TOOL,) if options.agents else ()))


def _allowed_of(server_tools: tuple[JsonObject, ...], agent: SubagentConfig) -> tuple[JsonObject, ...]:
    return server_tools if agent.tools is None or SEARCH_TOOL in agent.tools else ()
