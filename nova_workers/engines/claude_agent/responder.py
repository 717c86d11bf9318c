"""The program as the turn sees it: a model that answers, and tools.

The program has its own loop, and the turn is one too. They run in step: the turn asks for a response, the program's
stream gives it; the turn runs its calls, the program is let through to them one by one; the turn commits the step, the
program is held until then. So every promise of the turn (journal, steering, authorization, budgets, aborts) holds
here because it is the same code that keeps it.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from nova_workers.contracts.content import JsonObject, Message, text_block, text_of
from nova_workers.contracts.engine import ToolCall
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines.anthropic.prices import Prices
from nova_workers.engines.claude_agent.conversation import Boundary, Conversation, Ended
from nova_workers.engines.claude_agent.failures import failure_of, program_ended
from nova_workers.engines.claude_agent.gate import CallGate
from nova_workers.engines.claude_agent.names import BUILT_IN
from nova_workers.engines.claude_agent.reading import ResponseReader, usage_of
from nova_workers.engines.native import TurnTools
from nova_workers.engines.turn import Ask, Draft, Response, ToolOutcome
from nova_workers.engines.turn.output import within_bounds
from nova_workers.errors import EngineFailure, ToolFailure

__all__ = ["ClaudeResponder", "ClaudeTools", "Opener"]


class Opener(Protocol):
    """Begins the conversation of a turn."""

    async def open(self, messages: Sequence[Message], *, history: int) -> Conversation:
        """Start the program with everything said so far, up to where the model has to speak.

        Args:
            messages: The whole conversation.
            history: How many of the messages were there before this turn.

        Raises:
            EngineFailure: The program cannot be started.
        """
        ...


class ClaudeResponder:
    """Implements the turn's `Responder`."""

    def __init__(self, opener: Opener, gate: CallGate, prices: Prices, *, model: str, history: int) -> None:
        self._opener = opener
        self._gate = gate
        self._prices = prices
        self._model = model
        self._history = history
        self._conversation: Conversation | None = None
        self._steering: list[Message] = []
        self._counted = TokenUsage()
        self._told: dict[str, TokenUsage] = {}

    async def respond(self, ask: Ask, draft: Draft) -> Response:
        """Get the next response. See `nova_workers.engines.turn.Responder`."""
        if self._conversation is None:
            self._conversation = await self._opener.open(ask.messages, history=self._history)
        else:
            await self._go_on(self._conversation, ask)
        return await self._read(self._conversation, draft)

    async def _go_on(self, conversation: Conversation, ask: Ask) -> None:
        self._steering += ask.steering
        if conversation.idle:
            said = self._steering or [ask.messages[-1]]
            self._steering = []
            for message in said:
                await conversation.say(message.content)
            return
        for call_id, reason in _refusals(ask.messages):
            self._gate.refuse(call_id, reason)

    async def _read(self, conversation: Conversation, draft: Draft) -> Response:
        reader = ResponseReader(draft, self._prices)
        while True:
            frame = await conversation.next()
            match frame:
                case Boundary():
                    await self._pass(conversation, frame)
                case Ended():
                    raise program_ended(frame.complaints)
                case {"type": "result"}:
                    return self._end(frame, reader, draft)
                case {"type": "stream_event", "event": event}:
                    if event.get("type") == "message_start":
                        if reader.complete:
                            # The program asks again by itself: the answer was cut, and it wants the rest.
                            conversation.put_back(frame)
                            self._counted += draft.usage
                            return reader.response("resume")
                        reader = self._anew(reader, draft)
                    reader.take(event)
                    if reader.complete and reader.calls_tools:
                        self._counted += draft.usage
                        return reader.response()
                case _:
                    pass

    def _anew(self, reader: ResponseReader, draft: Draft) -> ResponseReader:
        """Return the reader of a response. What came of one that broke off and is asked for again is void.

        Raises:
            EngineFailure: It was shown to somebody who cannot be told so.
        """
        if reader.begun:
            if not draft.restartable:
                raise EngineFailure(
                    "The model's response broke off after some of it was shown.", kind="model_error", retryable=True
                )
            self._counted += draft.usage
            draft.restart()
        return ResponseReader(draft, self._prices)

    async def _pass(self, conversation: Conversation, boundary: Boundary) -> None:
        """Let the program ask the model again, with what has been said meanwhile."""
        steering, self._steering = self._steering, []
        for message in steering:
            await conversation.say(message.content)
        self._gate.begin_step()
        boundary.passed.set()

    def _end(self, result: JsonObject, reader: ResponseReader, draft: Draft) -> Response:
        if result.get("is_error") or result.get("subtype") != "success":
            raise failure_of(result)
        draft.usage += self._untold(result, draft.usage)
        if not reader.complete:
            # The program ended its turn without a last word of the model.
            text = str(result.get("result") or "")
            return Response((text_block(text),) if text.strip() else (), "end", draft.usage, draft.model)
        return reader.response("resume" if self._steering else None)

    def _untold(self, result: JsonObject, last: TokenUsage) -> TokenUsage:
        """Return what the program used and no response of the main conversation told: subagents, its own compaction."""
        extra = TokenUsage()
        self._counted += last
        for model, counts in (result.get("modelUsage") or {}).items():
            named = {
                "input_tokens": counts.get("inputTokens"),
                "output_tokens": counts.get("outputTokens"),
                "cache_read_input_tokens": counts.get("cacheReadInputTokens"),
                "cache_creation_input_tokens": counts.get("cacheCreationInputTokens"),
                "output_tokens_details": {"thinking_tokens": counts.get("thinkingTokens")},
            }
            used = usage_of(self._prices, named, model)
            told = self._told.get(model, TokenUsage())
            if model == self._model:
                told += self._counted
                self._counted = TokenUsage()
            rest = _less(used, told)
            self._told[model] = used
            if rest.total_tokens:
                extra += rest
        return extra


