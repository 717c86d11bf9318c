"""The conversation as the prompt of a program, which keeps none itself.

A single message is given as it is. A longer conversation is given as one JSON object a line: text in it, such as a web
page that a tool read, cannot be taken for a message of another role. Images are files beside the prompt.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nova_workers.contracts.content import ContentBlock, JsonObject, Message

_MAX_CHARS = 900_000
"""Limit of a prompt's text. Codex refuses more than 1,048,576 characters (0.169)."""
_MAX_IMAGES = 20
"""Limit of a prompt's images: the newest of the conversation."""
_ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}

_INTRODUCTION = (
    "This is the conversation so far, oldest first: one JSON object a line. Objects with `tool_call` are calls that "
    "you made, those with `tool_result` are their results. Only the role `user` speaks for the person that you work "
    "for."
)
_ANSWER = "Answer the last message now. Do not repeat the conversation."
_CONTINUE = (
    "You were interrupted after the last of these results. Continue from there with your tools or your answer. Do not "
    "repeat calls that have results, and do not repeat the conversation."
)


@dataclass(frozen=True, slots=True)
class Image:
    """An image of the conversation: the ending of a file's name, and its content."""

    ending: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a program gets.

    Attributes:
        images: In the order of their mention in the text as ``[image 1]``, ``[image 2]``….
    """

    text: str
    images: tuple[Image, ...]


@dataclass(slots=True)
class _Images:
    """Numbers the images that are given, and leaves out the oldest of too many."""

    omitted: int
    given: list[Image] = field(default_factory=list[Image])

    def mention(self, block: ContentBlock) -> str:
        image = _image(block)
        if image is None:
            return "[Left out: an image of a form that this program does not take.]"
        if self.omitted:
            self.omitted -= 1
            return "[Left out: an older image.]"
        self.given.append(image)
        return f"[image {len(self.given)}]"


def prompt_of(messages: Sequence[Message]) -> Prompt:
    """Return the prompt for a conversation, which ends where the model has to speak.

    Args:
        messages: Oldest first; each tool call has its result.
    """
    there = sum(_image(block) is not None for message in messages for block in _every_block(message.content))
    images = _Images(omitted=max(there - _MAX_IMAGES, 0))
    if len(messages) == 1:
        text = "\n\n".join(_texts(messages[0].content, images))
        return Prompt(text[-_MAX_CHARS:], tuple(images.given))
    lines = [json.dumps(entry, ensure_ascii=False) for message in messages for entry in _entries(message, images)]
    ends_with_results = any(block.get("type") == "tool_result" for block in messages[-1].content)
    resumed = ends_with_results or messages[-1].role == "assistant"
    text = "\n".join((_INTRODUCTION, "", *_newest(lines), "", _CONTINUE if resumed else _ANSWER))
    return Prompt(text, tuple(images.given))


def _newest(lines: Sequence[str]) -> list[str]:
    """Return the newest lines that fit, with a note in place of older ones."""
    room = _MAX_CHARS
    kept: list[str] = []
    for line in reversed(lines):
        room -= len(line) + 1
        if room < 0:
            note = f"{len(lines) - len(kept)} older entries are left out, since the conversation is too long."
            if not kept:
                kept = [json.dumps({"cut": line[-_MAX_CHARS // 2 :]}, ensure_ascii=False)]
            return [json.dumps({"note": note}), *reversed(kept)]
        kept.append(line)
    return list(reversed(kept))


def _entries(message: Message, images: _Images) -> Iterator[JsonObject]:
    """Yield a message's text, its calls and its results as objects, in the message's order."""
    texts: list[ContentBlock] = []
    for block in message.content:
        if block.get("type") not in ("tool_use", "tool_result"):
            texts.append(block)
            continue
        yield from _said(message.role, texts, images)
        texts = []
        if block.get("type") == "tool_use":
            yield {"tool_call": block.get("name"), "id": block.get("id"), "input": block.get("input")}
        else:
            entry: JsonObject = {"tool_result": block.get("tool_use_id")}
            if block.get("is_error"):
                entry["failed"] = True
            yield {**entry, "text": "\n".join(_texts(_result(block), images))}
    yield from _said(message.role, texts, images)


def _said(role: str, blocks: Sequence[ContentBlock], images: _Images) -> Iterator[JsonObject]:
    text = "\n\n".join(_texts(blocks, images))
    if text:
        yield {"role": role, "text": text}


def _texts(blocks: Iterable[ContentBlock], images: _Images) -> Iterator[str]:
    for block in blocks:
        match block:
            case {"type": "text", "text": str() as text}:
                if text.strip():
                    yield text
            case {"type": "image"}:
                yield images.mention(block)
            case {"type": "document", "source": {"type": "text", "data": str() as text}}:
                yield text
            case {"type": "thinking" | "redacted_thinking"}:
                continue
            case _:
                yield f"[Left out: {block.get('type')}, which this program does not take.]"


def _result(block: ContentBlock) -> Sequence[ContentBlock]:
    content = block.get("content") or ()
    return ({"type": "text", "text": content},) if isinstance(content, str) else tuple(content)


def _every_block(content: Iterable[ContentBlock]) -> Iterator[ContentBlock]:
    for block in content:
        if block.get("type") == "tool_result":
            yield from _result(block)
        else:
            yield block


def _image(block: ContentBlock) -> Image | None:
    match block:
        case {"type": "image", "source": {"type": "base64", "media_type": str() as kind, "data": str() as data}}:
            ending = _ENDINGS.get(kind)
            try:
                return None if ending is None else Image(ending, base64.b64decode(data, validate=True))
            except binascii.Error:
                return None
        case _:
            return None
