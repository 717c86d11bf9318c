"""Gets one streamed response from the Messages API."""

from collections.abc import Callable, Iterable
from typing import Any

import structlog
from anthropic import AsyncAnthropic
from anthropic.lib.streaming import BetaAsyncMessageStream
from anthropic.types.beta import BetaStopReason
from anthropic.types.beta.parsed_beta_message import ParsedBetaMessage

from nova_workers.engines.anthropic.failures import failure_of
from nova_workers.engines.anthropic.prices import Prices
from nova_workers.engines.anthropic.request import with_messages
from nova_workers.engines.toolbox import Toolbox, ToolDefinition
from nova_workers.engines.turn import Ask, Draft, Ending, Response
from nova_workers.errors import EngineFailure

__all__ = ["AnthropicResponder"]

_log = structlog.get_logger(__name__)

_ENDINGS: dict[BetaStopReason | None, Ending] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "tool_use": "tools",
    # A server tool takes long, or the provider compacted: the response goes back as it is, and the model goes on.
    "pause_turn": "resume",
    "compaction": "resume",
}


class AnthropicResponder:
    """Implements the turn's `Responder`."""

    def __init__(
        self,
        client: AsyncAnthropic,
        toolbox: Toolbox,
        prices: Prices,
        build_request: Callable[[Iterable[ToolDefinition]], dict[str, Any]],
    ) -> None:
        """Take what all responses of a turn share.

        Args:
            client: The process's client.
            toolbox: The turn's tools; connected at the first response.
            prices: The process's price list.
            build_request: Makes the part of the request that stays the same through the turn.
        """
        self._client = client
        self._toolbox = toolbox
        self._prices = prices
        self._build_request = build_request
        self._request: dict[str, Any] | None = None

    async def respond(self, ask: Ask, draft: Draft) -> Response:
        """Get the model's next response. See `nova_workers.engines.turn.Responder`."""
        if self._request is None:
            tools = await self._toolbox.connect()
            self._request = self._build_request(tools.values())
        request = with_messages(self._request, ask.messages)
        try:
            async with self._client.beta.messages.stream(**request) as stream:
                message = await self._read(stream, draft)
        except Exception as error:
            # The seam to the vendor: whatever it raises becomes a failure of the turn, in the contract's words.
            failure = failure_of(error)
            if failure.kind == "unknown":
                _log.exception("model_call_failed", model=request["model"])
            raise failure from error
        return Response(
            content=tuple(block.to_dict(mode="json") for block in message.content),
            ending=_ENDINGS.get(message.stop_reason, "end"),
            usage=draft.usage,
            model=message.model,
        )

    async def _read(self, stream: BetaAsyncMessageStream[Any], draft: Draft) -> ParsedBetaMessage[Any]:
        complete = False
        async for event in stream:
            if event.type == "text":
                draft.token(event.text)
            elif event.type == "thinking":
                draft.reasoning(event.thinking)
            elif event.type in ("message_start", "message_delta"):
                so_far = stream.current_message_snapshot
                draft.model = so_far.model
                draft.usage = self._prices.usage(so_far.usage, so_far.model)
            elif event.type == "message_stop":
                complete = True
        if not complete:
            raise EngineFailure(
                "The model provider closed the stream before the response was complete.",
                kind="model_error",
                retryable=True,
            )
        message = stream.current_message_snapshot
        if message.stop_reason == "refusal":
            raise _refusal(message)
        return message


def _refusal(message: ParsedBetaMessage[Any]) -> EngineFailure:
    details = message.stop_details
    why = (details.explanation or details.category) if details is not None else None
    return EngineFailure(
        f"The model refused to answer: {why or 'no reason given'}", kind="model_error", retryable=False
    )
