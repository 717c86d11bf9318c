"""A gateway in front of the Messages API may stream anything: it is an answer or a failure of the provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.anthropic import AnthropicEngine
from tests.contract.engines.stage import TurnRecorder
from tests.requirements import proves

_USAGE = {"input_tokens": 1, "output_tokens": 1}
_START = {
    "type": "message_start",
    "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": _USAGE},
}
_BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
_DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "fine"}}
_STOP = {"type": "content_block_stop", "index": 0}
_END = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": _USAGE}
_WELL = (_START, _BLOCK, _DELTA, _STOP, _END, {"type": "message_stop"})

_FIELDS = st.sampled_from([
    "type", "index", "delta", "text", "content_block", "message", "usage", "model", "content", "stop_reason", "id",
    "input", "name", "partial_json", "thinking", "signature", "output_tokens", "citation", "stop_details",
])  # fmt: skip
_WORDS = st.sampled_from(["text", "tool_use", "thinking", "text_delta", "input_json_delta", "tool_use", "fine"])
_LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | _WORDS
_JSON = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_FIELDS, inner, max_size=4), max_leaves=8
)


@st.composite
def _streams(draw: st.DrawFn) -> list[Any]:
    """Return the events of an answer, of which some have values of other types, are missing or come twice."""
    events: list[Any] = json.loads(json.dumps(_WELL))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(events) - 1))
        change = draw(st.sampled_from(["field", "inner", "drop", "twice", "other"]))
        event = events[at]
        if change == "drop" and len(events) > 1:
            del events[at]
        elif change == "twice":
            events.insert(at, event)
        elif change == "other" or not isinstance(event, dict):
            events[at] = draw(_JSON)
        else:
            holder = event
            inner = [value for value in event.values() if isinstance(value, dict)]
            if change == "inner" and inner:
                holder = draw(st.sampled_from(inner))
            holder[draw(st.sampled_from(sorted(holder)) | _FIELDS if holder else _FIELDS)] = draw(_JSON)
    return events


@pytest.fixture
async def gateway() -> AsyncIterator[tuple[Gateway, AnthropicEngine]]:
    """A gateway, and the engine before it."""
    transport = Gateway()
    engine = AnthropicEngine(api_key="k", max_retries=0, transport=transport)
    yield transport, engine
    await engine.close()


class Gateway(httpx2.AsyncBaseTransport):
    """Answers each request with the same events."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        kinds = [str(each.get("type")) if isinstance(each, dict) else "ping" for each in self.events]
        lines = (f"event: {kind}\ndata: {json.dumps(each)}\n\n" for kind, each in zip(kinds, self.events, strict=True))
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text="".join(lines))


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(events=_streams())
@proves("engine.dialects")
async def test_whatever_a_gateway_streams_is_an_answer_or_a_failure_of_the_provider(
    gateway: tuple[Gateway, AnthropicEngine], events: list[Any]
) -> None:
    transport, engine = gateway
    transport.events = events
    callbacks = TurnRecorder().callbacks()
    # Each answer is of a model of its own, since one that fails often rests.
    options = EngineOptions(model=f"model-{uuid4()}", max_turns=2)
    result = await engine.run("hi", options, "sandbox", callbacks=callbacks)
    assert isinstance(result.text, str)
    assert result.error is None or result.error.kind == "model_error", result.error
