"""The steps of a turn's journal, as the function of an agent gets them again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nova_workers.base.observability.redaction import current_redactor
from nova_workers.contracts.content import ContentBlock, Message, text_of
from nova_workers.contracts.user_agents import Finished, JournalEntry, Operation

_MAX_CHUNK_CHARS = 1_000_000
"""The size of a message to the process. One step may be larger, as its results may be."""


def entries_of(messages: Iterable[Message]) -> tuple[JournalEntry, ...]:
    """Return the steps that messages of a turn are, from its first step on.

    Without secrets, also in the attempt that made them: so the function gets the same in each.
    """
    redactor = current_redactor()
    found: list[JournalEntry] = []
    calls: list[ContentBlock] = []
    for message in messages:
        content = message.content if redactor is None else tuple(redactor.json(message.content))
        if message.role == "assistant":
            calls = [block for block in content if block.get("type") == "tool_use"]
        elif calls:
            results = {block.get("tool_use_id"): block for block in content if block.get("type") == "tool_result"}
            found.append(JournalEntry(finished=tuple(_finished(call, results.get(call["id"], {})) for call in calls)))
            calls = []
        elif found:
            found[-1] = found[-1].model_copy(update={"joined": (*found[-1].joined, content)})
    return tuple(found)


def _finished(call: ContentBlock, result: ContentBlock) -> Finished:
    return Finished(
        operation=Operation(name=call["name"], input=call["input"]),
        text=text_of(tuple(result.get("content") or ())),
        failed=bool(result.get("is_error")),
    )


def in_chunks(entries: Sequence[JournalEntry]) -> Iterator[tuple[tuple[JournalEntry, ...], bool]]:
    """Yield entries in bounded pieces, each with whether more follow. At least one piece."""
    chunk: list[JournalEntry] = []
    size = 0
    for entry in entries:
        length = sum(len(finished.text) for finished in entry.finished)
        if chunk and size + length > _MAX_CHUNK_CHARS:
            yield tuple(chunk), True
            chunk, size = [], 0
        chunk.append(entry)
        size += length
    yield tuple(chunk), False
