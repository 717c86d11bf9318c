"""Leaves the oldest images and documents out of a conversation that has more of them than providers take.

Which ones follows from the conversation alone, read from its beginning: when an image is one too many, the oldest are
left out until half of the bound is free. So requests of a growing conversation begin alike until the next time, and no
image is left out and then sent again.
"""

from collections import deque
from collections.abc import Sequence

from nova_workers.contracts.content import ContentBlock, Message, text_block

_MOST = 100
"""The Messages API takes 100 images and documents in a request, with the smallest windows."""
_MOST_CHARS = 24 * 1024 * 1024
"""It takes requests of 32 MB, which have other content too."""
_MEDIA = frozenset({"image", "document"})
_NOTE = "[Left out: an older {kind}, since a conversation may have at most {most} of them, and {megabytes} MB.]"

_Place = tuple[int, int, int | None]


def without_oldest_media(
    conversation: list[Message], *, most: int = _MOST, most_chars: int = _MOST_CHARS
) -> list[Message]:
    """Return the conversation with notes instead of its oldest images and documents, or as it is if all fit."""
    kept: deque[tuple[_Place, int]] = deque()
    chars = 0
    left_out: list[_Place] = []
    for at, message in enumerate(conversation):
        for place, block in _media(at, message):
            size = _chars(block)
            kept.append((place, size))
            chars += size
            if len(kept) <= most and chars <= most_chars:
                continue
            while len(kept) > 1 and (len(kept) > most // 2 or chars > most_chars // 2):
                oldest, size = kept.popleft()
                chars -= size
                left_out.append(oldest)
    return _noted(conversation, left_out, most, most_chars) if left_out else conversation


class MediaLimit:
    """`without_oldest_media` for a conversation that grows: what was counted is not read again while all of it fits."""

    def __init__(self) -> None:
        self._read = self._count = self._chars = 0

    def apply(self, conversation: list[Message]) -> list[Message]:
        """Return the conversation, which may have notes in place of blocks that it had, but not fewer messages."""
        for message in conversation[self._read :]:
            sizes = [_chars(block) for _, block in _media(0, message)]
            self._count += len(sizes)
            self._chars += sum(sizes)
        self._read = len(conversation)
        # Notes make it smaller, so that it fits if this does.
        fits = self._count <= _MOST and self._chars <= _MOST_CHARS
        return conversation if fits else without_oldest_media(conversation)


def _media(at: int, message: Message) -> list[tuple[_Place, ContentBlock]]:
    found: list[tuple[_Place, ContentBlock]] = []
    for number, block in enumerate(message.content):
        if block.get("type") in _MEDIA:
            found.append(((at, number, None), block))
        elif block.get("type") == "tool_result":
            parts = block.get("content")
            found += [
                ((at, number, part), inner)
                for part, inner in enumerate(parts if isinstance(parts, list | tuple) else ())
                if inner.get("type") in _MEDIA
            ]
    return found


def _chars(block: ContentBlock) -> int:
    source = block.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    return len(data) if isinstance(data, str) else 0


def _noted(conversation: Sequence[Message], places: Sequence[_Place], most: int, most_chars: int) -> list[Message]:
    messages = list(conversation)
    for at, number, part in places:
        content = list(messages[at].content)
        block = content[number]
        parts = list(block["content"]) if part is not None else []
        kind = (block if part is None else parts[part]).get("type")
        note = text_block(_NOTE.format(kind=kind, most=most, megabytes=most_chars >> 20))
        if part is None:
            content[number] = note
        else:
            parts[part] = note
            content[number] = {**block, "content": parts}
        messages[at] = Message(messages[at].role, tuple(content))
    return messages
