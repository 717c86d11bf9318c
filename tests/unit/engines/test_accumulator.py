"""The accumulator puts together the same message as the SDK's, whatever the stream."""

import itertools
import json
from typing import Any

import httpx2
import pytest
from anthropic._models import construct_type_unchecked
from anthropic.lib.streaming._beta_messages import accumulate_event
from anthropic.types.beta import BetaRawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.engines.anthropic.accumulator import Accumulator

Json = dict[str, Any]

_words = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
_floats = st.floats(allow_nan=False, allow_infinity=False)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=6,
)
_inputs = st.dictionaries(_words, _values, max_size=4)


def _cut(text: str, at: list[int]) -> list[str]:
    places = sorted({place % (len(text) + 1) for place in at} | {0, len(text)})
    return [text[start:end] for start, end in itertools.pairwise(places)]


_cuts = st.lists(st.integers(0, 200), max_size=6)


@st.composite
def _text_block(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    deltas: list[Json] = [{"type": "text_delta", "text": draw(_words)} for _ in range(draw(st.integers(0, 5)))]
    if draw(st.booleans()):
        citation = {
            "type": "char_location",
            "cited_text": draw(_words),
            "document_index": 0,
            "document_title": None,
            "start_char_index": 0,
            "end_char_index": 3,
            "file_id": None,
        }
        deltas += [{"type": "citations_delta", "citation": citation}] * draw(st.integers(1, 2))
    start: Json = {"type": "text", "text": draw(_words)}
    if draw(st.booleans()):
        start["citations"] = draw(st.sampled_from([None, []]))
    return start, deltas


@st.composite
def _thinking_block(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    deltas: list[Json] = [{"type": "thinking_delta", "thinking": draw(_words)} for _ in range(draw(st.integers(0, 4)))]
    return {"type": "thinking", "thinking": "", "signature": ""}, [
        *deltas,
        {"type": "signature_delta", "signature": draw(_words)},
    ]


@st.composite
def _call_block(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    kind = draw(st.sampled_from(["tool_use", "server_tool_use"]))
    name = "web_search" if kind == "server_tool_use" else draw(_words)
    pieces = _cut(json.dumps(draw(_inputs), ensure_ascii=draw(st.booleans())), draw(_cuts))
    block = {"type": kind, "id": draw(_words), "name": name, "input": {}}
    return block, [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces]]


_other_blocks = st.sampled_from(
    [
        ({"type": "redacted_thinking", "data": "c2VjcmV0"}, []),
        ({"type": "tool_use", "id": "t", "name": "no_input", "input": {}}, []),
        (
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srv_1",
                "content": [
                    {
                        "type": "web_search_result",
                        "title": "T",
                        "url": "https://example.org",
                        "encrypted_content": "x",
                        "page_age": None,
                    }
                ],
            },
            [],
        ),
        ({"type": "fallback", "from": {"model": "claude-a"}, "to": {"model": "claude-b"}}, []),
        ({"type": "something_new", "field": {"a": [1]}}, []),
        ({"type": "text", "text": ""}, [{"type": "something_new_delta", "x": 1}]),
    ]
)
_blocks = st.lists(_text_block() | _thinking_block() | _call_block() | _other_blocks, max_size=6)
_usages = st.fixed_dictionaries(
    {"output_tokens": st.integers(0, 10_000)},
    optional={
        "input_tokens": st.integers(0, 10_000) | st.none(),
        "cache_read_input_tokens": st.integers(0, 10_000) | st.none(),
        "cache_creation_input_tokens": st.integers(0, 10_000),
        "output_tokens_details": st.just({"thinking_tokens": 7}),
        "server_tool_use": st.just({"web_search_requests": 2, "web_fetch_requests": 0}),
    },
)


def _stream(blocks: list[tuple[Json, list[Json]]], usage: Json, stop_reason: str | None) -> list[Json]:
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-x",
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 4},
    }
    events: list[Json] = [{"type": "message_start", "message": message}]
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return [*events, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def _parse(event: Json) -> BetaRawMessageStreamEvent:
    # As the client does it: unchecked, so that what is new at the provider does not break it.
    return construct_type_unchecked(type_=BetaRawMessageStreamEvent, value=event)  # pyright: ignore[reportArgumentType] - a union is a type to the SDK


@given(blocks=_blocks, usage=_usages, stop_reason=st.sampled_from(["end_turn", "tool_use", "pause_turn", None]))
def test_it_accumulates_any_stream_like_the_sdk(
    blocks: list[tuple[Json, list[Json]]], usage: Json, stop_reason: str | None
) -> None:
    ours = Accumulator()
    theirs: Any = None
    buffers: dict[int, bytes] = {}
    for event in _stream(blocks, usage, stop_reason):
        parsed = _parse(event)
        if parsed.type == "content_block_delta":
            ours.delta(parsed.index, parsed.delta)
        else:
            ours.take(parsed)
        theirs = accumulate_event(
            event=_parse(event), current_snapshot=theirs, json_bufs=buffers, request_headers=httpx2.Headers()
        )
    assert ours.content == [block.to_dict(mode="json") for block in theirs.content]
    assert ours.usage is not None
    assert ours.usage.to_dict() == theirs.usage.to_dict()
    assert (ours.model, ours.stop_reason, ours.complete) == (theirs.model, theirs.stop_reason, True)


def test_a_call_is_returned_once_it_is_complete() -> None:
    accumulator = Accumulator()
    block: Json = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
    returned: list[Any] = []
    for event in _stream([(block, [{"type": "input_json_delta", "partial_json": '{"a": 1}'}])], {}, "tool_use"):
        parsed = _parse(event)
        if parsed.type == "content_block_delta":
            accumulator.delta(parsed.index, parsed.delta)
            assert returned[-1] is None
        else:
            returned.append(accumulator.take(parsed))
    assert [call for call in returned if call] == [{**block, "input": {"a": 1}}]


def test_an_input_that_is_not_json_stays_text() -> None:
    accumulator = Accumulator()
    block: Json = {"type": "tool_use", "id": "t1", "name": "add", "input": {}}
    for event in _stream([(block, [{"type": "input_json_delta", "partial_json": '{"a": '}])], {}, "max_tokens"):
        parsed = _parse(event)
        if parsed.type == "content_block_delta":
            accumulator.delta(parsed.index, parsed.delta)
        else:
            accumulator.take(parsed)
    assert accumulator.content == [{**block, "input": '{"a": '}]


def test_a_piece_of_a_block_that_never_began_is_an_error() -> None:
    parsed = _parse({"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}})
    assert parsed.type == "content_block_delta"
    with pytest.raises(LookupError):
        Accumulator().delta(parsed.index, parsed.delta)
