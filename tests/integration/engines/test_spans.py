"""Spans of model calls and tool calls: one each, with the attributes of the conventions, and without content."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.processes.preloaded import preloaded_output

Json = dict[str, Any]
Program = Callable[..., list[Json]]


@pytest.fixture(scope="module")
def spans_of(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Returns the spans of a turn; takes the words of the program."""

    def run(*words: str) -> list[Json]:
        folder = tmp_path_factory.mktemp("spans")
        printed = preloaded_output("tests.support.processes.print_turn_spans", *words, folder=folder)
        return json.loads(printed.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def spans(spans_of: Program) -> list[Json]:
    return spans_of()


def _of(spans: list[Json], operation: str) -> list[Json]:
    return [span for span in spans if span["attributes"].get("gen_ai.operation.name") == operation]


def _check_calls(spans: list[Json], *, provider: str, model: str, reasons: set[str]) -> None:
    chats = _of(spans, "chat")
    assert len(chats) == 3
    for chat in chats:
        given = chat["attributes"]
        assert (chat["name"], chat["kind"]) == (f"chat {model}", "SpanKind.CLIENT")
        assert given["gen_ai.provider.name"] == provider
        assert given["gen_ai.request.model"] == model
        assert given["gen_ai.request.stream"] is True
        assert given["gen_ai.request.max_tokens"] > 1_000
        assert given["gen_ai.conversation.id"] == "thr_of_the_test"
        assert given["gen_ai.response.model"]
        assert given["gen_ai.response.id"]
        assert given["gen_ai.response.time_to_first_chunk"] >= 0
        assert given["gen_ai.usage.input_tokens"] > 0
        assert given["gen_ai.usage.output_tokens"] == 5
        assert given["nova.model.attempts"] == 1
        assert chat["status"]["status_code"] == "UNSET"
    assert {reason for chat in chats for reason in chat["attributes"]["gen_ai.response.finish_reasons"]} == reasons
    tools = {span["attributes"]["gen_ai.tool.name"]: span for span in _of(spans, "execute_tool")}
    assert sorted(tools) == ["Read", "Task", "count", "echo"]
    assert len(_of(spans, "execute_tool")) == 4
    for name, tool in tools.items():
        assert (tool["name"], tool["kind"]) == (f"execute_tool {name}", "SpanKind.INTERNAL")
        assert tool["attributes"]["gen_ai.tool.type"] == "function"
        assert tool["attributes"]["gen_ai.tool.call.id"].startswith("toolu_")
        assert tool["attributes"]["gen_ai.conversation.id"] == "thr_of_the_test"
    assert "SECRET" not in json.dumps(spans)


def test_each_call_has_one_span_with_the_attributes_of_the_conventions_and_no_content(spans: list[Json]) -> None:
    model = _of(spans, "chat")[0]["attributes"]["gen_ai.request.model"]
    assert model.startswith("claude-")
    _check_calls(spans, provider="anthropic", model=model, reasons={"tool_use", "end_turn"})


def test_calls_of_a_turn_are_in_one_trace(spans: list[Json]) -> None:
    calls = [*_of(spans, "chat"), *_of(spans, "execute_tool")]
    assert len({span["context"]["trace_id"] for span in calls}) == 1
    by_name = {span["attributes"].get("gen_ai.tool.name"): span for span in _of(spans, "execute_tool")}
    task, run = by_name["Task"], next(span for span in spans if span["name"] == "invoke_agent")
    below_task = [span for span in _of(spans, "chat") if span["parent_id"] == task["context"]["span_id"]]
    assert len(below_task) == 1
    # Those of read-only tools begin while the response streams, and belong to the turn all the same.
    assert [by_name[name]["parent_id"] for name in ("Read", "echo", "Task", "count")] == [run["context"]["span_id"]] * 4
    wire = next(span for span in spans if span["name"] == "MCP send tools/call echo")
    assert wire["parent_id"] == by_name["echo"]["context"]["span_id"]
    assert wire["attributes"]["gen_ai.conversation.id"] == "thr_of_the_test"


def test_calls_of_the_engine_openai_have_the_same_spans(spans_of: Program) -> None:
    _check_calls(spans_of("openai"), provider="local", model="some-model", reasons={"completed"})


@pytest.mark.parametrize("engine", ["anthropic", "openai"])
def test_content_is_recorded_without_secrets_when_the_operator_asks_for_it(spans_of: Program, engine: str) -> None:
    spans = spans_of("content", engine)
    for chat in _of(spans, "chat"):
        messages = json.loads(chat["attributes"]["gen_ai.input.messages"])
        assert messages[0]["role"] == "user"
        assert "SECRET" in messages[0]["parts"][0]["content"]
        assert json.loads(chat["attributes"]["gen_ai.output.messages"])[0]["role"] == "assistant"
    asked = [chat["attributes"] for chat in _of(spans, "chat")]
    assert any("SECRET" in each.get("gen_ai.system_instructions", "") for each in asked)
    assert any('"name":"echo"' in each.get("gen_ai.tool.definitions", "") for each in asked)
    parts = [
        part for each in asked for message in json.loads(each["gen_ai.input.messages"]) for part in message["parts"]
    ]
    assert {"text", "tool_call", "tool_call_response"} <= {part["type"] for part in parts}
    echo = next(span for span in _of(spans, "execute_tool") if span["name"] == "execute_tool echo")
    assert json.loads(echo["attributes"]["gen_ai.tool.call.arguments"]) == {"text": "SECRET sk-ant-api0[redacted]"}
    assert "SECRET" in echo["attributes"]["gen_ai.tool.call.result"]
    assert "hunter2hunter2" not in json.dumps(spans)
