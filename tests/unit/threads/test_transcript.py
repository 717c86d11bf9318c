"""The Messages API refuses a tool_use without its result; a stop leaves some. The repair adds what is missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nova_workers.contracts.content import ContentBlock, Message, text_block
from nova_workers.contracts.steps import NO_RESULT
from nova_workers.domain.threads.rules.transcript import repair
from tests.requirements import proves


def _uses(*ids: str) -> tuple[ContentBlock, ...]:
    return tuple({"type": "tool_use", "id": each, "name": "x", "input": {}} for each in ids)


def _results(*ids: str) -> tuple[ContentBlock, ...]:
    return tuple({"type": "tool_result", "tool_use_id": each, "content": "r"} for each in ids)


def _said(text: str) -> Message:
    return Message("user", (text_block(text),))


def test_a_valid_conversation_is_unchanged():
    messages = (_said("hi"), Message("assistant", _uses("a")), Message("user", _results("a")))
    assert repair(messages) == messages


def test_a_call_at_the_end_gets_its_result():
    repaired = repair((_said("hi"), Message("assistant", (text_block("Let me see."), *_uses("a", "b")))))
    assert [block["tool_use_id"] for block in repaired[-1].content] == ["a", "b"]
    assert {block["content"] for block in repaired[-1].content} == {NO_RESULT}
    assert all(block["is_error"] for block in repaired[-1].content)


def test_missing_results_precede_existing_ones_and_other_text():
    after = Message("user", (*_results("b"), text_block("and?")))
    (_, repaired) = repair((Message("assistant", _uses("a", "b")), after))
    assert [block.get("tool_use_id", block.get("text")) for block in repaired.content] == ["a", "b", "and?"]


def test_a_call_before_another_answer_gets_a_message_of_its_own():
    repaired = repair((Message("assistant", _uses("a")), Message("assistant", (text_block("Done."),))))
    assert [message.role for message in repaired] == ["assistant", "user", "assistant"]


def test_empty_messages_are_left_out():
    assert repair((_said("hi"), Message("assistant", ()), _said("again"))) == (_said("hi"), _said("again"))


_ids = st.lists(st.sampled_from("abcd"), unique=True, max_size=3)
_messages = st.lists(
    st.one_of(
        _ids.map(lambda ids: Message("assistant", (text_block("x"), *_uses(*ids)))),
        _ids.map(lambda ids: Message("user", _results(*ids))),
        st.just(_said("words")),
        st.just(Message("assistant", ())),
    ),
    max_size=8,
)


@given(_messages)
@proves("finish.history")
def test_after_a_repair_every_call_is_answered_next_and_a_second_repair_changes_nothing(messages: list[Message]):
    repaired = repair(messages)
    for at, message in enumerate(repaired):
        asked = [block["id"] for block in message.content if block["type"] == "tool_use"]
        if asked:
            answered = [block.get("tool_use_id") for block in repaired[at + 1].content]
            assert set(asked) <= set(answered)
    assert repair(repaired) == repaired
    words = [block for message in messages for block in message.content]
    assert [block for message in repaired for block in message.content if block.get("content") != NO_RESULT] == words
