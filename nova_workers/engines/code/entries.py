"""What the function of an agent gets of its run: the steps of the journal, and the conversation before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from nova_workers.base.observability.redaction import current_redactor
from nova_workers.contracts.content import ContentBlock, Message, text_of
from nova_workers.contracts.native import CODE_STEP
from nova_workers.contracts.user_agents import Finished, JournalEntry, Operation, SpokenMessage

_MAX_CHUNK_CHARS = 1_000_000
"""The size of a message to the process. One step may be larger, as its results may be."""
_SPOKEN: Final = frozenset({"text", "image", "document"})

_Part = TypeVar("_Part")


def entries_of(messages: Iterable[Message]) -> tuple[JournalEntry, ...]:
    """Return the steps that messages of a turn are, from its first step on.

    Without secrets, also in the attempt that made them: so the function gets the same in each.
    """
    redactor = current_redactor()
    found: list[JournalEntry] = []
    calls: list[ContentBlock] = []
    said = ""
    for message in messages:
        content = message.content if redactor is None else tuple(redactor.json(message.content))
        if message.role == "assistant":
            calls, said = _calls(content), text_of(content)
        elif calls:
            results = _results(content)
            finished = tuple(_finished(call, results.get(call["id"], {})) for call in calls)
            found.append(JournalEntry(finished=finished, text=said))
            calls = []
        elif found:
            found[-1] = found[-1].model_copy(update={"joined": (*found[-1].joined, content)})
    return tuple(found)


def earlier_steps(history: Iterable[Message], name: str) -> tuple[Finished, ...]:
    """Return the steps with this name that ended well in the turns before, oldest first."""
    found: list[Finished] = []
    calls: list[ContentBlock] = []
    for message in history:
        if message.role == "assistant":
            calls = [call for call in _calls(message.content) if call["name"] == CODE_STEP]
        elif calls:
            results = _results(message.content)
            finished = (_finished(call, results.get(call["id"], {})) for call in calls)
            found += (each for each in finished if not each.failed and each.operation.input.get("name") == name)
            calls = []
    return tuple(found)


def _calls(content: Iterable[ContentBlock]) -> list[ContentBlock]:
    return [block for block in content if block.get("type") == "tool_use"]


def _results(content: Iterable[ContentBlock]) -> dict[str, ContentBlock]:
    return {str(block.get("tool_use_id")): block for block in content if block.get("type") == "tool_result"}


def _finished(call: ContentBlock, result: ContentBlock) -> Finished:
    return Finished(
        operation=Operation(name=call["name"], input=call["input"]),
        text=text_of(tuple(result.get("content") or ())),
        failed=bool(result.get("is_error")),
    )


def spoken(history: Iterable[Message]) -> tuple[SpokenMessage, ...]:
    """Return a conversation as people have it; what one side said in a row is one message."""
    found: list[SpokenMessage] = []
    for message in history:
        content = tuple(block for block in message.content if block.get("type") in _SPOKEN)
        if not content or message.role == "system":
            continue
        if found and found[-1].role == message.role:
            content = (*found.pop().content, *content)
        found.append(SpokenMessage(role=message.role, content=content))
    return tuple(found)


def size_of_entry(entry: JournalEntry) -> int:
    """Return the characters that count."""
    return sum(map(size_of_step, entry.finished))


def size_of_step(step: Finished) -> int:
    """Return the characters that count."""
    return len(step.text)


def size_of_message(message: SpokenMessage) -> int:
    """Return the characters that count."""
    return sum(len(str(block)) for block in message.content)


def in_chunks(parts: Sequence[_Part], size_of: Callable[[_Part], int]) -> Iterator[tuple[tuple[_Part, ...], bool]]:
    """Yield parts in bounded pieces, each with whether more follow. At least one piece."""
    chunk: list[_Part] = []
    size = 0
    for part in parts:
        length = size_of(part)
        if chunk and size + length > _MAX_CHUNK_CHARS:
            yield tuple(chunk), True
            chunk, size = [], 0
        chunk.append(part)
        size += length
    yield tuple(chunk), False
