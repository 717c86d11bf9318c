"""Messages of an imported conversation: what is refused, with the index of the message, and how turns are cut."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from api.routes.runs.past_messages import checked_messages
from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import PastMessage
from nova_workers.domain.threads.rules.past import turns_of
from tests.requirements import proves

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
ASK = {"role": "user", "content": "Which files are there?"}
TEXT = {"type": "text", "text": "a.txt"}


def _call(call_id: str = "c1", **other: Any) -> JsonObject:
    return {"type": "tool_use", "id": call_id, "name": "list_files", "input": {"path": "."}, **other}


def _calls(*blocks: JsonObject) -> JsonObject:
    return {"role": "assistant", "content": list(blocks)}


def _result(call_id: str = "c1", **other: Any) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [TEXT], **other}


def _user(*blocks: JsonObject) -> JsonObject:
    return {"role": "user", "content": list(blocks)}


def _at(minutes: int, role: str = "user") -> JsonObject:
    return {"role": role, "content": "hello", "created_at": (NOW - timedelta(minutes=minutes)).isoformat()}


def _checked(messages: list[JsonObject]) -> Any:
    parsed = [PastMessage.model_validate(message) for message in messages]
    return checked_messages(parsed, max_chars=100, now=NOW)


_REFUSED: dict[str, tuple[list[JsonObject], str, str]] = {
    "begins with the assistant": ([{"role": "assistant", "content": "Hi"}], "messages.0.role", "Leave it out"),
    "blank": ([ASK, {"role": "assistant", "content": " "}], "messages.1.content.0", "empty or blank"),
    "too long": ([ASK, {"role": "assistant", "content": "x" * 101}], "messages.1.content", "101 characters"),
    "call without a result": ([ASK, _calls(_call())], "messages.1.content", "of messages.1 has no result"),
    "result too late": (
        [ASK, _calls(_call()), {"role": "user", "content": "Well?"}, _user(_result())],
        "messages.1.content",
        "Give it a 'tool_result' block in messages.2",
    ),
    "one of two results": ([ASK, _calls(_call(), _call("c2")), _user(_result())], "messages.1.content", "'c2'"),
    "result without a call": ([ASK, _user(_result())], "messages.1.content.0.tool_use_id", "leave it out"),
    "two results of a call": (
        [ASK, _calls(_call()), _user(_result(), _result())],
        "messages.2.content.1.tool_use_id",
        "no call without a result",
    ),
    "result after text": ([ASK, _calls(_call()), _user(TEXT, _result())], "messages.2.content.1", "first"),
    "result of the assistant": ([ASK, _calls(_result())], "messages.1.content.0", "role 'user'"),
    "call of the user": ([ASK, _user(_call())], "messages.1.content.0", "role 'assistant'"),
    "id of an earlier call": (
        [ASK, _calls(_call()), _user(_result()), _calls(_call()), _user(_result())],
        "messages.3.content.0.id",
        "as that of a call of messages.1",
    ),
    "unfit name": ([ASK, _calls(_call(name="list files"))], "messages.1.content.0.name", "Rename it"),
    "unfit id": ([ASK, _calls(_call(id=7))], "messages.1.content.0.id", "Rename it"),
    "arguments as text": ([ASK, _calls(_call(input="{}"))], "messages.1.content.0.input", "must be an object"),
    "unknown field of a call": ([ASK, _calls(_call(index=0))], "messages.1.content.0.index", "it takes"),
    "odd result": (
        [ASK, _calls(_call()), _user(_result(content=7))],
        "messages.2.content.0.content",
        "a list of content blocks",
    ),
    "odd flag": (
        [ASK, _calls(_call()), _user(_result(is_error="no"))],
        "messages.2.content.0.is_error",
        "true or false",
    ),
    "odd block of a result": (
        [ASK, _calls(_call()), _user(_result(content=[{"type": "audio"}]))],
        "messages.2.content.0.content.0.type",
        "'text', 'image'",
    ),
    "thinking": ([ASK, _calls({"type": "thinking", "thinking": "hm"})], "messages.1.content.0", "Leave it out"),
    "image of the assistant": (
        [ASK, _calls({"type": "image", "source": {"type": "url", "url": "https://e.org/a.png"}})],
        "messages.1.content.0.type",
        "'text' and 'tool_use'",
    ),
    "broken image": (
        [_user(TEXT, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}})],
        "messages.0.content.1.source.data",
        "its content is something else",
    ),
    "out of order": ([_at(5), _at(6)], "messages.1.created_at", "oldest first"),
    "in the future": ([_at(5), _at(-10)], "messages.1.created_at", "has not come yet"),
}


@pytest.mark.parametrize("case", _REFUSED)
@proves("threads.imported-whole")
def test_a_message_that_cannot_be_imported_is_named_with_what_to_do(case: str) -> None:
    messages, field, advice = _REFUSED[case]
    with pytest.raises(InvalidInput, match=re.escape(advice)) as refused:
        _checked(messages)
    assert refused.value.fields["field"] == field
    assert ".".join(field.split(".")[:2]) in refused.value.message


@pytest.mark.parametrize("role", ["system", "tool", "developer", "narrator"])
def test_another_role_is_refused_with_what_to_do(role: str) -> None:
    with pytest.raises(ValidationError, match="tool_result" if role == "tool" else "leave it out|'assistant'"):
        PastMessage.model_validate({"role": role, "content": "x"})


def test_turns_begin_with_the_user_and_have_a_step_for_each_response() -> None:
    turns = turns_of(
        _checked(
            [
                ASK,
                _calls(TEXT, _call(), _call("c2")),
                _user(_result("c2", content="", is_error=True), _result(), {"type": "text", "text": "And hurry."}),
                {"role": "assistant", "content": "There is a.txt."},
                {"role": "assistant", "content": "Anything else?"},
                {"role": "user", "content": "No."},
                {"role": "user", "content": "Thanks."},
            ]
        )
    )
    shape = [[(each.seq, each.step, each.kind) for each in turn.messages] for turn in turns]
    assert shape == [
        [
            (0, None, "query"),
            (1, 0, "response"),
            (2, 0, "tool_results"),
            (3, 0, "steering"),
            (4, 1, "response"),
            (5, 2, "response"),
        ],
        [(0, None, "query")],
        [(0, None, "query")],
    ]
    assert [(turn.depth, turn.steps) for turn in turns] == [(0, 3), (1, 0), (2, 0)]
    assert [(each.call_id, each.sequence, each.failed, each.result) for each in turns[0].calls] == [
        ("c1", 0, False, [TEXT]),
        ("c2", 1, True, []),
    ]
    # Of the conversation so far: a fork may begin at any of them.
    sizes = [turn.context_tokens for turn in turns]
    assert sizes == sorted(sizes)
    assert sizes[0] > 50


def test_a_message_without_a_time_is_as_old_as_the_one_before() -> None:
    said = _checked([ASK, _at(9), _at(7, "assistant"), ASK, _at(7)])
    assert [round((NOW - each.said_at).total_seconds() / 60) for each in said] == [9, 9, 7, 7, 7]
    assert {each.said_at for each in _checked([ASK, ASK])} == {NOW}


@proves("code.steps")
def test_no_call_of_an_imported_conversation_is_a_step_of_durable_code() -> None:
    call = _call(name="Step", input={"name": "graph", "nodes": []})
    (turn,) = turns_of(_checked([ASK, _calls(call), _user(_result())]))
    assert [made.tool_name for made in turn.calls] == ["imported_Step"]
    assert [block["name"] for block in turn.messages[1].content] == ["imported_Step"]
