"""Gets the responses of one turn from the Messages API."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anthropic.types.beta import BetaRawMessageStreamEvent, BetaStopReason

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.engine import EngineOptions
from nova_workers.contracts.usage import CallBound
from nova_workers.engines.anthropic.accumulator import Accumulator
from nova_workers.engines.anthropic.catalog import Prices
from nova_workers.engines.anthropic.credentials import Clients
from nova_workers.engines.anthropic.failures import failure_of, refused_option
from nova_workers.engines.anthropic.request import (
    choice_on_wire,
    place_in,
    system_text,
    with_cap,
    with_messages,
    without_last_thoughts,
    without_option,
)
from nova_workers.engines.asking import model_request
from nova_workers.engines.http.engine import LeftOutOptions
from nova_workers.engines.http.failures import broken_off, not_begun, refusal
from nova_workers.engines.mcp.toolbox import ToolDefinition
from nova_workers.engines.resilience import ModelLimits, Route, TokenEstimate
from nova_workers.engines.tool_choice import choice_of_call
from nova_workers.engines.tool_turns import OfferedTools, tool_refusal
from nova_workers.engines.turn import Ask, ContentRefused, Draft, Ending, Response, ToolRefused
from nova_workers.engines.windows import Windows

_ENDINGS: dict[BetaStopReason | None, Ending] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "tool_use": "tools",
    # A server tool takes long, or the provider compacted: the response is sent back, and the model continues.
    "pause_turn": "resume",
    "compaction": "resume",
}
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")


@dataclass(frozen=True, slots=True)
class Reading:
    """The process's settings for reading responses.

    Attributes:
        prices: The price list.
        first_byte_timeout_s: Longest wait until a response begins; a response that has begun may take longer.
    """

    prices: Prices
    first_byte_timeout_s: float = 120.0


BuildRequest = Callable[[str, Mapping[str, ToolDefinition], str | None], dict[str, Any]]
"""Builds the constant part of a turn's requests from the model, the tools, and the note about missing ones."""


