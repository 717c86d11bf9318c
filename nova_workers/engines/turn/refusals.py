"""What to do when a provider refuses a request because of the conversation.

If the provider names the block, or its kind, a note replaces it. If it names nothing, the same request is sent once
more; if that is refused too, results of tools and attachments are left out in trials, the newest first, each trial
without others than the one before. What was left out of the request that the provider accepts stays out; if it accepts
none, nothing does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson

from nova_workers.contracts.content import ContentBlock, Message, text_block
from nova_workers.contracts.refusals import REPLACEABLE, LeftOut, is_note, note_for
from nova_workers.engines.turn.seam import BlockPlace, ContentRefused

_MEDIA = frozenset({"image", "document"})
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_MAX_NAMED = 20
"""Limit of named blocks replaced for one response. Each costs a refused request, which the provider does not charge."""
_GROUPS = (1, 1, 2, 4, 8)
"""How many results and attachments each trial leaves out. One is enough in nearly all cases, and few requests reach as
far back as the calls of most steps."""
_MAX_LEFT_OUT = 64
"""Most that the last trial leaves out."""


@dataclass(frozen=True, slots=True)
class _Replacement:
    """A block of the conversation, and what is said in its place."""

    place: BlockPlace
    left_out: LeftOut


class Refusals:
    """The refusals of the requests for one response."""

    def __init__(self, conversation: list[Message]) -> None:
        self.messages = conversation
        """What to request next: the conversation, in which a named block is replaced at once, or a copy for a trial."""
        self.first: ContentRefused | None = None
        """The refusal of the request before the trials, which is the turn's error if they do not help."""
        self._conversation = conversation
        self._named = 0
        self._trials: Iterator[Sequence[_Replacement]] = iter(())
        self._trial: Sequence[_Replacement] = ()

    def resolve(self, refusal: ContentRefused) -> tuple[LeftOut, ...] | None:
        """Prepare the next request.

        Returns:
            What stays out of it and all later ones; None if no other request is worth an attempt.
        """
        if self.first is None and refusal.named and self._named < _MAX_NAMED:
            named = _named(self._conversation, refusal)
            if named is not None:
                self._named += 1
                self._conversation[:] = _without(self._conversation, (named,))
                return (named.left_out,)
        return () if self._try_next(refusal) else None

    def accept(self) -> tuple[LeftOut, ...]:
        """Note that the provider accepted the request, and return what its trial left out, which stays out."""
        left_out = tuple(each.left_out for each in self._trial)
        if left_out:
            self._conversation[:] = self.messages
        self.messages, self._trial = self._conversation, ()
        return left_out

    def _try_next(self, refusal: ContentRefused) -> bool:
        if self.first is None:
            candidates = _candidates(self._conversation, refusal)
            self.first = refusal
            self._trials = _largest(candidates) if refusal.too_large else _newest_first(candidates)
            # The whole request once more; with nothing to leave out, that would be pointless.
            return bool(candidates)
        self._trial = next(self._trials, ())
        self.messages = _without(self._conversation, self._trial)
        return bool(self._trial)


def _newest_first(candidates: Sequence[_Replacement]) -> Iterator[Sequence[_Replacement]]:
    start = 0
    for size in _GROUPS:
        if group := candidates[start : start + size]:
            yield group
        start += size
    if len(candidates) > 1:
        yield candidates[:_MAX_LEFT_OUT]


def _largest(candidates: Sequence[_Replacement]) -> Iterator[Sequence[_Replacement]]:
    """Yield the newest of what makes a request too large; then the largest half; then all."""
    yield candidates[:1]
    by_size = sorted(candidates, key=lambda each: _size(each.left_out.block), reverse=True)
    half = sum(_size(each.left_out.block) for each in candidates) / 2
    chosen: list[_Replacement] = []
    while by_size and sum(_size(each.left_out.block) for each in chosen) < half:
        chosen.append(by_size.pop(0))
    if len(chosen) > 1:
        yield chosen
    if len(candidates) > 1:
        yield candidates


