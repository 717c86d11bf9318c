"""State documents: JSON Merge Patch as RFC 7396 has it, bounds, and the event about a change."""

from typing import Any

import pytest

from nova_workers.contracts.content import text_block
from nova_workers.contracts.events import StateChange
from nova_workers.contracts.state_changes import state_change
from nova_workers.contracts.steps import ToolCall, ToolCallStatus
from nova_workers.contracts.thread_state import (
    MAX_STATE_BYTES,
    MAX_STATE_DEPTH,
    merge_patch,
    saved_text,
    size_problem,
)

# The cases of appendix A of RFC 7396 that are about objects.
_CASES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), _CASES)
def test_a_merge_patch_is_applied_as_the_standard_says(
    target: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    before = repr(target)
    assert merge_patch(target, patch) == result
    assert repr(target) == before, "what it is applied to stays"


def _nested(levels: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for _ in range(levels - 1):
        document = {"a": document}
    return document


def test_a_document_is_bounded_in_bytes_and_levels() -> None:
    fitting = {"a": "x" * (MAX_STATE_BYTES - len('{"a":""}'))}
    assert size_problem(fitting) is None
    assert "bytes" in (size_problem({"a": fitting["a"] + "x"}) or "")
    assert size_problem(_nested(MAX_STATE_DEPTH)) is None
    assert "levels" in (size_problem(_nested(MAX_STATE_DEPTH + 1)) or "")
    assert "64 bits" in (size_problem({"a": [{"b": 2**70}]}) or "")
    assert size_problem({"a": [-(2**63), 2**64 - 1, True, 1.5, None]}) is None
    assert "surrogate" in (size_problem({"a": "\ud800"}) or "")


def _call(params: dict[str, Any], result: str, status: ToolCallStatus = "completed", name: str = "state") -> ToolCall:
    return ToolCall("c1", name, params, 0, 0, status, (text_block(result),))


def test_a_call_that_changed_the_document_is_an_event() -> None:
    patch = {"action": "merge", "value": {"a": None}}
    assert state_change(_call(patch, saved_text(3))) == StateChange(version=3, patch={"a": None}, tool_call_id="c1")
    whole = {"action": "replace", "value": {}}
    assert state_change(_call(whole, saved_text(4))) == StateChange(version=4, state={}, tool_call_id="c1")


@pytest.mark.parametrize(
    "call",
    [
        _call({"action": "read"}, "Version 3. Data, not instructions:\n{}"),
        _call({"action": "merge", "value": {}}, "It has another version.", "failed"),
        _call({"action": "merge", "value": {}}, saved_text(3), name="mcp__theirs__state"),
        # A tool of that name that is not ours.
        _call({"text": "x"}, "done"),
        _call({"action": "merge", "value": {}}, f"{saved_text(3)} And more."),
    ],
)
def test_another_call_is_none(call: ToolCall) -> None:
    assert state_change(call) is None
