"""Gets the responses of one turn from the providers of its models."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import JsonObject, Message
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.run_options import NamedTool
from nova_workers.contracts.usage import CallBound, TokenUsage
from nova_workers.engines.asking import described, model_request
from nova_workers.engines.http.engine import LeftOutOptions
from nova_workers.engines.http.failures import not_begun
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.openai.catalog import Catalog, Target
from nova_workers.engines.openai.chat_reader import ChatReader
from nova_workers.engines.openai.chat_request import chat_body, chat_choice
from nova_workers.engines.openai.clients import Clients
from nova_workers.engines.openai.failures import failure_of, refused_option
from nova_workers.engines.openai.names import ToolNames, wire_name
from nova_workers.engines.openai.provider import WireForm
from nova_workers.engines.openai.responses_reader import ResponsesReader
from nova_workers.engines.openai.responses_request import responses_body, responses_choice
from nova_workers.engines.openai.stream import JsonStream, WireFailed
from nova_workers.engines.openai.wire import Answered, Reader, TurnRequest
from nova_workers.engines.resilience import CHARS_A_TOKEN, AttemptFailed, ModelLimits, Route, TokenEstimate
from nova_workers.engines.tool_choice import choice_of_call
from nova_workers.engines.tool_turns import OfferedTools, tool_refusal
from nova_workers.engines.turn import Ask, Draft, Response, ToolRefused
from nova_workers.engines.verdicts import found_in_reading

_log = structlog.get_logger(__name__)

_EVENTS_A_TOKEN = 4
_EVENTS = 10_000
"""Limit of a response's events, in all and for each token that was allowed: a server may ignore the limit of tokens,
and a model may repeat itself for ever."""


@dataclass(frozen=True, slots=True)
class _WireFormat:
    """One wire form: the endpoint, and how to write a request, in it the choice of one tool, and read the response."""

    path: str
    body: Callable[[TurnRequest, Sequence[Message], int | None], JsonObject]
    named: Callable[[str], JsonObject]
    reader: Callable[[TurnRequest], Reader]


_FORMATS: Mapping[WireForm, _WireFormat] = {
    "chat": _WireFormat("/chat/completions", chat_body, chat_choice, ChatReader),
    "responses": _WireFormat("/responses", responses_body, responses_choice, ResponsesReader),
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The process's settings for requests and responses.

    Attributes:
        max_tokens: Limit of a response's tokens where the options set none.
        first_byte_timeout_s: Longest wait until a response begins; a response that has begun may take longer.
    """

    max_tokens: int = 8192
    first_byte_timeout_s: float = 120.0


