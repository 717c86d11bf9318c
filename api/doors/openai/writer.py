"""The events of a response.

Their numbers are made from the cursors of the run's events: each event is numbered from that of the run that it is of,
however they come. So a client that resumes after a number, at any process, gets what would have come without a break.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.events import AFTER_LIVE, EventCursor
from nova_workers.domain.runs.sql.reads import RunState

from ..feed import Change, Delta, Done, Ended, Paused, Started, Voided
from ..items import Item, MessageItem, QuestionItem, ReasoningItem, ToolCallItem
from ..service import Door
from .parts import is_asked_again
from .responses import (
    ResponseId,
    call_document,
    item_documents,
    message_document,
    part_of,
    reasoning_document,
    response_document,
    summary_part,
    text_part,
)

_PLACE_BITS, _NUMBER_BITS, _SEQ_BITS = 11, 10, 22
"""Bits of a number, which with 10 of the attempt has the 53 that a double keeps: up to 2,047 events of the protocol for
one of the run, of 4 million flushes of an attempt, which are a day of tokens."""
_NUMBERS: Final = (1 << _NUMBER_BITS) - 1
_SEQS: Final = (1 << _SEQ_BITS) - 1
_BEGUN: Final = 1
"""The number of the last event before those of the run."""
_LAST: Final = b"data: [DONE]\n\n"


def number_of(cursor: EventCursor) -> int:
    """Return the number of the first event that the run's event at a cursor gives. It is exact in a double."""
    seq = _SEQS if cursor.seq == AFTER_LIVE else min(cursor.seq, _SEQS - 1)
    whole = ((cursor.attempt << _SEQ_BITS) | seq) << _NUMBER_BITS | min(cursor.number, _NUMBERS)
    return whole << _PLACE_BITS


def cursor_at(number: int) -> EventCursor:
    """Return the cursor of the run's event with which the event of a number comes."""
    whole = number >> _PLACE_BITS
    seq = (whole >> _NUMBER_BITS) & _SEQS
    return EventCursor(
        attempt=min(whole >> (_NUMBER_BITS + _SEQ_BITS), 2**31),
        seq=AFTER_LIVE if seq == _SEQS else seq,
        number=whole & _NUMBERS,
    )


