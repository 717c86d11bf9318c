"""Spans of model calls and tool calls: one each, with the attributes of the conventions, and without content."""

import json
import subprocess
import sys
from typing import Any

import pytest

Json = dict[str, Any]


def _spans(*arguments: str) -> list[Json]:
    command = (sys.executable, "-m", "tests.support.processes.print_turn_spans", *arguments)
    ended = subprocess.run(command, check=True, capture_output=True, timeout=280)
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def spans() -> list[Json]:
    return _spans()


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


def test_model_calls_of_the_engine_openai_have_such_spans_too() -> None:
    spans = _spans("openai")
    chats = _of(spans, "chat")
    assert len(chats) == 3
    for chat in chats:
        assert chat["attributes"]["gen_ai.provider.name"] == "local"
        assert chat["attributes"]["gen_ai.request.model"] == "some-model"
        assert chat["attributes"]["gen_ai.usage.output_tokens"] == 5
        assert chat["status"]["status_code"] == "OK"
    assert len(_of(spans, "execute_tool")) == 4
    assert "SECRET" not in json.dumps(spans)


def test_content_is_recorded_when_the_operator_asks_for_it() -> None:
    chats = _of(_spans("content"), "chat")
    assert all("SECRET" in json.dumps(chat["attributes"]) for chat in chats)
    assert any("SECRET" in chat["attributes"].get("gen_ai.output.messages", "") for chat in chats)