class OpenAIResponder:
    """Makes the attempts of one turn: implements `nova_workers.engines.resilience.Provider`."""

    name = "openai"

    def __init__(
        self,
        clients: Clients,
        catalog: Catalog,
        tools: OfferedTools,
        options: EngineOptions,
        reading: Reading,
        *,
        left_out: LeftOutOptions,
    ) -> None:
        """Take what all responses of a turn share. The tools are connected at the first response."""
        self._clients = clients
        self._catalog = catalog
        self._tools = tools
        self._options = options
        self._reading = reading
        self._left_out = left_out
        self._turns: dict[str, TurnRequest] = {}
        self._offered: dict[str, tuple[JsonObject, ...]] = {}
        """The tools of the turn's requests, by their targets."""
        self._estimate = TokenEstimate()

    def vendor(self, model: str) -> str:
        """See `Provider.vendor`."""
        return self._catalog.target(model).provider.name

    def profiles(self, model: str) -> tuple[str, ...]:
        """See `Provider.profiles`."""
        return self._clients.profiles(self._catalog.target(model).provider)

    async def attempt(self, route: Route, ask: Ask, draft: Draft) -> Response:
        """Make one attempt. See `Provider.attempt`."""
        target = self._catalog.target(route.model)
        turn = await self._turn(target)
        answered = await self._read(turn, route, ask, draft)
        self._estimate.learn(ask.messages, draft.usage)
        return Response(
            answered.content, answered.ending, draft.usage, draft.model, answered.id or None, answered.finish_reason
        )

    async def _read(self, turn: TurnRequest, route: Route, ask: Ask, draft: Draft) -> Answered:
        reader = _FORMATS[turn.target.provider.api].reader(turn)
        try:
            is_marked = await self._stream(turn, route, ask, draft, reader)
            return reader.answered(is_marked=is_marked)
        except EngineFailure as failure:
            raise self._tool_refusal(failure, turn) or found_in_reading(failure) from failure.__cause__
        finally:
            # Also of a response that was stopped or broke off.
            draft.model = reader.model or turn.target.model
            draft.usage = self._usage(turn, reader, ask, draft)

    async def _stream(self, turn: TurnRequest, route: Route, ask: Ask, draft: Draft, reader: Reader) -> bool:
        """Let the reader take the response's stream; return whether that had its mark of the end."""
        form = _FORMATS[turn.target.provider.api]
        silence = asyncio.timeout(self._reading.first_byte_timeout_s)
        events_left = _EVENTS + _EVENTS_A_TOKEN * turn.max_tokens(route.max_tokens)
        body = form.body(turn, ask.messages, route.max_tokens)
        choice = choice_of_call(turn.options, ask.step, [tool.name for tool in turn.tools])
        if choice is not None:
            body["tool_choice"] = form.named(choice.name) if isinstance(choice, NamedTool) else choice
        offered = self._offered[turn.target.id]
        draft.request(model_request(ask, body, system=turn.instructions, tools=offered))
        try:
            async with silence, await self._open(turn.target, route, body, draft) as stream:
                waiting = True
                async for event in stream:
                    reader.take(event, draft)
                    events_left -= 1
                    if waiting and reader.begun:
                        waiting = False
                        silence.reschedule(None)
                        draft.begin()
                    elif events_left < 0:
                        raise _endless(turn.max_tokens(route.max_tokens))
            return stream.is_marked
        except WireFailed as failed:
            if reader.is_complete:
                # What follows the end of a response cannot spoil it.
                _log.info("model_stream_broke_after_its_end", model=route.model, error=str(failed)[:200])
                return True
            raise self._failure(failed.error, route) from failed.error
        except TimeoutError:
            if not silence.expired():
                raise
            raise not_begun(self._reading.first_byte_timeout_s) from None

    async def estimate_tokens(self, ask: Ask) -> int:
        """See `Provider.estimate_tokens`."""
        turn = next(iter(self._turns.values()), None)
        if turn is None:
            tools = (await self._tools.connect()).values()
            return self._estimate.of(ask.messages, (self._options.system_prompt, _schemas(tools)))
        return self._estimate.of(ask.messages, (turn.instructions, _schemas(turn.tools)))

    async def bound(self, ask: Ask, model: str) -> CallBound:
        """See `Provider.bound`."""
        target = self._catalog.target(model)
        turn = await self._turn(target)
        read_tokens = self._estimate.at_most(ask.messages, (turn.instructions, _schemas(turn.tools)))
        price = self._catalog.prices(target).per_token(target.model)
        return CallBound(model, read_tokens, turn.max_tokens(None), 0, price)

    def limits(self, model: str) -> ModelLimits:
        """See `Provider.limits`."""
        return self._catalog.limits(model)

    async def _open(self, target: Target, route: Route, body: JsonObject, draft: Draft) -> JsonStream:
        # Not the resource's method: it takes only the fields that OpenAI knows, and copies the whole conversation. Nor
        # its types of events, which servers do not keep to.
        post, path = self._clients.of(route.profile).post, _FORMATS[target.provider.api].path
        while True:
            for left_out in self._left_out.of(target.id, body, draft):
                del body[left_out]
                if left_out == "reasoning":
                    body.pop("include", None)
            try:
                return await post(path, cast_to=object, body=body, stream=True, stream_cls=JsonStream)
            except Exception as error:
                option = refused_option(error, body)
                if option is None:
                    raise WireFailed(error) from error
                self._left_out.refused.add(target.id, option)

    async def _turn(self, target: Target) -> TurnRequest:
        turn = self._turns.get(target.id)
        if turn is None:
            tools = await self._tools.connect()
            turn = self._turns[target.id] = TurnRequest(
                target,
                self._options,
                tuple(tools.values()),
                ToolNames(tools),
                self._tools.missing,
                self._reading.max_tokens,
                len(self._options.history),
            )
            self._offered[target.id] = described(turn.tools)
        return turn

    def _tool_refusal(self, failure: EngineFailure, turn: TurnRequest) -> ToolRefused | None:
        refusal = tool_refusal(failure, {wire_name(tool.name): tool.name for tool in turn.tools}, self._tools)
        if refusal is not None:
            self._turns.clear()
        return refusal

    def _usage(self, turn: TurnRequest, reader: Reader, ask: Ask, draft: Draft) -> TokenUsage:
        """Return the usage that the provider counted; an estimate where a response began and no counts came."""
        tokens = reader.counted
        if tokens is None:
            if not reader.begun:
                return TokenUsage()
            tokens = TokenUsage(
                input_tokens=self._estimate.of(ask.messages, (turn.instructions, _schemas(turn.tools))),
                output_tokens=round(len(draft.text) / CHARS_A_TOKEN),
            )
        target = turn.target
        models = (reader.model or target.model, target.model)
        return self._catalog.prices(target).priced(tokens, models)

    def _failure(self, error: Exception, route: Route) -> EngineFailure:
        """Return the contract's failure for an exception of the SDK. Raises it if it means no failure of the wire."""
        failure = failure_of(error, self._clients.secrets(route.profile))
        if failure.kind == "unknown":
            raise error
        return failure


def _endless(max_tokens: int) -> AttemptFailed:
    return AttemptFailed(
        f"The model provider did not end its response, whose limit is {max_tokens} tokens.",
        kind="model_error",
        retryable=False,
        cause="model",
    )


def _schemas(tools: Iterable[ToolDefinition]) -> list[JsonObject]:
    return [{"name": tool.name, "description": tool.description, "schema": tool.input_schema} for tool in tools]
