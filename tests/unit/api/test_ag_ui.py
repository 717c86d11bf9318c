"""The AG-UI door's patches of state, and conversations as a client takes them over."""

from __future__ import annotations

from typing import Any

import pytest
from ag_ui.core import AssistantMessage, Message, ToolMessage, UserMessage
from ag_ui_validate.protocol.jsonpatch import PatchOk, apply_patch
from hypothesis import given
from hypothesis import strategies as st

from api.doors.ag_ui.conversations import restated
from api.doors.ag_ui.parts import Asked, item_of, run_of
from api.doors.ag_ui.patches import json_patch
from api.doors.items import Item, MessageItem, ToolCallItem, ToolResultItem, call_item_id, result_id
from nova_workers.contracts.content import text_block

A, B = "run_01ARZ3NDEKTSV4RRFFQ69G5FAA", "run_01ARZ3NDEKTSV4RRFFQ69G5FAB"

_names = st.text(st.sampled_from("ab/~"), max_size=3)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)
_documents = st.dictionaries(_names, _values, max_size=4)


@given(_documents, _documents)
def test_a_patch_makes_one_document_of_another(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert apply_patch(before, json_patch(before, after)) == PatchOk(after)
    assert json_patch(after, after) == []


def message(run_id: str, step: int, text: str, role: Any = "assistant") -> MessageItem:
    """Return a message of a run."""
    suffix = run_id.removeprefix("run_")
    item_id = f"msg_{suffix}_{'in' if step < 0 else step}"
    return MessageItem(item_id, run_id, step, role, (text_block(text),))


def turn(run_id: str, question: str, answer: str) -> list[Item]:
    """Return the items of a run with a call of the client's tool."""
    return [
        message(run_id, -1, question, "user"),
        message(run_id, 0, "Looking."),
        ToolCallItem(call_item_id(run_id, "toolu_1"), run_id, 0, "toolu_1", "ask", {}, for_caller=True),
        ToolResultItem(
            result_id(run_id, "toolu_1"), run_id, 0, "toolu_1", "ask", "completed", (text_block("rain"),), None, True
        ),
        message(run_id, 1, answer),
    ]


def held(run_id: str, question: str, number: int) -> list[Message]:
    """Return the messages that a client has of such a run."""
    suffix = run_id.removeprefix("run_")
    return [
        UserMessage(id=f"u{number}", content=question),
        AssistantMessage(id=f"msg_{suffix}_0", content="Looking."),
        ToolMessage(id=f"t{number}", tool_call_id=call_item_id(run_id, "toolu_1"), content="rain"),
        AssistantMessage(id=f"msg_{suffix}_1", content="It rains."),
    ]


def ids(messages: list[Message] | None) -> list[str]:
    """Return the ids of a restated conversation."""
    assert messages is not None
    return [message.id for message in messages]


ITEMS = [*turn(A, "Weather?", "It rains."), *turn(B, "And there?", "It rains.")]


def test_a_client_that_has_the_conversation_is_sent_none() -> None:
    whole = [*held(A, "Weather?", 1), *held(B, "And there?", 2)]
    new = [*ITEMS, message("run_01ARZ3NDEKTSV4RRFFQ69G5FAC", -1, "New", "user")]
    assert restated(new, [*whole, UserMessage(id="u3", content="New")], whole=True) is None


def test_a_client_keeps_its_ids_before_what_it_lacks_and_gets_ours_after() -> None:
    new = [*ITEMS, message("run_01ARZ3NDEKTSV4RRFFQ69G5FAC", -1, "New", "user")]
    known = held(A, "Weather?", 1)
    found = ids(restated(new, [*known, UserMessage(id="u3", content="New")], whole=True))
    assert found[:4] == [message.id for message in known]
    assert found[4:] == [*(item.id for item in turn(B, "", "") if not isinstance(item, ToolCallItem)), new[-1].id]


def test_what_is_void_is_left_out_and_the_clients_own_words_are_not() -> None:
    greeting = AssistantMessage(id="hello", content="How can I help?")
    partial = AssistantMessage(id=f"msg_{A.removeprefix('run_')}_0.1", content="Loo")
    asked = UserMessage(id="u1", content="Weather?")
    items = [message(A, -1, "Weather?", "user")]
    assert ids(restated(items, [greeting, asked, partial], whole=True)) == ["hello", "u1"]
    assert restated(items, [greeting, asked], whole=True) is None


def test_a_part_of_the_conversation_judges_only_the_runs_that_it_has() -> None:
    whole = [*held(A, "Weather?", 1), *held(B, "And there?", 2)]
    assert restated(ITEMS[5:], whole, whole=False) is None
    assert restated(ITEMS[5:], whole, whole=True) is not None


@pytest.mark.parametrize("name", ["", "msg_1", "u1", f"call_{A}", "msg_01ARZ3NDEKTSV4RRFFQ69G5FAA_0 "])
def test_ids_of_clients_are_none_of_ours(name: str) -> None:
    assert (item_of(name), run_of(name), Asked.by_call(name), Asked.by_interrupt(name)) == (None,) * 4


def test_ids_of_ours_name_the_run() -> None:
    assert Asked.by_call(call_item_id(A, "toolu.1_x")) == (A, "toolu.1_x")
    assert run_of(result_id(A, "toolu.1_x")) == A
    suffix = A.removeprefix("run_")
    assert item_of(f"msg_{suffix}_0.2") == f"msg_{suffix}_0"
    assert item_of(f"msg_{suffix}_in") == f"msg_{suffix}_in"
