"""Chats at the OpenAI door: what their messages become, their digests, and their form for an import."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.doors.openai.chat_bodies import CreateCompletion, conversation_of, run_of
from api.doors.openai.chat_history import ChatDigest, past_of
from api.routes.runs.past_messages import checked_messages

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def body_of(*messages: Any, **fields: Any) -> CreateCompletion:
    """Return a request."""
    return CreateCompletion.model_validate({"model": "nova", "messages": messages, **fields})


def said(role: str, content: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": content, **fields}


def call(call_id: str, arguments: str = "{}", name: str = "ask") -> dict[str, Any]:
    """Return a call of a function."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def digest_of(*messages: Any) -> str:
    """Return the digest of messages."""
    chat = conversation_of(body_of(*messages))
    return ChatDigest(("key",), [*chat.past, *chat.message, *chat.results]).digest()


def test_images_files_and_options_are_those_of_a_run() -> None:
    body = body_of(
        said("developer", [{"type": "text", "text": "Be brief."}]),
        said(
            "user",
            [
                {"type": "text", "text": "What is it?", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": " "},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "auto"}},
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
            ],
        ),
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "a", "strict": True, "schema": {"type": "array"}},
        },
        tools=[{"type": "function", "function": {"name": "ask", "description": "Ask.", "strict": True}}],
        tool_choice={"type": "function", "function": {"name": "ask"}},
        max_tokens=7,
        metadata={"a": "b"},
        stop=[],
        n=1,
        logprobs=False,
        logit_bias={"1": 2},
        frequency_penalty=0.5,
        parallel_tool_calls=False,
    )
    run = run_of(body, conversation_of(body))
    assert [block["type"] for block in run.message if not isinstance(block, str)] == [
        "text",
        "image",
        "image",
        "document",
    ]
    assert (run.instructions, run.max_output_tokens, run.metadata) == ("Be brief.", 7, {"a": "b"})
    assert (run.output_schema, run.client_tools[0].input_schema) == ({"type": "array"}, {"type": "object"})
    assert run.tool_choice is not None
    assert (run.agent_id, run.ephemeral) == ("nova", True)


def test_what_front_ends_change_of_a_chat_is_not_in_its_digest() -> None:
    plain = digest_of(said("user", "hello"), said("assistant", "Hi!\n\nThere."), said("user", "on"))
    assert plain == digest_of(
        said("system", "It is noon."),
        said("user", [{"type": "text", "text": "hello "}]),
        said("assistant", "\nHi!\r\n\r\nThere.", reasoning_content="hm", refusal=None, annotations=[]),
        said("user", "on", name="ann"),
    )
    others = {
        digest_of(said("user", "hello"), said("assistant", "Hi!"), said("user", "There.on")),
        digest_of(said("user", "hello"), said("user", "on")),
        digest_of(said("user", [{"type": "text", "text": "hello"}] * 2), said("assistant", "Hi!"), said("user", "on")),
        plain,
    }
    assert len(others) == 4
    assert ChatDigest(("a",)).digest() != ChatDigest(("b",)).digest()
    assert ChatDigest(("a", None)).digest() != ChatDigest((None, "a")).digest()


def test_the_digest_with_an_answer_is_that_of_the_chat_that_has_it() -> None:
    for answer in ("Hi!", " Hi!\n", ""):
        before = ChatDigest((), conversation_of(body_of(said("user", "hello"))).message)
        past = conversation_of(body_of(said("user", "hello"), said("assistant", answer), said("user", "on"))).past
        assert before.with_answer(answer) == ChatDigest((), past).digest()


_USER, _ANSWER = said("user", "a"), said("assistant", "b")
_CALLING = said("assistant", None, tool_calls=[call("c1")])
_ODD_CALL = said("assistant", None, tool_calls=[call("c 1", "no json", "my tool")])
_PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ([said("assistant", "Welcome.")], "user assistant"),
        ([_USER, _ODD_CALL, said("tool", "x", tool_call_id="c 1"), _ANSWER], "user assistant user assistant"),
        ([_USER, said("assistant", "b", tool_calls=[call("c1")])], "user assistant"),
        ([_USER, _CALLING, said("tool", "x", tool_call_id="c1")], "user assistant user"),
        ([_USER, said("tool", "x", tool_call_id="c1"), _ANSWER], "user assistant"),
        ([_USER, said("assistant", ""), said("user", "c"), _ANSWER], "user user assistant"),
        ([_USER, said("assistant", [_PICTURE, {"type": "text", "text": "b"}])], "user assistant"),
    ],
)
def test_chats_of_other_services_are_imported(messages: list[Any], roles: str) -> None:
    past = past_of(conversation_of(body_of(*messages, said("user", "on"))).past)
    assert " ".join(message.role for message in past) == roles
    checked_messages(past, max_chars=1000, now=datetime.now(UTC))


_TEXTS = st.sampled_from(["", " ", "a", "b\n"])
_IDS = st.sampled_from(["c1", "c2", "with space", "c" * 200])
_MESSAGES = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": _TEXTS}),
    st.fixed_dictionaries(
        {
            "role": st.just("assistant"),
            "content": _TEXTS,
            "tool_calls": st.lists(_IDS.map(call), max_size=3),
        }
    ),
    st.fixed_dictionaries({"role": st.just("tool"), "content": _TEXTS, "tool_call_id": _IDS}),
)


@given(st.lists(_MESSAGES, max_size=8))
@settings(max_examples=100, deadline=None)
def test_whatever_was_said_before_in_a_chat_is_imported(messages: list[Any]) -> None:
    # A message of the assistant keeps results of calls out of what is new.
    chat = conversation_of(body_of(*messages, _ANSWER, said("user", "on")))
    past = past_of(chat.past)
    assert past[0].role == "user"
    checked_messages(past, max_chars=1000, now=datetime.now(UTC))
