"""The parts of a turn whose model is a function: its responses, its calls, and its listener."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nova_workers.base.errors import EngineFailure, ToolFailure
from nova_workers.contracts.content import ContentBlock, JsonObject, text_block, text_of
from nova_workers.contracts.engine import (
    EngineOptions,
    ForwardingListener,
    StepRecord,
    StepVerdict,
    ToolAuthorization,
    ToolCall,
    TurnListener,
)
from nova_workers.contracts.native import CODE_CALLS, CODE_MESSAGES, CODE_MODEL, CODE_STEP, CODE_STEP_ONCE
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.user_agents import AgentProgram, JournalEntry, Operation
from nova_workers.engines.code.conversation import Conversation
from nova_workers.engines.code.entries import entries_of
from nova_workers.engines.code.models import ModelCalls
from nova_workers.engines.code.used import UsedModels
from nova_workers.engines.mcp.toolbox import Toolbox
from nova_workers.engines.turn import Ask, Draft, Response, ToolOutcome
from nova_workers.engines.turn.interruption import TurnStopped

_ID_PREFIX: Final = "code"


class FunctionResponder:
    """Implements the turn's `Responder`: what the function wants done next are the calls of a response."""

    def __init__(
        self,
        conversation: Conversation,
        program: AgentProgram,
        options: EngineOptions,
        listener: TurnListener,
        used: UsedModels,
    ) -> None:
        self._conversation = conversation
        self._listener = listener
        self._program = program
        self._used = used
        self._run_id = options.run_id or "local"
        self._checks_answer = options.output_schema is not None
        self._read = len(options.history) + 1
        """How many messages of the conversation `_entries` has, with those before the turn's first step."""
        self._entries: list[JournalEntry] = []
        self._ended = False

    @property
    def last_text(self) -> str:
        """What the function emitted last before an operation."""
        return next((entry.text for entry in reversed(self._entries) if entry.text), "")

    async def respond(self, ask: Ask, draft: Draft) -> Response:
        """Execute the function until it wants something done, or ends. See `Responder.respond`."""
        draft.model = self._program.name
        if self._ended:
            # The turn asks a model to correct its answer. A function would return the same.
            raise EngineFailure(text_of(ask.messages[-1].content), kind="model_error", retryable=False)
        streamed, stopped = 0, False

        def show(begins: int, text: str) -> None:
            nonlocal streamed, stopped
            if begins == streamed and not stopped:
                streamed += len(text)
                try:
                    draft.token(text)
                except TurnStopped:
                    # The wait for the answer raises it, which is where the turn is.
                    stopped = True

        # The turn has appended whole steps since the last time.
        self._entries += entries_of(ask.messages[self._read :])
        self._read = len(ask.messages)
        # A step may be executed before it is journaled.
        await self._listener.confirm_run()
        reply = await self._conversation.go_on(self._entries, show)
        if rest := reply.text[streamed:]:
            streamed = len(reply.text)
            draft.token(rest)
        self._ended = not reply.operations
        # An answer is checked by its own step.
        text = reply.text or (self.last_text if self._ended and self._checks_answer else "")
        blocks: list[ContentBlock] = [text_block(text)] if text.strip() else []
        blocks += [
            {
                "type": "tool_use",
                "id": f"{_ID_PREFIX}_{self._program.version}_{self._run_id}_{ask.step}_{at}",
                "name": wanted.name,
                "input": wanted.input,
            }
            for at, wanted in enumerate(reply.operations)
        ]
        done = reply.done
        if done is not None:
            self._used.count(done.used)
        outcome = None if done is None else ToolOutcome((text_block(done.text),), failed=done.failed)
        results = {} if outcome is None else {blocks[-1]["id"]: outcome}
        return Response(
            tuple(blocks), "end" if self._ended else "tools", TokenUsage(), self._program.name, results=results
        )


def version_in(journal: Sequence[StepRecord]) -> str | None:
    """Return the version of the code that began a turn; None if no step of it has a call."""
    first = next((call.id for step in journal for call in step.tool_calls), "")
    prefix, _, rest = first.partition("_")
    return rest.partition("_")[0] if prefix == _ID_PREFIX else None


class FunctionCalls:
    """Implements the turn's `Tools`: steps of the function, its questions to models, and the tools of its agent."""

    def __init__(
        self,
        conversation: Conversation,
        toolbox: Toolbox | None,
        models: ModelCalls,
        options: EngineOptions,
        used: UsedModels,
    ) -> None:
        self._used = used
        self._conversation = conversation
        self._toolbox = toolbox
        self._models = models
        self._steps = options.journal

    async def is_idempotent(self, name: str) -> bool:
        """Return whether a call may be made again after a crash.

        Asked for a call that a lost worker may have begun: if it is a step, the function is brought to it here, where a
        failure is that of the turn.
        """
        if name in CODE_CALLS:
            await self._reach_open_step()
            return name != CODE_STEP_ONCE
        return self._toolbox is not None and await self._toolbox.is_idempotent(name)

    async def call(self, call: ToolCall) -> ToolOutcome:
        """Make a call. Raises `ToolFailure`."""
        if call.tool_name == CODE_MESSAGES:
            return ToolOutcome(())
        if call.tool_name == CODE_MODEL:
            return await self._models.ask(call)
        if call.tool_name in CODE_CALLS:
            result = await self._conversation.perform(_position(call), again=call.tool_name == CODE_STEP)
            self._used.count(result.used)
            return ToolOutcome((text_block(result.text),), failed=result.failed)
        if self._toolbox is None:
            raise ToolFailure(f"The agent has no tool {call.tool_name!r}: it has no capabilities.", tool=call.tool_name)
        return await self._toolbox.call(call)

    async def _reach_open_step(self) -> None:
        if self._conversation.is_open or not self._steps or self._steps[-1].complete:
            return
        *before, last = self._steps
        entries = entries_of(message for step in before for message in step.messages)
        await self._conversation.go_on(entries, begins=False)
        self._conversation.expect(
            tuple(Operation(name=call.tool_name, input=call.params) for call in last.tool_calls), step=last.index + 1
        )


def _position(call: ToolCall) -> int:
    return int(call.id.rpartition("_")[2])


class FunctionListener(ForwardingListener):
    """Allows what is no tool, and lets messages join where the function asks for them."""

    async def authorize_tool(self, tool_name: str, params: JsonObject) -> ToolAuthorization:
        """Allow steps: they are the agent's own code. Tools are judged as with other engines."""
        if tool_name in CODE_CALLS:
            return ToolAuthorization(allowed=True)
        return await self._to.authorize_tool(tool_name, params)

    async def on_step(self, step: StepRecord) -> StepVerdict:
        """Let messages join only after a step that asks for them; others stay queued."""
        joins = any(call.tool_name == CODE_MESSAGES for call in step.tool_calls)
        return await self._to.on_step(step if joins else replace(step, joins=False))
