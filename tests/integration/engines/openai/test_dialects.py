"""Servers of chat completions differ from OpenAI; each row is a form that some server really sends."""

import itertools
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import ORIGIN
from nova_workers.contracts.engine import EngineOptions, EngineResult
from nova_workers.engines.openai.catalog import Target
from nova_workers.engines.openai.chat_reader import ChatReader
from nova_workers.engines.openai.names import ToolNames
from nova_workers.engines.openai.provider import OpenAIProvider
from nova_workers.engines.openai.responses_reader import ResponsesReader
from nova_workers.engines.openai.tagged import ThinkTags
from nova_workers.engines.openai.wire import Reader, TurnRequest
from nova_workers.engines.turn import Draft, Interruption, Response
from nova_workers.engines.turn.intake import admit
from tests.contract.engines.stage import Bench, TurnRecorder
from tests.integration.engines.openai.conftest import MakeEngine
from tests.requirements import proves
from tests.support.servers.model_server import ModelServer, Part, Stream

Json = dict[str, Any]

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
FINE = {"content": "fine"}
STOP = "stop"


def chunk(delta: Any = None, finish: Any = None, **more: Any) -> Json:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def sse(
    *chunks: Json | bytes, end: bytes = b"data: [DONE]\n\n", head: bytes = b"data: ", gap: bytes = b"\n\n"
) -> bytes:
    lines = [each if isinstance(each, bytes) else head + json.dumps(each).encode() + gap for each in chunks]
    return b"".join((*lines, end))


def call(arguments: Any = "{}", *, name: str = "count", **head: Any) -> Json:
    return {
        "tool_calls": [{"index": 0, "type": "function", **head, "function": {"name": name, "arguments": arguments}}]
    }


@dataclass(frozen=True)
class Row:
    """What a server sends, and what it means."""

    body: bytes
    text: str = "fine"
    thoughts: str = ""
    stop_reason: str = "end_turn"
    error: str | None = None
    tokens: int | None = None


def _text(*texts: Any, **more: Any) -> Row:
    return Row(sse(*(chunk({"content": each}) for each in texts), chunk({}, STOP, usage=USAGE)), tokens=15, **more)


