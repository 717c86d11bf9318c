"""One turn, for any model: responses and tool calls in steps, journalled, steered, bounded, abortable."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import structlog

from nova_workers.contracts.content import ContentBlock, Message, text_block, text_of
from nova_workers.contracts.engine import (
    EngineError,
    EngineEvent,
    EngineOptions,
    EngineResult,
    StepRecord,
    StopReason,
    TurnListener,
)
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.turn.answer import AnswerCheck
from nova_workers.engines.turn.budget import Budget
from nova_workers.engines.turn.calls import CallRunner
from nova_workers.engines.turn.intake import admit
from nova_workers.engines.turn.interruption import Interruption, ReasoningClock, TurnStopped
from nova_workers.engines.turn.refusals import leave_out
from nova_workers.engines.turn.seam import Ask, ContentRefused, Draft, Ending, Responder, Response, Tools
from nova_workers.engines.turn.step import OpenStep, open_step
from nova_workers.engines.turn.tally import STOP_REASONS, Tally, stopped_because
from nova_workers.errors import EngineFailure

__all__ = ["Turn"]

_log = structlog.get_logger(__name__)

_MOST_REFUSALS = 20
"""Blocks that one response may cost. Each is a request that the provider refused without a charge."""
THINKING_DELAY_S = 0.5
"""After tool results the model mostly answers faster than a reader wants to be told that it is waited for."""


class Turn:
    """Plays one turn, once.

    The order within a step: the response streams (`on_token`), its narration is told (`on_assistant_message`), it
    is committed with its calls pending (`on_tool_calls`), each call is authorized, announced, run and committed
    (`on_tool_result`), the step is committed (`on_step`), and what waits joins (`take_steering`).

    A turn that is stopped or fails in mid-step hands what there is of the step to `on_step` as final: text as far
    as it came, and each call with a result, so that the transcript is one that a model accepts.
    """

    def __init__(
        self,
        responder: Responder,
        tools: Tools,
        options: EngineOptions,
        listener: TurnListener,
        interruption: Interruption,
        *,
        budget: Budget | None = None,
        reads_only: Callable[[str], bool] | None = None,
        defers: bool = True,
    ) -> None:
        """Take what the turn works with.

        Args:
            responder: The model.
            tools: Its tools.
            options: As the engine got them.
            listener: Follows the turn.
            interruption: Entered by the caller.
            budget: None makes one from the options.
            reads_only: Whether a tool is known to only read: its calls may then start while the response streams.
            defers: Whether the turn may stop for a call whose result comes from outside.
        """
        self._responder = responder
        self._options = options
        self._listener = listener
        self._interruption = interruption
        self._budget = budget or Budget(options)
        self._runner = CallRunner(
            tools,
            listener,
            interruption,
            timeout_s=options.tool_timeout_s,
            max_output_chars=options.max_tool_output_chars,
            reads_only=reads_only,
            defers=defers,
        )
        self._reasoning = ReasoningClock(options.reasoning_timeout_s, interruption)
        self._tools = tools
        self._conversation: list[Message] = []
        self._steering: tuple[Message, ...] = ()
        self._index = 0
        self._sequence = 0
        self._refusals = 0
        self._draft: Draft | None = None
        self._step: OpenStep | None = None
        self._tally = Tally()
        self._check: AnswerCheck | None = None
        self.is_final = False
        """Whether the last step that was handed over ended the turn."""

    async def play(self, message: str | tuple[ContentBlock, ...], *, provider: str) -> EngineResult:
        """Play the turn to its end. Where it is cancelled, what it has used counts in the budget all the same.

        Raises:
            RunLost: The listener said so; as any other error that it raises.
        """
        started_s = time.monotonic()
        content = (text_block(message),) if isinstance(message, str) else message
        self._conversation = [*self._options.history, Message("user", content)]
        error: EngineError | None = None
        try:
            if self._options.output_schema is not None:
                self._check = AnswerCheck(self._options.output_schema)
            reason = await self._resume() if self._options.journal else None
            while reason is None and not self._is_spent(self._index):
                try:
                    draft, ask, response = self._begin_draft(), self._next_ask(), None
                    while response is None:
                        async with self._waiting(draft):
                            response = await self._responder.respond(ask, draft)
                    reason = await self._carry_out(response, draft.beside)
                finally:
                    await self._runner.drop_eager()
            reason = reason or self._out_of_bounds()
        except TurnStopped as stopped:
            reason, error = stopped_because(stopped.reason, self._interruption.overdue)
            self._tally.limit = "time" if self._interruption.out_of_time else None
            await self._break_off()
        except EngineFailure as failure:
            reason, error = "error", EngineError(failure.kind, failure.message, failure.retryable)
            await self._break_off()
        except asyncio.CancelledError:
            # A subagent is stopped so: its result is dropped, and the turn above counts what it used.
            if self._step is None and self._draft is not None:
                self._budget.spend(self._draft.usage + self._draft.beside)
            raise
        return self._result(reason, error, provider, int((time.monotonic() - started_s) * 1000))

    def _is_spent(self, model_calls: int) -> bool:
        limit = self._options.max_turns
        self._tally.limit = "turns" if limit is not None and model_calls >= limit else self._budget.spent_up()
        return self._tally.limit is not None

    def _out_of_bounds(self) -> StopReason:
        return "tool_use" if self._tally.limit == "turns" else "max_tokens"

    async def _resume(self) -> StopReason | None:
        *before, last = self._options.journal
        for record in before:
            self._conversation.extend(record.messages)
        self._index = last.index
        self._sequence = sum(len(record.tool_calls) for record in self._options.journal)
        self._tally.text = text_of(last.messages[0].content) if last.messages else ""
        if not last.complete:
            step = OpenStep.reopened(last)
            self._conversation.extend(step.response)
            self._step = step
            if step.approved:
                # Once begun, they may have had their effect: the journal must say so before they begin.
                await self._listener.on_tool_calls(step.before_tools())
            await self._runner.give_up_in_flight(step)
            await self._runner.run(step)
            return self._defer(step) if step.deferred else await self._close(step, "tools")
        self._conversation.extend(last.messages)
        self._index += 1
        if last.final:
            return "end_turn"
        self._steering = last.messages[2 if last.tool_calls else 1 :]
        await self._take_steering()
        return None

    def _begin_draft(self) -> Draft:
        self._refusals = 0
        eager = self._runner.eager(self._index)
        on_call = None if eager is None else eager.begin
        self._draft = Draft(self._listener, self._interruption, self._announce_thinking(), on_call)
        return self._draft

    def _next_ask(self) -> Ask:
        steering, self._steering = self._steering, ()
        return Ask(self._conversation, self._index, steering)

    @asynccontextmanager
    async def _waiting(self, draft: Draft) -> AsyncGenerator[None]:
        """Wait for the model within the block: a stop cuts it short, and its time counts as reasoning.

        Content of the conversation that the provider refuses gives way to a note, block by block. The block then ends
        without an error, and the model is to be asked again.
        """
        try:
            with self._interruption.section(), self._reasoning.running():
                self._tally.model_calls += 1
                yield
        except ContentRefused as refusal:
            left_out = leave_out(self._conversation, refusal) if self._refusals < _MOST_REFUSALS else None
            if left_out is None:
                raise
            self._refusals += 1
            _log.warning("model_refused_content", kind=left_out.block.get("type"), error=refusal.message)
            await self._listener.on_content_refused(left_out.block, left_out.note)
        finally:
            draft.hush()

    def _announce_thinking(self) -> asyncio.TimerHandle | None:
        if self._tally.model_calls == 0:
            self._listener.on_thinking()
            return None
        return asyncio.get_running_loop().call_later(THINKING_DELAY_S, self._listener.on_thinking)

    async def _carry_out(self, response: Response, beside: TokenUsage) -> StopReason | None:
        admitted = admit(response, self._conversation)
        if admitted.amended:
            _log.warning("model_response_amended", step=self._index, rejected=dict(admitted.rejected))
        with self._interruption.section():
            # Asking tools what they declare may connect to their servers.
            step = await open_step(self._index, admitted, self._tools.is_idempotent, first_sequence=self._sequence)
        self._sequence += len(step.calls)
        self._step, self._draft = step, None
        step.tool_usage = beside
        self._use(response.usage + beside)
        self._tally.model = step.model or self._tally.model
        self._tell(step)
        ending = response.ending
        if step.calls:
            await self._listener.on_tool_calls(step.before_tools())
            await self._runner.run(step)
            if step.deferred:
                return self._defer(step)
        elif ending == "tools":
            ending = "end"
        if ending == "end" and self._check is not None:
            repair = self._check.repair(self._tally.text)
            if repair is not None:
                step.follow_up = (repair,)
                ending = "resume"
        return await self._close(step, ending)

    def _defer(self, step: OpenStep) -> StopReason:
        """Stop in the middle of a step, for calls whose results come from outside."""
        self._take_tool_usage(step)
        self._tally.deferred, self._tally.deferred_usage = tuple(step.deferred), step.tool_usage
        self._step = self._draft = None
        return "tool_use"

    def _use(self, usage: TokenUsage) -> None:
        self._tally.usage += usage
        self._budget.spend(usage)

    def _take_tool_usage(self, step: OpenStep) -> None:
        """Add what the step's tools used of models. The budget has counted it."""
        below = self._budget.take_below()
        step.tool_usage += below
        self._tally.usage += below

    def _tell(self, step: OpenStep) -> None:
        self._tally.text = "".join(text_of(message.content) for message in step.response)
        if not self._tally.text:
            return
        self._listener.on_event(EngineEvent("assistant_text", {"text": self._tally.text}))
        if step.calls:
            self._listener.on_assistant_message(self._tally.text)

    async def _close(self, step: OpenStep, ending: Ending) -> StopReason | None:
        self._index = step.index + 1
        self._take_tool_usage(step)
        goes_on = ending in ("tools", "resume")
        final = not goes_on or self._is_spent(self._index)
        verdict = await self._hand_over(step.record(final=final), step.committed_messages)
        if goes_on and final:
            return self._out_of_bounds()
        if final or verdict == "stop":
            return STOP_REASONS[ending]
        await self._take_steering()
        return None

    async def _hand_over(self, record: StepRecord, committed_messages: int = 0) -> str:
        self._step = self._draft = None
        self.is_final = record.final
        fresh = record.messages[committed_messages:]
        self._conversation.extend(fresh)
        self._tally.messages.extend(fresh)
        self._tally.calls.extend(record.tool_calls)
        return await self._listener.on_step(record)

    async def _take_steering(self) -> None:
        joined = await self._listener.take_steering()
        self._steering += joined
        self._conversation.extend(joined)
        self._tally.messages.extend(joined)

    async def _break_off(self) -> None:
        """Hand over what there is of the step that the turn was in."""
        step, draft = self._step, self._draft
        if step is not None:
            self._take_tool_usage(step)
            await self._hand_over(step.record(final=True), step.committed_messages)
        elif draft is not None:
            used = draft.usage + draft.beside
            self._use(used)
            self._tally.model = draft.model or self._tally.model
            text = draft.text
            self._tally.text = text or self._tally.text
            # A model takes no text block without a visible character.
            messages = (Message("assistant", (text_block(text),)),) if text.strip() else ()
            if messages or used.total_tokens:
                usage, rest, model = draft.usage, draft.beside, draft.model
                await self._hand_over(StepRecord(self._index, messages, (), usage, model, final=True, tool_usage=rest))

    def _result(self, reason: StopReason, error: EngineError | None, provider: str, duration_ms: int) -> EngineResult:
        self._listener.on_event(self._tally.event(duration_ms))
        output = self._check.value if self._check is not None and reason == "end_turn" else None
        return self._tally.result(reason, error, provider=provider, duration_ms=duration_ms, output=output)
