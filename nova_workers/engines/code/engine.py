"""The engine of agents in Python."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, text_block, text_of
from nova_workers.contracts.engine import (
    EngineError,
    EngineOptions,
    EngineResult,
    TrustLevel,
    TurnListener,
)
from nova_workers.contracts.user_agents import MAX_STEP_BYTES, AgentProgram
from nova_workers.engines.code.conversation import Conversation
from nova_workers.engines.code.models import ModelCalls
from nova_workers.engines.code.parts import FunctionCalls, FunctionListener, FunctionResponder, version_in
from nova_workers.engines.code.used import UsedModels
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.toolbox import Toolbox
from nova_workers.engines.turn import Budget, Interruption, Turn

MAX_STEPS: Final = 2_000
"""The limit of steps in a run: each later attempt reads them all, and each step is compared with all before it."""


class CodeEngine:
    """Executes the function in `EngineOptions.program`, in the process of its code.

    To the turn the function is the model: what it wants done are the calls of a response, and their results are in the
    next request. So its steps are committed, resumed, approved, waited for and canceled as those of any other engine.
    It has no native tools at any trust level, no subagents, and keeps no sessions.
    """

    name = "code"

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections

    async def run(  # noqa: PLR0917 - the contract's signature
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        """Execute one turn. See `nova_workers.contracts.engine.Engine.run`."""
        program = options.program
        problem = "There is no function to execute." if program is None else _refusal(program, options)
        if program is None or problem is not None:
            error = EngineError("unknown", str(problem), retryable=False)
            return EngineResult(text="", stop_reason="error", provider=self.name, error=error)
        content = (text_block(message),) if isinstance(message, str) else message
        listener = FunctionListener(callbacks or TurnListener())
        toolbox = self._toolbox(options, listener)
        conversation = Conversation(program, content, options.history, began=version_in(options.journal))
        budget = Budget(options)
        used = UsedModels(budget)
        calls = FunctionCalls(conversation, toolbox, ModelCalls(options, listener, budget), options, used)
        # Only a model reads when its message came; what bounds its steps bounds no loop of a program.
        options = replace(
            options,
            event_context=None,
            max_turns=MAX_STEPS,
            max_tool_output_chars=max(options.max_tool_output_chars, MAX_STEP_BYTES),
        )
        responder = FunctionResponder(conversation, program, options, listener, used)
        try:
            with Interruption(abort, options.timeout_s) as interruption:
                turn = Turn(responder, calls, options, listener, interruption, budget=budget)
                result = await turn.play(content, provider=self.name)
            return replace(
                result,
                text=result.text or _last_text(options, result),
                tools_available=() if toolbox is None else toolbox.offered,
            )
        finally:
            await conversation.close()
            if toolbox is not None:
                await toolbox.close()

    async def close(self) -> None:
        """Close the MCP connections."""
        await self._connections.close()

    def _toolbox(self, options: EngineOptions, listener: TurnListener) -> Toolbox | None:
        if not options.mcp_servers:
            return None
        return Toolbox(
            options.mcp_servers,
            pool=self._connections,
            report_progress=listener.on_tool_progress,
            report_away=listener.on_tool_servers,
        )


def _last_text(options: EngineOptions, result: EngineResult) -> str:
    """Return the last text that a function emitted: its answer if it ended without one, or with just that."""
    if result.stop_reason != "end_turn":
        return ""
    messages = (*(message for step in options.journal for message in step.messages), *result.messages)
    said = (text_of(message.content) for message in reversed(messages) if message.role == "assistant")
    return next(filter(None, said), "")


def _refusal(program: AgentProgram, options: EngineOptions) -> str | None:
    began = version_in(options.journal)
    if program.on_new_version == "continue" or began in (None, program.version):
        return None
    return (
        f"The run was begun by version {began} of {program.name}, and this worker has version {program.version}. The "
        'engine_config of its agent has "on_new_version": "refuse"; with "continue" it goes on where its steps match.'
    )
