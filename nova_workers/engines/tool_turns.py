"""Turns with native tools, MCP servers and subagents, for engines that ask a model over the wire."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineOptions, EngineResult, SubagentConfig, TrustLevel, TurnListener
from nova_workers.contracts.native import SEARCH_TOOL
from nova_workers.contracts.summaries import one_line
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.toolbox import Toolbox, ToolDefinition
from nova_workers.engines.native import NativeTools, Toolset, TurnTools
from nova_workers.engines.resilience import Policy, Resilience
from nova_workers.engines.subagents import TASK_TOOL, AllowedTools, WithSubagents
from nova_workers.engines.tool_schemas import ANTHROPIC, ToolLimits, refused_tool
from nova_workers.engines.turn import Budget, ContentRefused, Interruption, Responder, ToolRefused, Turn


class RefusableTools(Protocol):
    """Tools of which a provider may refuse some."""

    def leave_out(self, name: str, why: str) -> bool:
        """Leave out a tool from now on, which the provider refused. Return whether there was one of this name."""
        ...


class OfferedTools(RefusableTools, Protocol):
    """The tools offered to the model, known once the servers are connected."""

    async def connect(self) -> Mapping[str, ToolDefinition]:
        """Return all tools by name, in a stable order."""
        ...

    @property
    def missing(self) -> str | None:
        """A note to the model about tools that are missing; None if there are all."""
        ...


MakeResponder = Callable[[EngineOptions, OfferedTools, tuple[JsonObject, ...]], Responder]
"""Makes the responder of a turn or of a subagent's turn from its options, its tools, and the provider's own tools."""


async def _without_server_tools(native: Toolset, _: TurnListener) -> Toolset:
    return replace(native, server_tools=())


def _as_the_messages_api(_: EngineOptions) -> ToolLimits:
    return ANTHROPIC


def _as_is(listener: TurnListener) -> TurnListener:
    return listener


@dataclass(frozen=True, slots=True)
class SharedParts:
    """What all turns of an engine share, and the engine closes.

    Attributes:
        native: The native tools, offered by trust.
        connections: The process's MCP connections.
        resilience: The process's cool-downs, breakers and rate limits.
    """

    native: NativeTools
    connections: ConnectionPool
    resilience: Resilience

    @classmethod
    def given(
        cls,
        native: NativeTools | None,
        connections: ConnectionPool | None,
        resilience: Resilience | None,
        *,
        max_retries: int,
    ) -> "SharedParts":
        """Return the parts. Each that is None is the engine's own: file tools only, and nothing that others share."""
        return cls(
            native or NativeTools(),
            connections or ConnectionPool(),
            resilience or Resilience.of_one_process(Policy(max_retries=max_retries)),
        )

    async def close(self) -> None:
        """Close threads, reports and connections."""
        self.native.close()
        await self.resilience.close()
        await self.connections.close()


@dataclass(frozen=True, slots=True)
class ToolTurns:
    """Sets up turns, and plays those of their subagents. One object serves a process.

    Attributes:
        provider: The engine's name, for results.
        shared: What all turns share.
        admit: Returns the native tools without what the caller does not allow. The default offers no tools that the
            provider runs.
        watch: Wraps the listener of each turn.
        limits: Returns what the providers of a turn's models take of a tool list.
    """

    provider: str
    shared: SharedParts
    admit: Callable[[Toolset, TurnListener], Awaitable[Toolset]] = _without_server_tools
    watch: Callable[[TurnListener], TurnListener] = _as_is
    limits: Callable[[EngineOptions], ToolLimits] = _as_the_messages_api

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
        native = await self.admit(self.shared.native.for_turn(options, trust), listener)
        limits = self.limits(options)
        if limits.max_tools is not None:
            # Others that the request has: native ones, the provider's own, and that of subagents.
            others = len(native.tools) + len(native.server_tools) + 1
            limits = replace(limits, max_tools=limits.max_tools - others)
        toolbox = Toolbox(
            options.mcp_servers,
            pool=self.shared.connections,
            limits=limits,
            report_progress=listener.on_tool_progress,
            report_away=listener.on_tool_servers,
        )
        own = TurnTools(native, toolbox)

        async def play_subagent(agent: SubagentConfig, prompt: str, nested: TurnListener) -> EngineResult:
            below = _options_of(agent, options)
            allowed = AllowedTools(own, agent.tools, nested.on_tool_progress)
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

        tools = WithSubagents(own, options.agents, listener, play_subagent)
        responder = make_responder(options, tools, native.server_tools)
        try:
            with Interruption(abort, options.timeout_s) as interruption:
                turn = Turn(
                    responder,
                    tools,
                    options,
                    listener,
                    interruption,
                    budget=budget,
                    reads_only=tools.reads_only,
                    left_out=lambda: own.left_out,
                )
                yield turn, partial(_offered, own, native.server_tools, options)
        finally:
            await own.close()


def tool_refusal(
    failure: EngineFailure, names: Mapping[str, str], tools: RefusableTools, *, numbered: bool = True
) -> ToolRefused | None:
    """Return the refusal of a tool, which is then left out; None if the request failed because of something else.

    Args:
        failure: Why the provider gave no response.
        names: The turn's names of the request's tools by their names there, in their order there.
        tools: The turn's tools.
        numbered: Whether that order is known, so that a number in the provider's message means a tool.
    """
    # A program reports a refusal in words that do not always say whose error it is.
    is_refusal = failure.kind in ("model_error", "unknown") and not failure.retryable
    placed = isinstance(failure, ContentRefused) and failure.place is not None
    found = refused_tool(failure.message, tuple(names), numbered=numbered) if is_refusal and not placed else None
    why = one_line(f"the model provider refused it: {failure.message}")
    if found is None or not tools.leave_out(names[found], why):
        return None
    return ToolRefused(failure.message)


def note_of(option: str, of: str) -> str:
    """Return the note that a model or an engine takes no such option."""
    return f"{of} takes no {option}; the turn goes on without it."


def _options_of(agent: SubagentConfig, options: EngineOptions) -> EngineOptions:
    """Return a subagent's options: its own prompt, model and limits, with the turn's other settings."""
    return EngineOptions(
        cwd=options.cwd,
        directories=options.directories,
        readable=options.readable,
        kept=options.kept,
        system_prompt=agent.prompt,
        model=agent.model or options.model,
        max_turns=agent.max_turns,
        max_tokens=options.max_tokens,
        max_tool_output_chars=options.max_tool_output_chars,
        reasoning_timeout_s=options.reasoning_timeout_s,
        tool_timeout_s=options.tool_timeout_s,
        fallback_models=options.fallback_models,
        allowance=None if options.allowance is None else options.allowance.nested(),
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
