"""A conversation with more images than providers take goes on without the oldest, and its requests begin alike."""

from __future__ import annotations

from unittest.mock import Mock

from nova_workers.contracts.content import ContentBlock, Message, text_block
from nova_workers.engines.turn.crowding import MediaLimit, without_oldest_media
from nova_workers.engines.turn.intake import UsedIds
from tests.requirements import proves


def _image(number: int, size: int = 4) -> ContentBlock:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": f"{number:0{size}}"}}


def _conversation(count: int) -> list[Message]:
    messages: list[Message] = []
    for number in range(count):
        block = _image(number)
        if number % 2:
            block = {"type": "tool_result", "tool_use_id": f"t{number}", "content": [text_block("seen"), block]}
        messages += [Message("user", (block,)), Message("assistant", (text_block("ok"),))]
    return messages


def _numbers(messages: list[Message]) -> list[int]:
    blocks = [block for message in messages for block in message.content]
    parts = [part for block in blocks for part in (block.get("content") or (block,))]
    return [int(part["source"]["data"]) for part in parts if part.get("type") == "image"]


@proves("engine.many-images")
def test_the_oldest_are_left_out_in_groups() -> None:
    same = changed = 0
    before: list[Message] = []
    for count in range(1, 40):
        now = without_oldest_media(_conversation(count), most=10)
        kept = _numbers(now)
        assert kept == list(range(count - len(kept), count))
        assert min(count, 5) <= len(kept) <= 10
        same += now[: len(before)] == before
        changed += now[: len(before)] != before
        before = now
    assert (same, changed) == (34, 5)


@proves("engine.many-images")
def test_bytes_count_too_and_the_newest_stays() -> None:
    messages = [Message("user", (_image(number, size=40),)) for number in range(3)]
    assert _numbers(without_oldest_media(messages, most_chars=100)) == [2]
    assert _numbers(without_oldest_media(messages[:1], most_chars=10)) == [0]
    assert without_oldest_media(messages) is messages


@proves("engine.many-images")
def test_a_conversation_that_grows_is_limited_as_one_that_is_read_at_once() -> None:
    limit = MediaLimit()
    conversation: list[Message] = []
    for message in _conversation(230):
        conversation.append(message)
        assert limit.apply(conversation) == without_oldest_media(conversation)
    # A note in place of an image, after a provider refused it.
    conversation[0] = Message("user", (text_block("refused"),))
    assert limit.apply(conversation) == without_oldest_media(conversation)
    assert len(_numbers(limit.apply(conversation))) <= 100


def test_what_was_counted_is_not_read_again() -> None:
    call: ContentBlock = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    conversation = [Message("assistant", (call,)), Message("user", (_image(1),))]
    limit, ids = MediaLimit(), UsedIds()
    assert limit.apply(conversation) is conversation
    assert ids.of(conversation) == {"t1"}
    conversation[:] = [Mock(spec=[]), Mock(spec=[]), Message("assistant", ({**call, "id": "t2"},))]
    assert limit.apply(conversation) is conversation
    assert ids.of(conversation) == {"t1", "t2"}