class ClaudeTools:
    """Implements the turn's `Tools`: the program runs its own, and asks for those behind the bridge."""

    def __init__(self, tools: TurnTools, gate: CallGate, running: Callable[[], bool], max_output_chars: int) -> None:
        self._tools = tools
        self._gate = gate
        self._running = running
        self._max_output_chars = max_output_chars

    async def is_idempotent(self, name: str) -> bool:
        """Return whether the tool may be run again after a crash. What the program runs is not asked to be."""
        return name not in BUILT_IN and await self._tools.is_idempotent(name)

    async def call(self, call: ToolCall) -> ToolOutcome:
        """Let the program make the call, or make it where an earlier attempt left it open.

        Raises:
            ToolFailure: Its message goes to the model.
        """
        if not self._running():
            return await self._tools.call(call)
        self._gate.let_through(call.id)
        news = await self._gate.news(call.id)
        if isinstance(news, ToolOutcome):
            return news
        answer = ToolOutcome((text_block("The call was stopped."),), failed=True)
        try:
            answer = await self._tools.call(call)
        except ToolFailure as failure:
            answer = ToolOutcome((text_block(failure.message),), failed=True)
            raise
        except Exception as error:
            # Only to answer the program; the turn says the same to the ledger.
            answer = ToolOutcome(
                (text_block(f"{call.tool_name} failed: {type(error).__name__}: {error}"),), failed=True
            )
            raise
        finally:
            self._gate.answer(call.id, within_bounds(answer, self._max_output_chars))
        return answer


def _refusals(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return the calls of the last step that have an error for their result, and what it says."""
    for message in reversed(messages):
        results = [block for block in message.content if block.get("type") == "tool_result"]
        if results:
            return [
                (block["tool_use_id"], text_of(tuple(block.get("content") or ())))
                for block in results
                if block.get("is_error")
            ]
    return []


def _less(all_of_it: TokenUsage, part: TokenUsage) -> TokenUsage:
    return TokenUsage(
        input_tokens=max(all_of_it.input_tokens - part.input_tokens, 0),
        output_tokens=max(all_of_it.output_tokens - part.output_tokens, 0),
        cache_read_tokens=max(all_of_it.cache_read_tokens - part.cache_read_tokens, 0),
        cache_write_tokens=max(all_of_it.cache_write_tokens - part.cache_write_tokens, 0),
        reasoning_tokens=max(all_of_it.reasoning_tokens - part.reasoning_tokens, 0),
        cost_usd=None
        if all_of_it.cost_usd is None or part.cost_usd is None
        else max(all_of_it.cost_usd - part.cost_usd, 0.0),
    )
