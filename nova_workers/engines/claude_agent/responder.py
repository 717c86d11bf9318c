"""The program as the turn's model. `tools` is the other half of the adapter.

The program and the turn are two loops, which are synchronised: the turn requests a response, and the program's stream
provides it; the turn runs the response's calls, and the program may make them one by one; the program waits until the
turn has committed the step. So journal, steering, authorization, budgets and aborts work as in other engines, because
the same code implements them.

As with any provider, `nova_workers.engines.resilience` is in between: it selects the key and model of the next
response, and evaluates the outcome. A program has one key and one model; to use another, a new program continues the
conversation.
"""

from collections.abc import Sequence
from typing import Protocol

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import JsonObject, Message, text_block, text_of
from nova_workers.contracts.usage import CallBound, TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.anthropic.catalog import Prices
from nova_workers.engines.anthropic_probe import Profile
from nova_workers.engines.claude_agent.conversation import Boundary, Conversation, Ended
from nova_workers.engines.claude_agent.failures import failure_of, media_refusal_of, program_ended
from nova_workers.engines.claude_agent.gate import CallGate
from nova_workers.engines.claude_agent.names import program_name
from nova_workers.engines.claude_agent.reading import ResponseReader, usage_of
from nova_workers.engines.resilience import AttemptFailed, ModelLimits, Route, TokenEstimate
from nova_workers.engines.tool_turns import RefusableTools, tool_refusal
from nova_workers.engines.turn import Ask, Draft, Response
from nova_workers.engines.turn.intake import UsedIds, admit
from nova_workers.engines.windows import Windows

_OWN_TOKENS = 10_000
"""Estimated tokens of what the program adds to a conversation: its tools and reminders."""


class Opener(Protocol):
    """Starts the conversation of a turn."""

    @property
    def sent(self) -> tuple[str, ...]:
        """The tools that the program sends to the provider, by our names, in its order."""
        ...

    @property
    def max_tokens(self) -> int:
        """Most tokens of a response, without a cap."""
        ...

    async def open(self, messages: Sequence[Message], route: Route, *, history: int) -> Conversation:
        """Start the program with everything said so far, up to where the model has to speak.

        Args:
            messages: The whole conversation.
            route: With which model and key.
            history: How many of the messages were there before this turn.

        Raises:
            EngineFailure: The program cannot be started.
        """
        ...


