"""One call to the Messages API: sends a request, streams what comes, and returns the whole response."""

import asyncio
from collections.abc import AsyncIterable
from typing import Any, cast

from anthropic import AsyncAnthropic
from anthropic.types.beta import BetaRawMessageStreamEvent, BetaStopReason

from nova_workers.contracts.content import ContentBlock
from nova_workers.engines.anthropic.accumulator import Accumulator
from nova_workers.engines.anthropic.prices import Prices
from nova_workers.engines.anthropic.request import without_last_thoughts
from nova_workers.engines.turn import Draft, Ending, Response
from nova_workers.errors import EngineFailure

__all__ = ["MessageReader"]

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
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")


class MessageReader:
    """Makes calls. One object serves a process."""

    def __init__(self, prices: Prices, *, first_byte_timeout_s: float = 120.0, trace_content: bool = False) -> None:
        """Take what calls share.

        Args:
            prices: The price list.
            first_byte_timeout_s: Longest wait until a response begins. One that has begun may take its time.
            trace_content: Whether the SDK records on its spans what is said. It finds the answer only in a stream that
                its own helper puts together, which is the slower way.
        """
        self._prices = prices
        self._first_byte_timeout_s = first_byte_timeout_s
        self._trace_content = trace_content

    async def read(self, client: AsyncAnthropic, request: dict[str, Any], draft: Draft) -> Response:
        """Make one call. May be cancelled at any await.

        Raises:
            Exception: What the SDK raises; `failure_of` knows what it means. `draft` holds what arrived.
        """
        silence = asyncio.timeout(self._first_byte_timeout_s)
        try:
            async with silence:
                if self._trace_content:
                    async with client.beta.messages.stream(**request) as helper:
                        # Its raw events, among further ones of its own that the accumulator passes over.
                        raw = cast("AsyncIterable[BetaRawMessageStreamEvent]", helper)
                        return await self._read(raw, request["model"], draft, silence)
                async with await client.beta.messages.create(**request, stream=True) as stream:
                    return await self._read(stream, request["model"], draft, silence)
        except TimeoutError as error:
            if not silence.expired():
                raise
            raise EngineFailure(
                f"The model provider did not begin to answer within {self._first_byte_timeout_s:g} s.",
                kind="model_error",
                retryable=True,
            ) from error

    async def _read(
        self, stream: AsyncIterable[BetaRawMessageStreamEvent], asked: str, draft: Draft, silence: asyncio.Timeout
    ) -> Response:
        message = Accumulator()
        async for event in stream:
            if event.type == "content_block_delta":
                delta = event.delta
                message.delta(event.index, delta)
                if delta.type == "text_delta":
                    draft.token(delta.text)
                elif delta.type == "thinking_delta":
                    draft.reasoning(delta.thinking)
                continue
            call = message.take(event)
            if call is not None:
                draft.call(call)
            elif event.type in ("message_start", "message_delta") and message.usage is not None:
                silence.reschedule(None)
                draft.model = message.model
                draft.usage = self._prices.usage(message.usage, message.model, asked)
                draft.begin()
        return self._response(message, draft)

    def _response(self, message: Accumulator, draft: Draft) -> Response:
        if not message.complete:
            raise EngineFailure(
                "The model provider closed the stream before the response was complete.",
                kind="model_error",
                retryable=True,
            )
        if message.stop_reason == "refusal":
            raise _refusal(message)
        ending = _ENDINGS.get(message.stop_reason, "end")
        return Response(_replayable(message.content, ending), ending, draft.usage, message.model)


def _refusal(message: Accumulator) -> EngineFailure:
    """A refusal is no answer: a caller that took its text for one would be told that the turn went well."""
    details = message.stop_details
    why = (details.explanation or details.category) if details is not None else None
    return EngineFailure(
        f"The model refused to answer: {why or 'no reason given'}", kind="model_error", retryable=False
    )


def _replayable(content: list[ContentBlock], ending: Ending) -> tuple[ContentBlock, ...]:
    """Return the blocks that the provider takes back: no blank text, no call that was cut off, no thoughts at last."""
    answered = {block.get("tool_use_id") for block in content}
    kept = [
        block
        for block in content
        if not (block["type"] == "text" and not block["text"].strip())
        and not (ending != "tools" and block["type"] == "tool_use")
        and not (ending in ("end", "max_tokens") and block["type"] in _SERVER_CALLS and block["id"] not in answered)
    ]
    return tuple(kept if ending == "tools" else without_last_thoughts(kept))
