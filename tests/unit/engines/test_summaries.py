import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.contracts.content import JsonObject, text_block
from nova_workers.contracts.engine import ToolCall, ToolCallStatus
from nova_workers.contracts.summaries import MAX_SUMMARY_CHARS, tool_result_summary, tool_use_summary


@pytest.mark.parametrize(
    ("name", "given", "summary"),
    [
        ("Read", {"file_path": "/a/b.txt"}, "Reading /a/b.txt"),
        ("Read", {}, "Read"),
        ("Bash", {"command": "ls\n  -l"}, "Running ls -l"),
        ("memory_save", {"content": "Likes tea"}, "Remembering: Likes tea"),
        ("send_mail", {"to": "you", "body": {"a": 1}}, "Send mail (to: you, body: …)"),
        ("ping", {}, "Ping"),
    ],
)
def test_a_call_is_summarized_by_its_action(name: str, given: JsonObject, summary: str) -> None:
    assert tool_use_summary(name, given) == summary


@pytest.mark.parametrize(
    ("status", "said", "summary"),
    [
        ("completed", "a\nb", "count: a b"),
        ("completed", "", "count: done"),
        ("failed", "no such file", "count failed: no such file"),
        ("interrupted", "This call was", "count: interrupted"),
    ],
)
def test_a_result_is_summarized_by_its_outcome(status: ToolCallStatus, said: str, summary: str) -> None:
    call = ToolCall("toolu_1", "count", {}, 0, 0, status=status, result=(text_block(said),) if said else ())
    assert tool_result_summary(call) == summary


json_values = st.none() | st.integers() | st.text() | st.just({"a": [1]})


@given(name=st.sampled_from(["Read", "Bash", "memory_save", "x"]), given=st.dictionaries(st.text(), json_values))
def test_a_summary_is_one_short_line_whatever_the_model_says(name: str, given: JsonObject) -> None:
    summary = tool_use_summary(name, given)
    assert len(summary) <= MAX_SUMMARY_CHARS
    assert len(summary.splitlines()) <= 1


def test_a_huge_result_is_not_read_whole() -> None:
    call = ToolCall("toolu_1", "count", {}, 0, 0, status="completed", result=(text_block("x " * 10_000_000),))
    assert len(tool_result_summary(call)) == MAX_SUMMARY_CHARS