ANSWERS: dict[str, Row] = {
    "content as a list": _text([{"type": "text", "text": "fi"}, {"type": "text", "text": "ne"}]),
    "thinking as a part": _text(
        [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}], "fine", thoughts="hm"
    ),
    "content as texts": _text(["fi", "ne"]),
    "content as an object": _text({"type": "text", "text": "fine"}),
    "think tags": _text("<think>hid", "den</think>fine", thoughts="hidden"),
    "think tags in pieces": _text("\n<th", "ink>\nhid", "den</", "thi", "nk>", "\n\nfi", "ne", thoughts="hidden"),
    "a tag that is none": _text("<thi", "s is fine", text="<this is fine"),
    "a tag within the answer": _text("fine <think>x</think>", text="fine <think>x</think>"),
    "a tag that looks closed": _text("<think>a </thing> b</think>", "fine", thoughts="a </thing> b"),
    "an empty answer": _text("", text=""),
    "thoughts alone": _text("<think>hidden", text="", thoughts="hidden"),
    **{
        f"thoughts in {name}": Row(
            sse(chunk({name: "hm", "content": None}), chunk(FINE), chunk({}, STOP, usage=USAGE)), thoughts="hm"
        )
        for name in ("reasoning_content", "reasoning", "reasoning_text", "thinking")
    },
    "thoughts as an object": Row(sse(chunk({"reasoning": {"text": "hm"}}), chunk(FINE, STOP)), thoughts="hm"),
    "details of thoughts": Row(
        sse(chunk({"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}), chunk(FINE, STOP)), thoughts="hm"
    ),
    "no choices": Row(sse({"choices": []}, {"choices": None}, {}, chunk(FINE), chunk({}, STOP))),
    "choices as an object": Row(sse({"choices": {"delta": FINE, "finish_reason": STOP}})),
    "no delta": Row(sse(chunk(FINE), chunk(None, STOP))),
    "another choice": Row(sse(chunk(FINE), {"choices": [{"index": 1, "delta": {"content": "no"}}]}, chunk({}, STOP))),
    "a finish reason of its own": Row(sse(chunk(FINE), chunk({}, "eos"))),
    "no finish reason": Row(sse(chunk(FINE), chunk({}, None, usage=USAGE)), tokens=15),
    "no finish reason and no counts": Row(sse(chunk(FINE), chunk({}))),
    "a limit in capitals": Row(sse(chunk(FINE), chunk({}, "MAX_TOKENS")), stop_reason="max_tokens"),
    "comments": Row(sse(b": OPENROUTER PROCESSING\n\n", chunk(FINE), b": x\n\n", chunk({}, STOP), head=b"data:")),
    "CRLF": Row(sse(chunk(FINE), chunk({}, STOP), gap=b"\r\n\r\n")),
    "no mark": Row(sse(chunk(FINE), chunk({}, STOP), end=b"")),
    "garbage after the end": Row(sse(chunk(FINE), chunk({}, STOP), b"data: {garbage\n\n", end=b"")),
    "garbage after the mark": Row(sse(chunk(FINE), chunk({}, STOP)) + b"<html>\n\ndata: x\n\n"),
    "an error after the end": Row(sse(chunk(FINE), chunk({}, STOP), {"error": {"message": "late"}}, end=b"")),
    "values that are no objects": Row(sse(b"data: 7\n\n", b"data: [1]\n\n", b"data: null\n\n", chunk(FINE, STOP))),
    "counts in a choice": Row(
        sse(chunk(FINE), {"choices": [{"delta": {}, "finish_reason": STOP, "usage": USAGE}]}), tokens=15
    ),
    "counts of another name": Row(
        sse(chunk(FINE), chunk({}, STOP, usage={"input_tokens": 10, "output_tokens": 5})), tokens=15
    ),
    "counts of Groq": Row(sse(chunk(FINE), chunk({}, STOP, x_groq={"usage": USAGE})), tokens=15),
    "counts before others that are empty": Row(
        sse(chunk(FINE, usage=USAGE), chunk({}, STOP, usage={"prompt_tokens": None})), tokens=15
    ),
    "counts that cannot be": Row(
        sse(chunk(FINE), chunk({}, STOP, usage={"prompt_tokens": -5, "completion_tokens": 7.0, "x": []})), tokens=7
    ),
    "counts beyond all bounds": Row(sse(chunk(FINE), chunk({}, STOP, usage={"prompt_tokens": 1e30}))),
    "cut off": Row(sse(chunk(FINE), end=b""), stop_reason="error", error="closed the stream"),
    "nothing": Row(sse(), text="", stop_reason="error", error="closed the stream"),
    "an error": Row(
        sse(chunk(FINE), {"error": {"message": "CUDA out of memory", "type": "server_error", "code": 500}}),
        stop_reason="error",
        error="CUDA out of memory",
    ),
    "an error as a text": Row(sse({"error": "CUDA"}), text="", stop_reason="error", error="CUDA"),
    "an error of odd types": Row(
        sse({"error": {"message": ["x"], "type": {}, "code": [1]}}), text="", stop_reason="error", error="failed"
    ),
    "an error in a choice": Row(
        sse({"choices": [{"delta": {}, "error": {"code": 502, "message": "upstream"}}]}),
        text="",
        stop_reason="error",
        error="upstream",
    ),
    "an error as finish reason": Row(sse(chunk(FINE), chunk({}, "error")), stop_reason="error", error="could not"),
    "a filter": Row(sse(chunk(FINE), chunk({}, "content_filter")), stop_reason="error", error="filter"),
    "a filter of its own": Row(sse(chunk(FINE), chunk({}, "sensitive")), stop_reason="error", error="filter"),
}

CALLS: dict[str, tuple[Json, ...]] = {
    "an empty id": (call(id=""),),
    "a null id": (call(id=None),),
    "a number as id": (call(id=7),),
    "a long id": (call(id="call_" + "x" * 90),),
    "no index": (call(id="a", index=None),),
    "an index of another type": (call(id="a", index=[1]),),
    "arguments as an object": (call({}, id="a"),),
    "arguments as null": (call(None, id="a"),),
    "no arguments": (call("", id="a"),),
    "a repeated name": (call("{", id="a"), call("}", id="a")),
    "a repeated name without an id": (call("", id=None), call("{", id=None), call("}", id=None)),
    "an id for each piece": (
        call("{", id="a"),
        {"tool_calls": [{"index": 0, "id": "b", "function": {"arguments": "}"}}]},
    ),
    "one object in place of a list": ({"tool_calls": call(id="a")["tool_calls"][0]},),
    "the form before": ({"function_call": {"name": "count", "arguments": "{}"}},),
    "in the text": ({"content": '<tool_call>{"name": "count", "arguments": {}}</tool_call>'},),
    "in the text, with arguments as text": (
        {"content": '<tool_call>\n{"name": "count", '},
        {"content": '"arguments": "{}"}\n</tool_call>\n'},
    ),
    "a piece without a function": (call(id="a"), {"tool_calls": [{"index": 0}, 7, None]}),
}

TWO_CALLS: dict[str, tuple[Json, ...]] = {
    "one index": (call(id="a"), call(id="b")),
    "one index and no ids": (call(id=None), call(id="")),
    "no index and no ids": (call(index=None), call(index=None)),
    "in the text": ({"content": '<tool_call>{"name": "count"}</tool_call>\n' * 2},),
}


async def _turn(make_engine: MakeEngine, server: ModelServer, *bodies: bytes) -> tuple[EngineResult, TurnRecorder]:
    recorder = TurnRecorder()
    server.reply(*(Stream((Part("raw", body), Part("end"))) for body in bodies))
    options = EngineOptions(model="local/m", mcp_servers=Bench().servers())
    return await make_engine("chat").run("hi", options, "sandbox", callbacks=recorder.callbacks()), recorder


@pytest.mark.parametrize("form", list(ANSWERS))
@proves("engine.dialects")
async def test_an_answer_of_any_dialect_is_read(server: ModelServer, make_engine: MakeEngine, form: str) -> None:
    row = ANSWERS[form]
    result, recorder = await _turn(make_engine, server, row.body)
    assert (result.text, result.stop_reason) == (row.text, row.stop_reason)
    assert (row.error or "") in (result.error.message if result.error else "")
    assert (result.error is None) == (row.error is None)
    assert "".join(entry[1] for entry in recorder.log if entry[0] == "reasoning") == row.thoughts
    if row.tokens is not None:
        assert result.usage.tokens.total_tokens == row.tokens


@pytest.mark.parametrize(
    ("form", "finish"), list(zip(CALLS, itertools.cycle(["tool_calls", "stop", None]), strict=False)), ids=str
)
@proves("engine.dialects")
async def test_a_call_of_any_dialect_is_made(
    server: ModelServer, make_engine: MakeEngine, form: str, finish: str | None
) -> None:
    body = sse(*map(chunk, CALLS[form]), chunk({}, finish))
    result, _ = await _turn(make_engine, server, body, sse(chunk(FINE, STOP)))
    assert (result.error, result.text) == (None, "fine")
    assert [(each.tool_name, each.params, each.status) for each in result.tool_calls] == [("count", {}, "completed")]
    (sent,) = server.requests[-1]["messages"][1]["tool_calls"]
    assert 0 < len(sent["id"]) <= 40
    assert server.requests[-1]["messages"][2]["tool_call_id"] == sent["id"]


@pytest.mark.parametrize("form", list(TWO_CALLS))
async def test_two_calls_of_any_dialect_are_two(server: ModelServer, make_engine: MakeEngine, form: str) -> None:
    body = sse(*map(chunk, TWO_CALLS[form]), chunk({}, "tool_calls"))
    result, _ = await _turn(make_engine, server, body, sse(chunk(FINE, STOP)))
    assert [(each.tool_name, each.status) for each in result.tool_calls] == [("count", "completed")] * 2


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "count"}</tool_call> is how it is written',
        '<tool_call>{"name": "of nobody"}</tool_call>',
        "<tool_call>{count}</tool_call>",
        '<tool_call>{"name": ["count"]}</tool_call>',
    ],
)
async def test_a_text_about_calls_is_an_answer(server: ModelServer, make_engine: MakeEngine, text: str) -> None:
    result, _ = await _turn(make_engine, server, sse(chunk({"content": text}, STOP)))
    assert (result.text, result.tool_calls) == (text, ())