class ResponseWriter:
    """Writes one response's events."""

    def __init__(self, door: Door, response: ResponseId, *, held: int | None = None) -> None:
        """Take the response, and the number of the last event that the client has; None from the beginning."""
        self.is_over = False
        self._door = door
        self._response = response
        self._held = -1 if held is None else held
        self._last = -1
        """The number of the last event, whether the client has it or not."""
        self._index: dict[str, int] = {}
        self._texts: dict[str, list[str]] = {}
        self._asked_step: int | None = None
        """The step that ends the response by asking."""
        self._events: list[tuple[str, JsonObject, EventCursor]] = []

    async def begin(self, run: RunState, before: Sequence[Item]) -> bytes:
        """Return the first events, unless the client has them."""
        output, self._asked_step = part_of(before, self._response.first_step)
        for item in output:
            if any(True for _ in item_documents(item)):
                self._place(item.id)
        if self._held >= _BEGUN:
            self._last = _BEGUN
            return b""
        found = await self._door.recorded(self._response.run_id, with_items=self._response.first_step > 0)
        document = response_document(self._response, found, is_begun=True)
        self._at = EventCursor()
        self._add("response.created", response=document)
        self._add("response.in_progress", response=document)
        return self._frames()

    async def write(self, changes: Sequence[Change], cursor: EventCursor) -> bytes:
        """Return the events of changes."""
        for change in changes:
            self._at = change.event
            if self._is_behind(change):
                await self._finish()
                break
            match change:
                case Started():
                    self._start(change)
                case Delta(item_id, kind, text) if item_id in self._texts:
                    self._texts[item_id].append(text)
                    name = "output_text" if kind == "message" else "reasoning_summary_text"
                    self._add(f"response.{name}.delta", **self._part(item_id, kind), delta=text, **_LOGPROBS[kind])
                case Voided(item_id):
                    self._void(item_id)
                case Done(item) if self._is_own(item):
                    self._done(item)
                case Paused("waiting"):
                    await self._pause()
                case Ended():
                    await self._finish()
                case _:
                    pass
            if self.is_over:
                break
        return self._frames() + (_LAST if self.is_over else b"")

    def _is_behind(self, change: Change) -> bool:
        """Return whether a change comes after what ends the response."""
        if self._asked_step is None:
            return False
        match change:
            case Started(step=step):
                return step > self._asked_step
            case Done(item):
                is_given = not part_of([item], self._response.first_step)[0] and self._is_own(item)
                return is_given or item.step > self._asked_step
            case _:
                return False

    def _is_own(self, item: Item) -> bool:
        return item.step >= self._response.first_step or is_asked_again(item, self._response.first_step)

    def _start(self, change: Started) -> None:
        if change.step < self._response.first_step or change.kind == "tool_call":
            # Of a call it is known by its end whether the client executes it.
            return
        index = self._place(change.item_id)
        self._texts[change.item_id] = []
        if change.kind == "message":
            self._open_message(change.item_id, change.item_id)
        else:
            self._add("response.output_item.added", output_index=index, item=reasoning_document(change.item_id, None))
            part = summary_part("")
            self._add("response.reasoning_summary_part.added", **self._part(change.item_id, "reasoning"), part=part)

    def _open_message(self, key: str, item_id: str) -> None:
        document = message_document(item_id, None, "in_progress")
        self._add("response.output_item.added", output_index=self._place(key), item=document)
        self._add("response.content_part.added", **{**self._part(key), "item_id": item_id}, part=text_part(""))

    def _void(self, item_id: str) -> None:
        """End an item whose text is void: it is incomplete, and one of the same id may begin again."""
        text = self._texts.pop(item_id, None)
        if text is None:
            return
        if item_id.startswith("msg_"):
            document = message_document(item_id, "".join(text), "incomplete")
        else:
            document = {**reasoning_document(item_id, "".join(text)), "status": "incomplete"}
        self._add("response.output_item.done", output_index=self._index[item_id], item=document)

    def _done(self, item: Item) -> None:
        documents = list(item_documents(item))
        match item:
            case MessageItem(role="assistant"):
                self._close_text(item.id, item.text)
            case ReasoningItem():
                place, part = self._part(item.id, "reasoning"), summary_part(item.text)
                self._add("response.reasoning_summary_text.done", **place, text=item.text)
                self._add("response.reasoning_summary_part.done", **place, part=part)
            case ToolCallItem(for_caller=True):
                self._call(item, documents[0])
            case QuestionItem() if item.id not in self._index:
                self._question(item, documents[0])
            case _:
                return
        self._texts.pop(item.id, None)
        for document in documents:
            self._add("response.output_item.done", output_index=self._index[item.id], item=document)

    def _close_text(self, item_id: str, text: str, document_id: str | None = None) -> None:
        place = {**self._part(item_id), "item_id": document_id or item_id}
        self._add("response.output_text.done", **place, text=text, logprobs=[])
        self._add("response.content_part.done", **place, part=text_part(text))

    def _call(self, item: ToolCallItem, document: JsonObject) -> None:
        self._asked_step = item.step
        place = {"item_id": document["id"], "output_index": self._place(item.id)}
        arguments = document["arguments"]
        begun = call_document(item, "", "in_progress")
        self._add("response.output_item.added", output_index=place["output_index"], item=begun)
        self._add("response.function_call_arguments.delta", **place, delta=arguments)
        self._add("response.function_call_arguments.done", **place, arguments=arguments)

    def _question(self, item: QuestionItem, document: JsonObject) -> None:
        self._asked_step = item.step
        index, item_id = self._place(item.id), document["id"]
        if document["type"] != "message":
            self._add("response.output_item.added", output_index=index, item=document)
            return
        text = document["content"][0]["text"]
        self._open_message(item.id, item_id)
        place = {"item_id": item_id, "output_index": index, "content_index": 0}
        self._add("response.output_text.delta", **place, delta=text, logprobs=[])
        self._close_text(item.id, text, item_id)

    async def _pause(self) -> None:
        """Add the last event if the run waits for what the response cannot say: only it can go on."""
        if self._asked_step is not None:
            await self._finish()
            return
        found = await self._door.recorded(self._response.run_id)
        document = response_document(self._response, found)
        if document["status"] == "incomplete":
            self._end(document)

    async def _finish(self) -> None:
        """Add the last event: the run has ended, or the response asked for something."""
        self._end(response_document(self._response, await self._door.recorded(self._response.run_id)))

    def _end(self, document: JsonObject) -> None:
        status = document["status"]
        name = status if status in {"completed", "failed"} else "incomplete"
        self._add(f"response.{name}", response=document)
        self.is_over = True

    def _place(self, item_id: str) -> int:
        return self._index.setdefault(item_id, len(self._index))

    def _part(self, item_id: str, kind: str = "message") -> dict[str, Any]:
        part = "summary_index" if kind == "reasoning" else "content_index"
        return {"item_id": item_id, "output_index": self._place(item_id), part: 0}

    def _add(self, kind: str, **fields: Any) -> None:
        self._events.append((kind, fields, self._at))

    def _frames(self) -> bytes:
        """Return the events that were added, without those that the client has.

        Each has the number of the run's event that it is of, or the next one.
        """
        frames: list[bytes] = []
        for kind, fields, cursor in self._events:
            self._last = max(number_of(cursor), self._last + 1)
            if self._last > self._held:
                body = orjson.dumps({"type": kind, "sequence_number": self._last, **fields})
                frames.append(b"event: %s\ndata: %s\n\n" % (kind.encode(), body))
        self._events.clear()
        return b"".join(frames)


_LOGPROBS: Final[dict[str, JsonObject]] = {"message": {"logprobs": []}, "reasoning": {}, "tool_call": {}}
