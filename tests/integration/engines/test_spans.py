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


def test_each_call_has_one_span_with_the_attributes_of_the_conventions_and_no_content(spans: list[Json]) -> None:
    chats = _of(spans, "chat")
    assert len(chats) == 3
    for chat in chats:
        assert chat["attributes"]["gen_ai.provider.name"] == "anthropic"
        assert chat["attributes"]["gen_ai.request.model"].startswith("claude-")
        assert chat["attributes"]["gen_ai.usage.output_tokens"] == 5
        assert chat["status"]["status_code"] == "OK"
    tools = _of(spans, "execute_tool")
    assert sorted(tool["attributes"]["gen_ai.tool.name"] for tool in tools) == ["Read", "Task", "count", "echo"]
    assert "SECRET" not in json.dumps(spans)


def test_calls_of_a_turn_are_in_one_trace(spans: list[Json]) -> None:
    calls = [*_of(spans, "chat"), *_of(spans, "execute_tool")]
    assert len({span["context"]["trace_id"] for span in calls}) == 1
    by_name = {span["attributes"].get("gen_ai.tool.name"): span for span in _of(spans, "execute_tool")}
    task, run = by_name["Task"], next(span for span in spans if span["name"] == "nova.run")
    below_task = [span for span in _of(spans, "chat") if span["parent_id"] == task["context"]["span_id"]]
    assert len(below_task) == 1
    assert [by_name[name]["parent_id"] for name in ("Read", "echo", "Task")] == [run["context"]["span_id"]] * 3
    wire = next(span for span in spans if span["name"] == "MCP send tools/call echo")
    assert wire["parent_id"] == by_name["echo"]["context"]["span_id"]


def test_model_calls_of_the_engine_openai_have_such_spans_too(spans_of: Program) -> None:
    spans = spans_of("openai")
    chats = _of(spans, "chat")
    assert len(chats) == 3
    for chat in chats:
        assert chat["attributes"]["gen_ai.provider.name"] == "local"
        assert chat["attributes"]["gen_ai.request.model"] == "some-model"
        assert chat["attributes"]["gen_ai.usage.output_tokens"] == 5
        assert chat["status"]["status_code"] == "OK"
    assert len(_of(spans, "execute_tool")) == 4
    assert "SECRET" not in json.dumps(spans)


def test_content_is_recorded_when_the_operator_asks_for_it(spans_of: Program) -> None:
    chats = _of(spans_of("content"), "chat")
    assert all("SECRET" in json.dumps(chat["attributes"]) for chat in chats)
    assert any("SECRET" in chat["attributes"].get("gen_ai.output.messages", "") for chat in chats)
