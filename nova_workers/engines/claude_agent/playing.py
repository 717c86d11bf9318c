"""Runs one turn: sets up its parts, executes it, stores its session, and cleans up."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from claude_agent_sdk import AgentDefinition

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import ContentBlock, Message
from nova_workers.contracts.engine import (
    EngineOptions,
    EngineResult,
    SubagentConfig,
    TurnListener,
)
from nova_workers.engines.anthropic.catalog import Prices
from nova_workers.engines.anthropic_probe import Profile
from nova_workers.engines.claude_agent.bridge import bridge_server
from nova_workers.engines.claude_agent.conversation import Conversation, Parts
from nova_workers.engines.claude_agent.gate import CallGate
from nova_workers.engines.claude_agent.home import ClaudeHome
from nova_workers.engines.claude_agent.launching import Launcher
from nova_workers.engines.claude_agent.names import BUILT_IN, program_name
from nova_workers.engines.claude_agent.opening import SessionOpener
from nova_workers.engines.claude_agent.responder import ClaudeProvider
from nova_workers.engines.claude_agent.subagents import Subagents
from nova_workers.engines.claude_agent.tools import ClaudeTools
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.toolbox import Toolbox
from nova_workers.engines.native import Toolset, TurnTools
from nova_workers.engines.programs.process import Launch, frozen_by
from nova_workers.engines.programs.slot import Slot
from nova_workers.engines.resilience import Resilience, ResilientResponder, Route
from nova_workers.engines.turn import Interruption, Turn
from nova_workers.engines.windows import Windows


@dataclass(frozen=True, slots=True)
class Shared:
    """What all turns of a process share.

    Attributes:
        slots: Limits the programs that run concurrently.
        profiles: The keys, in order of preference.
        resilience: Cool-downs, breakers and limits, as all engines of the provider share them.
    """

    slots: asyncio.Semaphore
    connections: ConnectionPool
    prices: Prices
    windows: Windows
    profiles: tuple[Profile, ...]
    resilience: Resilience


class ClaudeTurn:
    """Executes one turn, once."""

    def __init__(
        self,
        shared: Shared,
        options: EngineOptions,
        listener: TurnListener,
        *,
        launcher: Launcher,
        home: ClaudeHome,
        native: Toolset,
        own: Toolset,
        session_id: str | None,
    ) -> None:
        self._shared = shared
        self._options = options
        self._listener = listener
        self._launcher = launcher
        self._slot = Slot(shared.slots)
        self._gate = CallGate()
        toolbox = Toolbox(
            options.mcp_servers,
            pool=shared.connections,
            report_progress=listener.on_tool_progress,
            report_away=listener.on_tool_servers,
        )
        self._tools = TurnTools(native, toolbox)
        self._own = own
        self._opener = SessionOpener(options, launcher, home, self._converse, session_id)
        self._subagents = Subagents(listener)

    async def play(
        self, content: tuple[ContentBlock, ...], abort: AbortSignal | None, *, provider: str
    ) -> EngineResult:
        """Play the turn to its end.

        Raises:
            RunLost: The listener said so.
        """
        shared, options = self._shared, self._options
        behind = ClaudeProvider(
            self,
            self._gate,
            shared.prices,
            shared.windows,
            shared.profiles,
            tools=self._tools,
            history=len(options.history),
        )
        models = [self._launcher.model, *map(self._launcher.resolve, options.fallback_models)]
        responder = ResilientResponder(behind, models, shared.resilience, options)
        limit = options.max_tool_output_chars
        tools = ClaudeTools(self._tools, self._own, self._gate, lambda: behind.running, limit)
        try:
            with frozen_by(abort, self._freeze), Interruption(abort, self._options.timeout_s) as interruption:
                turn = Turn(
                    responder,
                    tools,
                    options,
                    self._listener,
                    interruption,
                    left_out=lambda: self._tools.left_out,
                    has_begun=self._gate.has_begun,
                )
                result = await turn.play(content, provider=provider)
            self._freeze()
            result = replace(result, tools_available=self._opener.offered)
            return await self._stored(result, turn.conversation) if turn.is_final else result
        finally:
            await self._close()

    async def open(self, messages: Sequence[Message], route: Route, *, history: int) -> Conversation:
        """Start the program as soon as a slot is free."""
        await self._slot.take()
        await self._tools.connect()
        return await self._opener.open(messages, route, history=history, missing=self._tools.missing)

    @property
    def max_tokens(self) -> int:
        """See `nova_workers.engines.claude_agent.responder.Opener`."""
        return self._launcher.max_tokens

    @property
    def sent(self) -> tuple[str, ...]:
        """See `nova_workers.engines.claude_agent.responder.Opener`: its own tools first, then ours by name."""
        offered = self._opener.offered or ()
        own = tuple(name for name in offered if name in BUILT_IN)
        return (*own, *sorted(name for name in offered if name not in BUILT_IN))

    def _converse(self, launch: Launch) -> Conversation:
        parts = Parts(
            bridge=bridge_server(self._tools, self._gate, self._options.max_tool_output_chars),
            gate=self._gate,
            subagents=self._subagents,
            agents=_agents(self._options.agents, self._launcher),
            skills=self._launcher.skills,
        )
        return Conversation(launch, parts)

    async def _stored(self, result: EngineResult, conversation: Sequence[Message]) -> EngineResult:
        """Store the session of an ended turn. A turn that is requeued or waits continues from its journal instead."""
        sessions = self._options.sessions
        session = self._opener.to_store(conversation) if sessions is not None else None
        if sessions is None or session is None:
            return result
        await sessions.save(session)
        return replace(result, session_id=session.id)

    def _freeze(self) -> None:
        if self._opener.conversation is not None:
            self._opener.conversation.freeze()

    async def _close(self) -> None:
        try:
            if self._opener.conversation is not None:
                await self._opener.conversation.close()
        finally:
            self._slot.release()
            await self._tools.close()


def _agents(agents: Mapping[str, SubagentConfig], launcher: Launcher) -> dict[str, AgentDefinition]:
    return {
        name: AgentDefinition(
            description=agent.description,
            prompt=agent.prompt,
            tools=None if agent.tools is None else [program_name(tool) for tool in agent.tools],
            model=None if agent.model is None else launcher.resolve(agent.model),
            maxTurns=agent.max_turns,
            background=False,
        )
        for name, agent in agents.items()
    }