def _candidates(conversation: Sequence[Message], refusal: ContentRefused) -> list[_Replacement]:
    """Return results and attachments, the newest first.

    Of a request that is too large for its server, only those with images and documents: a conversation whose text is
    too long is compacted.
    """
    names = _call_names(conversation)
    return [
        _replacement(conversation, place, refusal.message, names)
        for place, block in _blocks(conversation)
        if place.part is None and _can_go(block) and (_has_media(block) or not refusal.too_large)
    ]


def _can_go(block: ContentBlock) -> bool:
    if block.get("type") != "tool_result":
        return block.get("type") in REPLACEABLE and block.get("type") not in _THOUGHTS
    parts = block.get("content") or ()
    return bool(parts) and (isinstance(parts, str) or not all(map(is_note, parts)))


def _has_media(block: ContentBlock) -> bool:
    return block.get("type") in _MEDIA or any(part.get("type") in _MEDIA for part in _parts(block))


def _named(conversation: Sequence[Message], refusal: ContentRefused) -> _Replacement | None:
    """Return the block that the provider names.

    If it only says that it is an image or a document, it is the newest one, or the newest of the kind that the provider
    names: older ones were in requests that the provider accepted.
    """
    place = refusal.place
    if place is None:
        kinds = _MEDIA if refusal.media is None else {refusal.media}
        place = next((place for place, block in _blocks(conversation) if block.get("type") in kinds), None)
    block = next((block for at, block in _blocks(conversation) if at == place), None)
    if place is None or block is None or is_note(block):
        return None
    is_of_tool = place.part is not None or block.get("type") == "tool_result"
    if not is_of_tool and block.get("type") not in REPLACEABLE:
        return None
    return _replacement(conversation, place, refusal.message, _call_names(conversation))


def _replacement(
    conversation: Sequence[Message], place: BlockPlace, reason: str, names: Mapping[str, str]
) -> _Replacement:
    block = conversation[place.message].content[place.block]
    if block.get("type") != "tool_result":
        return _Replacement(place, LeftOut(block, note_for(block, reason)))
    call_id = str(block["tool_use_id"])
    refused = block if place.part is None else _parts(block)[place.part]
    about = f"It was {'' if place.part is None else 'in '}the result of {names.get(call_id, 'a tool')}. "
    return _Replacement(place, LeftOut(refused, note_for(refused, reason, about), call_id, place.part))


def _without(conversation: Sequence[Message], replacements: Sequence[_Replacement]) -> list[Message]:
    """Return the conversation with notes in the places of blocks."""
    messages = list(conversation)
    for each in replacements:
        place, note = each.place, text_block(each.left_out.note)
        content = list(messages[place.message].content)
        block = content[place.block]
        if block.get("type") != "tool_result":
            content[place.block] = note
        elif place.part is None:
            content[place.block] = {**block, "content": [note]}
        else:
            parts = list(_parts(block))
            parts[place.part] = note
            content[place.block] = {**block, "content": parts}
        messages[place.message] = Message(messages[place.message].role, tuple(content))
    return messages


def _blocks(conversation: Sequence[Message]) -> Iterator[tuple[BlockPlace, ContentBlock]]:
    """Yield all blocks, the newest first, and those in a result before the result itself."""
    for message in reversed(range(len(conversation))):
        content = conversation[message].content
        for number in reversed(range(len(content))):
            parts = _parts(content[number])
            for part in reversed(range(len(parts))):
                yield BlockPlace(message, number, part), parts[part]
            yield BlockPlace(message, number), content[number]


def _parts(block: ContentBlock) -> Sequence[ContentBlock]:
    inner = block.get("content")
    return inner if block.get("type") == "tool_result" and isinstance(inner, list | tuple) else ()


def _call_names(conversation: Sequence[Message]) -> dict[str, str]:
    return {
        str(block.get("id")): str(block.get("name"))
        for message in conversation
        for block in message.content
        if block.get("type") == "tool_use"
    }


def _size(block: ContentBlock) -> int:
    return len(orjson.dumps(block))
