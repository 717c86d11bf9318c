"""The loop of one turn, for any model: journalled steps with steering, limits and aborts."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog

from nova_workers.base.errors import EngineFailure
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
from nova_workers.contracts.refusals import LeftOut, note_for_tools
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.tool_schemas import LeftOutTool, listed
from nova_workers.engines.turn.answer import AnswerCheck
from nova_workers.engines.turn.calls import CallRunner
from nova_workers.engines.turn.crowding import MediaLimit
from nova_workers.engines.turn.intake import UsedIds, admit
from nova_workers.engines.turn.interruption import Interruption, ReasoningClock, TurnStopped
from nova_workers.engines.turn.refusals import Refusals
from nova_workers.engines.turn.seam import Ask, ContentRefused, Draft, Ending, Responder, Response, ToolRefused, Tools
from nova_workers.engines.turn.step import OpenStep, open_step
from nova_workers.engines.turn.tally import Budget, Tally, stop_reason_of, stopped_because

_log = structlog.get_logger(__name__)

_MAX_TOOL_REFUSALS = 20
"""Limit of tools that a provider refuses one after the other in a turn. Each costs a request."""
THINKING_DELAY_S = 0.5
"""Delay before `on_thinking` after tool results: the model mostly answers sooner."""


def _surely(_: str) -> bool:
    return True


class Turn:
    """Executes one turn, once.

    The order within a step: the response streams (`on_token`), its narration is reported (`on_assistant_message`), its
    calls are authorized, it is committed with them pending (`on_tool_calls`), each call is announced, run and committed
    (`on_tool_result`), the step is committed (`on_step`), and waiting messages join (`take_steering`).

    A turn that stops or fails within a step passes the partial step to `on_step` as final: the text so far, and each
    call with a result, so that a model accepts the transcript.
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
        has_begun: Callable[[str], bool] = _surely,
        left_out: Callable[[], Sequence[LeftOutTool]] | None = None,
        defers: bool = True,
    ) -> None:
        """Set up the turn.

        Args:
            responder: The model.
            options: The engine's options.
            listener: Receives the turn's progress.
            interruption: Entered by the caller.
            budget: None creates one from the options.
            reads_only: Returns whether a tool is known to be read-only: its calls may start while the response streams.
            has_begun: Returns whether a call that runs may have begun, by its id.
            left_out: Returns the tools that the model does not get; None reports none.
            defers: Whether the turn may stop for a deferred call.
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
            has_begun=has_begun,
            defers=defers,
        )
        self._reasoning = ReasoningClock(options.reasoning_timeout_s, interruption)
        self._tools = tools
        self._left_out = left_out
        self._tools_reported = self._tool_refusals = 0
        self.conversation: list[Message] = []
        """Every message so far, with a note instead of each block that the provider refused."""
        self._media_limit, self._used_ids = MediaLimit(), UsedIds()
        self._steering: tuple[Message, ...] = ()
        self._index = 0
        self._sequence = 0
        self._draft: Draft | None = None
        self._refusals: Refusals | None = None
        """Of the response that is requested, if there were any."""
        self._step: OpenStep | None = None
        self._tally = Tally()
        self._check: AnswerCheck | None = None
        self.is_final = False
        """Whether the last reported step ended the turn."""

    async def play(self, message: str | tuple[ContentBlock, ...], *, provider: str) -> EngineResult:
        """Execute the turn. If it is canceled, its usage still counts in the budget.

        Raises:
            RunLost: The listener raised it. Its other errors propagate as well.
        """
        started_s = time.monotonic()
        self.conversation = [*self._options.history, _query(message, self._options)]
        error: EngineError | None = None
        try:
            if self._options.output_schema is not None:
                self._check = AnswerCheck(self._options.output_schema)
            reason = await self._resume() if self._options.journal else None
            while reason is None and not self._is_limit_reached(self._index):
                try:
                    draft, response = self._begin_draft(), None
                    steering, self._steering = self._steering, ()
                    while response is None:
                        messages = self.conversation if self._refusals is None else self._refusals.messages
                        messages = self._media_limit.apply(messages)
                        async with self._waiting(draft):
                            response = await self._responder.respond(Ask(messages, self._index, steering), draft)
                        await self._report_tools()
                    if self._refusals is not None:
                        await self._leave_out(self._refusals.accept())
                    reason = await self._process_response(response, draft)
                finally:
                    await self._runner.drop_eager()
            reason = reason or self._limit_stop_reason()
        except TurnStopped as stopped:
            reason, error = stopped_because(stopped.reason, self._interruption.overdue)
            self._tally.limit = "time" if self._interruption.out_of_time else None
            await self._report_partial_step()
        except EngineFailure as failure:
            if failure.kind == "budget_exceeded" and self._index > 0:
                # As if the budget had been reached with the step before, whose text is the answer.
                self._tally.limit = "tokens" if failure.fields.get("limit") == "tokens" else "cost"
                reason = self._limit_stop_reason()
            else:
                reason, error = "error", EngineError.of(failure)
            await self._report_partial_step(is_open=failure.outage is not None)
        except asyncio.CancelledError:
            # This stops a subagent: its result is dropped, and the parent turn counts its usage.
            if self._step is None and self._draft is not None:
                self._budget.spend(self._draft.usage + self._draft.extra_usage)
            raise
        return self._result(reason, error, provider, int((time.monotonic() - started_s) * 1000))

    def _is_limit_reached(self, model_calls: int) -> bool:
        limit = self._options.max_turns
        self._tally.limit = "turns" if limit is not None and model_calls >= limit else self._budget.reached_limit()
        return self._tally.limit is not None

    def _limit_stop_reason(self) -> StopReason:
        return "tool_use" if self._tally.limit == "turns" else "max_tokens"

    async def _resume(self) -> StopReason | None:
        *before, last = self._options.journal
        for record in before:
            self.conversation.extend(record.messages)
        self._index = last.index
        self._sequence = sum(len(record.tool_calls) for record in self._options.journal)
        self._tally.text = text_of(last.messages[0].content) if last.messages else ""
        if not last.complete:
            step = OpenStep.reopened(last)
            self.conversation.extend(step.response)
            self._step = step
            if step.approved:
                # Once begun they may have had an effect, so the journal must record that before they begin.
                await self._listener.on_tool_calls(step.before_tools())
            await self._runner.interrupt_in_flight(step)
            await self._runner.authorize(step)
            await self._runner.run(step)
            return self._defer(step) if step.deferred else await self._close(step, "tools")
        self.conversation.extend(last.messages)
        self._index += 1
        if last.final:
            if self._check is not None and await self._check.repair(self._tally.text) is not None:
                # No further response may follow it.
                raise EngineFailure("The answer does not fulfil the output schema.", kind="model_error", retryable=True)
            return "end_turn"
        self._steering = last.messages[2 if last.tool_calls else 1 :]
        await self._take_steering()
        return None

    def _begin_draft(self) -> Draft:
        self._refusals = None
        eager = self._runner.eager(self._index)
        on_call = None if eager is None else eager.begin
        self._draft = Draft(self._listener, self._interruption, self._announce_thinking(), on_call)
        return self._draft

    @asynccontextmanager
    async def _waiting(self, draft: Draft) -> AsyncGenerator[None]:
        """Wait for the model within the block: a stop interrupts it, and its time counts as reasoning.

        If the provider refuses the request, and another may be accepted, the `with` block ends without an error, and
        the caller requests the response again.
        """
        try:
            with self._interruption.section(), self._reasoning.running():
                self._tally.model_calls += 1
                yield
        except ContentRefused as refusal:
            self._refusals = self._refusals or Refusals(self.conversation)
            left_out = self._refusals.resolve(refusal)
            if left_out is None:
                raise self._refusals.first or refusal from None
            _log.warning("model_refused_content", error=refusal.message)
            await self._leave_out(left_out)
        except ToolRefused as refusal:
            # It is left out already.
            self._tool_refusals += 1
            if self._tool_refusals > _MAX_TOOL_REFUSALS:
                raise
            _log.warning("model_refused_tool", error=refusal.message)
        finally:
            draft.cancel_announcement()

    async def _leave_out(self, left_out: tuple[LeftOut, ...]) -> None:
        if left_out:
            await self._listener.on_content_refused(left_out)

    async def _report_tools(self) -> None:
        """Report the tools that were left out since the last time."""
        left_out = () if self._left_out is None else self._left_out()
        fresh, self._tools_reported = left_out[self._tools_reported :], len(left_out)
        if fresh:
            tools: ContentBlock = {"type": "tool", "names": [tool.name for tool in fresh]}
            await self._leave_out((LeftOut(tools, note_for_tools(listed(fresh))),))

    def _announce_thinking(self) -> asyncio.TimerHandle | None:
        if self._tally.model_calls == 0:
            self._listener.on_thinking()
            return None
        return asyncio.get_running_loop().call_later(THINKING_DELAY_S, self._listener.on_thinking)

    async def _process_response(self, response: Response, draft: Draft) -> StopReason | None:
        admitted = admit(response, self._used_ids.of(self.conversation))
        if admitted.amended:
            _log.warning("model_response_amended", step=self._index, rejected=dict(admitted.rejected))
        with self._interruption.section():
            # Reading the tools' declarations may connect to their servers.
            step = await open_step(self._index, admitted, self._tools.is_idempotent, first_sequence=self._sequence)
        self._sequence += len(step.calls)
        self._step, self._draft = step, None
        step.tool_usage, step.first_token_ms = draft.extra_usage, draft.first_token_ms
        self._use(response.usage + draft.extra_usage)
        self._tally.model = step.model or self._tally.model
        self._report_text(step)
        ending = response.ending
        if ending == "max_tokens":
            self._tally.limit = draft.limit
        if step.calls:
            await self._runner.authorize(step)
            if not response.results:
                await self._listener.on_tool_calls(step.before_tools())
            await self._runner.run(step, response.results)
            if step.deferred:
                return self._defer(step)
        elif ending == "tools":
            ending = "end"
        if ending == "end" and self._check is not None:
            repair = await self._check.repair(self._tally.text)
            if repair is not None:
                step.follow_up = (repair,)
                ending = "resume"
        return await self._close(step, ending)

    def _defer(self, step: OpenStep) -> StopReason:
        """Stop within a step, for calls whose results come from outside."""
        self._take_tool_usage(step)
        self._tally.deferred, self._tally.deferred_usage = tuple(step.deferred), step.tool_usage
        self._step = self._draft = None
        return "tool_use"

    def _use(self, usage: TokenUsage) -> None:
        self._tally.usage += usage
        self._budget.spend(usage)

    def _take_tool_usage(self, step: OpenStep) -> None:
        """Add the model usage of the step's tools, which the budget has counted already."""
        below = self._budget.take_nested_usage()
        step.tool_usage += below
        self._tally.usage += below

    def _report_text(self, step: OpenStep) -> None:
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
        final = not goes_on or self._is_limit_reached(self._index)
        verdict = await self._report_step(step.record(final=final), step.committed_messages)
        if goes_on and final:
            return self._limit_stop_reason()
        if final or verdict == "stop":
            return stop_reason_of(ending)
        await self._take_steering()
        return None

    async def _report_step(self, record: StepRecord, committed_messages: int = 0) -> str:
        self._step = self._draft = None
        self.is_final = record.final
        fresh = record.messages[committed_messages:]
        self.conversation.extend(fresh)
        self._tally.messages.extend(fresh)
        self._tally.calls.extend(record.tool_calls)
        return await self._listener.on_step(record)

    async def _take_steering(self) -> None:
        joined = await self._listener.take_steering()
        self._steering += joined
        self.conversation.extend(joined)
        self._tally.messages.extend(joined)

    async def _report_partial_step(self, *, is_open: bool = False) -> None:
        """Report the partial step, unless another attempt goes on within it: with a call that waits for a provider."""
        step, draft = self._step, self._draft
        if step is not None and is_open:
            return
        if step is not None:
            self._take_tool_usage(step)
            await self._report_step(step.record(final=True), step.committed_messages)
        elif draft is not None:
            used = draft.usage + draft.extra_usage
            self._use(used)
            self._tally.model = draft.model or self._tally.model
            text = draft.text
            self._tally.text = text or self._tally.text
            # Models refuse a text block without a visible character.
            messages = (Message("assistant", (text_block(text),)),) if text.strip() else ()
            if messages or used.total_tokens:
                usage, rest, model = draft.usage, draft.extra_usage, draft.model
                await self._report_step(
                    StepRecord(
                        self._index,
                        messages,
                        (),
                        usage,
                        model,
                        final=True,
                        tool_usage=rest,
                        first_token_ms=draft.first_token_ms,
                    )
                )

    def _result(self, reason: StopReason, error: EngineError | None, provider: str, duration_ms: int) -> EngineResult:
        self._tally.reasoning_ms = self._reasoning.spent_ms
        self._listener.on_event(self._tally.event(duration_ms))
        output = self._check.value if self._check is not None and reason == "end_turn" else None
        return self._tally.result(reason, error, provider=provider, duration_ms=duration_ms, output=output)


def _query(message: str | tuple[ContentBlock, ...], options: EngineOptions) -> Message:
    """Return the message as the model gets it: the event context in a block of its own, then the content."""
    content = (text_block(message),) if isinstance(message, str) else message
    if options.event_context:
        content = (text_block(options.event_context), *content)
    return Message("user", content)