class AnthropicResponder:
    """Makes the attempts of one turn: implements `nova_workers.engines.resilience.Provider`."""

    name = "anthropic"

    def __init__(
        self,
        clients: Clients,
        tools: OfferedTools,
        reading: Reading,
        build_request: BuildRequest,
        windows: Windows,
        *,
        left_out: LeftOutOptions,
        options: EngineOptions,
    ) -> None:
        """Set up what all responses of a turn share.

        Args:
            clients: The process's clients.
            tools: The turn's tools; connected at the first response.
            reading: How responses are read.
            build_request: See `BuildRequest`.
            windows: Limits of models.
            left_out: What the turn's requests go without.
            options: Of the turn.
        """
        self._clients = clients
        self._tools = tools
        self._reading = reading
        self._build_request = build_request
        self._windows = windows
        self._left_out = left_out
        self._options = options
        self._requests: dict[str, dict[str, Any]] = {}
        self._estimate = TokenEstimate()

    def vendor(self, model: str) -> str:
        """See `Provider.vendor`."""
        return self.name

    def profiles(self, model: str) -> tuple[str, ...]:
        """See `Provider.profiles`."""
        return self._clients.profiles

    async def attempt(self, route: Route, ask: Ask, draft: Draft) -> Response:
        """Make one attempt. See `Provider.attempt`."""
        messages = self._clients.of(route.profile).beta.messages
        request = self._without_refused(await self._request(route, ask), route.model, draft)
        draft.request(model_request(ask, request, system=system_text(request), tools=request.get("tools", ())))
        message = Accumulator()
        silence = asyncio.timeout(self._reading.first_byte_timeout_s)
        try:
            # Tokens are forwarded here and not in a helper function, which would cost time for every token.
            async with silence:
                async with await messages.create(**request, stream=True) as stream:
                    async for event in stream:
                        if event.type != "content_block_delta":
                            self._take(event, message, draft, silence, route)
                            continue
                        delta = event.delta
                        message.delta(event.index, delta)
                        if delta.type == "text_delta":
                            draft.token(delta.text)
                        elif delta.type == "thinking_delta":
                            draft.reasoning(delta.thinking)
            response = _response(message, draft)
        except Exception as error:
            option = refused_option(error, request)
            if option is not None:
                self._left_out.refused.add(route.model, option)
                return await self.attempt(route, ask, draft)
            failure = self._failure(error, silence, route)
            if isinstance(failure, ContentRefused) and failure.place is not None:
                failure.place = place_in(ask.messages, failure.place)
                failure.named = failure.place is not None
            raise self._tool_refusal(failure, request) or failure from error
        self._estimate.learn(ask.messages, response.usage)
        return response

    def _without_refused(self, request: dict[str, Any], model: str, draft: Draft) -> dict[str, Any]:
        """Return the request without what its model does not take."""
        for option in self._left_out.of(model, {*request, *request.get("extra_body", {})}, draft):
            request = without_option(request, option)
        return request

    async def estimate_tokens(self, ask: Ask) -> int:
        """See `Provider.estimate_tokens`."""
        fixed = next(iter(self._requests.values()), None) or await self._fixed("")
        return self._estimate.of(ask.messages, (fixed.get("system"), fixed.get("tools")))

    async def bound(self, ask: Ask, model: str) -> CallBound:
        """See `Provider.bound`. What the provider's own tools read and cost is not known before."""
        fixed = await self._fixed(model)
        read_tokens = self._estimate.at_most(ask.messages, (fixed.get("system"), fixed.get("tools")))
        return CallBound(model, read_tokens, fixed["max_tokens"], 0, self._reading.prices.per_token(model))

    def limits(self, model: str) -> ModelLimits:
        """See `Provider.limits`."""
        return self._windows.limits(model)

    def _take(
        self,
        event: BetaRawMessageStreamEvent,
        message: Accumulator,
        draft: Draft,
        silence: asyncio.Timeout,
        route: Route,
    ) -> None:
        """Process any event but a block delta."""
        call = message.take(event)
        if call is not None:
            draft.call(call)
        elif event.type in ("message_start", "message_delta") and message.usage is not None:
            silence.reschedule(None)
            draft.model = message.model
            draft.usage = self._reading.prices.usage(message.usage, message.model, route.model)
            draft.begin()

    def _failure(self, error: Exception, silence: asyncio.Timeout, route: Route) -> EngineFailure:
        """Return the contract's failure for an exception of the SDK."""
        if isinstance(error, TimeoutError) and silence.expired():
            error = not_begun(self._reading.first_byte_timeout_s)
        failure = failure_of(error)
        if failure.kind == "unknown":
            # No failure of the wire: it ends the attempt, with its place.
            raise error
        return failure

    def _tool_refusal(self, failure: EngineFailure, request: Mapping[str, Any]) -> ToolRefused | None:
        refused = tool_refusal(failure, {tool["name"]: tool["name"] for tool in request.get("tools", ())}, self._tools)
        if refused is not None:
            self._requests.clear()
        return refused

    async def _request(self, route: Route, ask: Ask) -> dict[str, Any]:
        fixed = await self._fixed(route.model)
        if route.max_tokens is not None:
            fixed = with_cap(fixed, route.max_tokens)
        request = with_messages(fixed, ask.messages, len(self._options.history))
        choice = choice_of_call(self._options, ask.step, [tool["name"] for tool in fixed.get("tools", ())])
        return request if choice is None else {**request, "tool_choice": choice_on_wire(choice)}

    async def _fixed(self, model: str) -> dict[str, Any]:
        request = self._requests.get(model)
        if request is None:
            tools = await self._tools.connect()
            request = self._requests[model] = self._build_request(model, tools, self._tools.missing)
        return request


def _response(message: Accumulator, draft: Draft) -> Response:
    if not message.complete:
        raise broken_off()
    if message.stop_reason == "refusal":
        details = message.stop_details
        why = (details.explanation or details.category) if details is not None else None
        raise refusal(why or "no reason given")
    ending = _ENDINGS.get(message.stop_reason, "end")
    content = _replayable(message.content, ending)
    return Response(content, ending, draft.usage, message.model, message.id or None, message.stop_reason)


def _replayable(content: list[ContentBlock], ending: Ending) -> tuple[ContentBlock, ...]:
    """Return the blocks that the provider accepts again: no blank text, no partial call, no thinking at the end."""
    answered = {block.get("tool_use_id") for block in content}
    kept = [
        block
        for block in content
        if not (block["type"] == "text" and not block["text"].strip())
        and not (ending != "tools" and block["type"] == "tool_use")
        and not (ending in ("end", "max_tokens") and block["type"] in _SERVER_CALLS and block["id"] not in answered)
    ]
    return tuple(kept if ending == "tools" else without_last_thoughts(kept))
