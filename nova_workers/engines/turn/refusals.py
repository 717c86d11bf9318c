"""Finds the block because of which a provider refused a request, and replaces it with a note."""

from collections.abc import Iterator, Set
from dataclasses import dataclass

from nova_workers.contracts.content import ContentBlock, Message, text_block
from nova_workers.contracts.refusals import REPLACEABLE, note_for
from nova_workers.engines.turn.seam import BlockPlace, ContentRefused

__all__ = ["LeftOut", "leave_out"]

_MEDIA = frozenset({"image", "document"})


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A block that was removed from the conversation, and the note that replaces it."""

    block: ContentBlock
    note: str


def leave_out(conversation: list[Message], refusal: ContentRefused) -> LeftOut | None:
    """Replace the refused block in `conversation`, and return it; None if there is no replaceable block.

    If the provider did not name the block, it is the newest image or document, or the newest of the kind that the
    provider named: older ones were in requests that the provider accepted.
    """
    place = refusal.place or _newest(conversation, _MEDIA if refusal.media is None else {refusal.media})
    block = None if place is None else _block_at(conversation, place)
    if place is None or block is None or block.get("type") not in REPLACEABLE:
        return None
    note = note_for(block, refusal.message)
    message = conversation[place.message]
    content = list(message.content)
    if place.part is None:
        content[place.block] = text_block(note)
    else:
        parts = list(content[place.block]["content"])
        parts[place.part] = text_block(note)
        content[place.block] = {**content[place.block], "content": parts}
    conversation[place.message] = Message(message.role, tuple(content))
    return LeftOut(block, note)


def _newest(conversation: list[Message], kinds: Set[str]) -> BlockPlace | None:
    for at in reversed(range(len(conversation))):
        places = [place for place, block in _blocks(conversation[at], at) if block.get("type") in kinds]
        if places:
            return places[-1]
    return None


def _blocks(message: Message, at: int) -> Iterator[tuple[BlockPlace, ContentBlock]]:
    for number, block in enumerate(message.content):
        yield BlockPlace(at, number), block
        inner = block.get("content")
        if block.get("type") == "tool_result" and isinstance(inner, list | tuple):
            yield from ((BlockPlace(at, number, part), each) for part, each in enumerate(inner))


def _block_at(conversation: list[Message], place: BlockPlace) -> ContentBlock | None:
    if place.message >= len(conversation):
        return None
    return next((block for at, block in _blocks(conversation[place.message], place.message) if at == place), None)