class ClaudeProvider:
    """The provider behind the program: implements `nova_workers.engines.resilience.Provider`. One a turn."""

    name = "claude_agent"

    def __init__(
        self,
        opener: Opener,
        gate: CallGate,
        prices: Prices,
        windows: Windows,
        profiles: Sequence[Profile],
        *,
        tools: RefusableTools,
        history: int,
    ) -> None:
        """Take what all responses of a turn share.

        Args:
            opener: Starts programs.
            gate: Where the program waits for the turn.
            prices: The price list.
            windows: What models take.
            profiles: The keys, in order of preference.
            tools: Those behind the bridge.
            history: How many of the messages are older than the turn.
        """
        self._opener = opener
        self._gate = gate
        self._prices = prices
        self._windows = windows
        self._keys = {profile.name: profile.api_key for profile in profiles}
        self._history = history
        self._tools = tools
        self._conversation: Conversation | None = None
        self._route: Route | None = None
        self._failed = False
        self._estimate = TokenEstimate()
        self._steering: list[Message] = []
        self._counted = TokenUsage()
        self._reported: dict[str, TokenUsage] = {}

    def vendor(self, model: str) -> str:
        """See `Provider.vendor`."""
        return "anthropic"

    def profiles(self, model: str) -> tuple[str, ...]:
        """See `Provider.profiles`. While a program runs, its key is preferred."""
        names = tuple(self._keys)
        if self._route is None:
            return names
        current = self._route.profile
        return (current, *(name for name in names if name != current))

    @property
    def running(self) -> bool:
        """Whether a program runs, which then makes the calls."""
        return self._conversation is not None

    async def attempt(self, route: Route, ask: Ask, draft: Draft) -> Response:
        """Get the next response. See `Provider.attempt`."""
        conversation = await self._running_program(route, ask)
        try:
            response = await self._read(conversation, draft)
        except EngineFailure as failure:
            self._failed = True
            if isinstance(failure, AttemptFailed) and failure.cause == "key" and self._keys[route.profile] is None:
                # Without a key there is nothing to cool down.
                failure.cause = "no_key"
            names = {program_name(name): name for name in self._opener.sent}
            raise tool_refusal(failure, names, self._tools) or failure from failure
        if response.ending == "tools" and admit(response, UsedIds().of(ask.messages)).amended:
            # The program would send the model's original response again, which is in its own transcript. So the turn
            # runs the calls itself, and a new program continues from the ledger's messages.
            await self._leave(conversation)
        self._estimate.learn(ask.messages, response.usage)
        return response

    async def estimate_tokens(self, ask: Ask) -> int:
        """See `Provider.estimate_tokens`. What the program puts before the conversation is reckoned with a constant."""
        return _OWN_TOKENS + self._estimate.of(ask.messages, ())

    async def bound(self, ask: Ask, model: str) -> CallBound:
        """See `Provider.bound`. Of calls that the program makes beside the turn's nothing is known before."""
        read_tokens = _OWN_TOKENS + self._estimate.at_most(ask.messages, ())
        return CallBound(model, read_tokens, self._opener.max_tokens, 0, self._prices.per_token(model))

    def limits(self, model: str) -> ModelLimits:
        """See `Provider.limits`."""
        return self._windows.limits(model)

    async def _running_program(self, route: Route, ask: Ask) -> Conversation:
        """Return the program with that key and model, at the point where it asks the model."""
        current = self._route
        same = current is not None and (current.model, current.profile) == (route.model, route.profile)
        if self._conversation is not None and same and not self._failed:
            await self._go_on(self._conversation, ask)
            return self._conversation
        if self._conversation is not None:
            await self._leave(self._conversation)
        self._route, self._failed = route, False
        self._conversation = await self._opener.open(ask.messages, route, history=self._history)
        return self._conversation

    async def _leave(self, conversation: Conversation) -> None:
        """End a program, whose messages and usage are recorded already."""
        self._conversation = None
        await conversation.close()
        self._gate.begin_step()
        self._steering = []
        self._counted, self._reported = TokenUsage(), {}

    async def _go_on(self, conversation: Conversation, ask: Ask) -> None:
        self._steering += ask.steering
        if conversation.idle:
            unanswered = self._steering or [ask.messages[-1]]
            self._steering = []
            for message in unanswered:
                await conversation.say(message.content)
            return
        for call_id, reason in _refusals(ask.messages):
            self._gate.refuse(call_id, reason)

    async def _read(self, conversation: Conversation, draft: Draft) -> Response:
        reader = self._reader(draft)
        while True:
            frame = await conversation.next()
            match frame:
                case Boundary():
                    await self._pass(conversation, frame)
                case Ended():
                    raise program_ended(frame.complaints)
                case {"type": "assistant"}:
                    raise media_refusal_of(frame)
                case {"type": "result"}:
                    return self._end(frame, reader, draft)
                case {"type": "stream_event", "event": event}:
                    if event.get("type") == "message_start":
                        if reader.complete:
                            # The answer was cut off, and the program requests the rest by itself.
                            conversation.put_back(frame)
                            self._counted += draft.usage
                            return reader.response("resume")
                        reader = self._restarted(reader, draft)
                        draft.begin()
                    reader.take(event)
                    if reader.complete and reader.calls_tools:
                        self._counted += draft.usage
                        return reader.response()
                case _:
                    pass

    def _restarted(self, reader: ResponseReader, draft: Draft) -> ResponseReader:
        """Return a new reader for a response. The parts of a response that broke off before are void.

        Raises:
            EngineFailure: Parts were shown that cannot be retracted.
        """
        if reader.begun:
            if not draft.restartable:
                raise EngineFailure(
                    "The model's response broke off after some of it was shown.", kind="model_error", retryable=True
                )
            self._counted += draft.usage
            draft.restart()
        return self._reader(draft)

    def _reader(self, draft: Draft) -> ResponseReader:
        return ResponseReader(draft, self._prices, None if self._route is None else self._route.model)

    async def _pass(self, conversation: Conversation, boundary: Boundary) -> None:
        """Let the program call the model again, with the steering messages."""
        steering, self._steering = self._steering, []
        for message in steering:
            await conversation.say(message.content)
        self._gate.begin_step()
        boundary.passed.set()

    def _end(self, result: JsonObject, reader: ResponseReader, draft: Draft) -> Response:
        if result.get("is_error") or result.get("subtype") != "success":
            raise failure_of(result)
        draft.extra_usage += self._unreported(result, draft.usage)
        if not reader.complete:
            # The program ended its turn without a final response of the model.
            text = str(result.get("result") or "")
            return Response((text_block(text),) if text.strip() else (), "end", draft.usage, draft.model)
        return reader.response("resume" if self._steering else None)

    def _unreported(self, result: JsonObject, last: TokenUsage) -> TokenUsage:
        """Return usage that no response of the main conversation had: of subagents, and of compaction."""
        extra = TokenUsage()
        self._counted += last
        for name, counts in (result.get("modelUsage") or {}).items():
            model = bounds.name(name)
            named = {
                "input_tokens": counts.get("inputTokens"),
                "output_tokens": counts.get("outputTokens"),
                "cache_read_input_tokens": counts.get("cacheReadInputTokens"),
                "cache_creation_input_tokens": counts.get("cacheCreationInputTokens"),
                "output_tokens_details": {"thinking_tokens": counts.get("thinkingTokens")},
                "server_tool_use": {"web_search_requests": counts.get("webSearchRequests")},
            }
            used = usage_of(self._prices, named, model)
            reported = self._reported.get(model, TokenUsage())
            if self._route is not None and model == self._route.model:
                reported += self._counted
                self._counted = TokenUsage()
            rest = _less(used, reported)
            self._reported[model] = used
            if rest.total_tokens:
                extra += rest
        return extra


def _refusals(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return the calls of the last step that failed, with their error messages."""
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