async def test_thoughts_in_tags_go_back_within_the_turn_as_they_came(
    server: ModelServer, make_engine: MakeEngine
) -> None:
    body = sse(chunk({"content": "<think>hm</think>Let me see."}), chunk(call(id="a"), "tool_calls"))
    result, _ = await _turn(make_engine, server, body, sse(chunk(FINE, STOP)))
    assert result.messages[0].content[0][ORIGIN]["tag"] == "think"
    assert server.requests[-1]["messages"][1]["content"] == "<think>\nhm\n</think>\n\nLet me see."


@given(text=st.text("<>/think a\n", max_size=40), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_a_text_has_the_same_thoughts_in_any_pieces(text: str, cuts: list[int]) -> None:
    def split(*pieces: str) -> tuple[str, str]:
        tags = ThinkTags()
        found = [each for piece in pieces for each in tags.split(piece)] + list(tags.rest())
        texts = ("".join(piece for thinks, piece in found if thinks is kind) for kind in (True, False))
        thought, answer = texts
        return thought.strip(), answer.lstrip()

    at = [0, *sorted(cuts), len(text)]
    assert split(*(text[start:end] for start, end in itertools.pairwise(at))) == split(text)


_WORDS = st.sampled_from([
    "choices", "delta", "content", "tool_calls", "function", "function_call", "name", "arguments", "index",
    "id", "type", "finish_reason", "usage", "prompt_tokens", "completion_tokens_details", "reasoning_content",
    "reasoning_details", "text", "summary", "refusal", "model", "error", "response", "item", "output_index",
    "output", "status", "message", "incomplete_details", "reasoning", "thinking", "x_groq", "input_tokens",
    "call_id", "code", "encrypted_content",
])  # fmt: skip
_KINDS = st.sampled_from([
    "response.output_text.delta", "response.output_item.done", "response.completed", "response.reasoning_text.delta",
    "response.reasoning_summary_part.added", "function_call", "reasoning", "text", "error", "stop", "tool_calls",
])  # fmt: skip
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | _KINDS | _WORDS
_JSON = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=5), max_leaves=15
)
_EVENTS = st.one_of(
    _JSON,
    st.fixed_dictionaries({"choices": st.lists(st.dictionaries(_WORDS, _JSON, max_size=4), max_size=2)}),
    st.fixed_dictionaries(
        {"choices": st.lists(st.fixed_dictionaries({"delta": st.dictionaries(_WORDS, _JSON, max_size=5)}), max_size=2)}
    ),
    st.fixed_dictionaries({"type": _KINDS}, optional={"delta": _JSON, "item": _JSON, "response": _JSON}),
    st.fixed_dictionaries({"type": _KINDS, "item": st.dictionaries(_WORDS, _JSON, max_size=5)}),
    st.fixed_dictionaries({"type": _KINDS, "response": st.dictionaries(_WORDS, _JSON, max_size=5)}),
)


@pytest.mark.parametrize("make", [ChatReader, ResponsesReader])
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(events=st.lists(_EVENTS, max_size=6), is_marked=st.booleans())
@proves("engine.dialects")
def test_whatever_a_server_streams_is_a_response_or_a_failure(make: Any, events: list[Any], *, is_marked: bool) -> None:
    target = Target(OpenAIProvider("local", "http://localhost/v1", "chat", ()), "m")
    reader: Reader = make(TurnRequest(target, EngineOptions(), (), ToolNames(()), None, 100, 0))
    recorder = TurnRecorder()
    draft = Draft(recorder.callbacks(), Interruption())
    try:
        for event in events:
            reader.take(event, draft)
        answered = reader.answered(is_marked=is_marked)
    except EngineFailure:
        return
    finally:
        assert isinstance(draft.text, str)
        assert reader.counted is None or reader.counted.total_tokens > 0
    admit(Response(answered.content, answered.ending, draft.usage, reader.model), set())
