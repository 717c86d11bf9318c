"""What a model says in a step, as one message that grows: its reasoning, its text and its calls."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from nova_workers.contracts.content import JsonObject

from ..feed import Delta, Started, TextKind
from ..items import MessageItem, ReasoningItem, ToolCallItem
from .frames import Frames
from .messages import AGENT, add_to_answer, answer_id, answer_message, id_of_text

About = Callable[[str, str], JsonObject]
"""Returns what is said about a message: of an item and a node."""


class _Answer:
    """The message of a step, as the client has it.

    Attributes:
        document: The message as far as it is committed.
        texts: What this stream sent of its texts.
        lost: Texts that were removed with the others, although they are valid.
        may_be_there: Whether the client may have a part of it.
    """

    __slots__ = ("document", "lost", "may_be_there", "texts")

    def __init__(self, message_id: str, *, may_be_there: bool) -> None:
        self.document = answer_message(message_id)
        self.texts: dict[TextKind, str] = {}
        self.lost: set[TextKind] = set()
        self.may_be_there = may_be_there


class Answers:
    """Writes the messages of a run's model, one after the other."""

    def __init__(self, frames: Frames, about: About, run_id: str, *, is_resumed: bool) -> None:
        """Take what is written to, and whether the client has a part of the run."""
        self._frames = frames
        self._about = about
        self._run_id = run_id
        self._is_resumed = is_resumed
        self._open: _Answer | None = None
        self._has_items = False
        """Whether something of the open one is committed."""
        self._is_restated = False
        """Whether a message was sent whole, since the client may have a part of it that came without an id."""
        self._ended: set[str] = set()

    def is_of_open(self, message_id: str) -> bool:
        """Return whether a message is the open one."""
        return self._open is not None and self._open.document["id"] == message_id

    def start(self, change: Started, kind: TextKind) -> None:
        """Begin a text."""
        if change.replaces:
            # The client may have a part of it.
            self._of(id_of_text(change.item_id)).may_be_there = True
            self.void(change.item_id, kind)

    def add_text(self, change: Delta, kind: TextKind) -> None:
        """Add the next piece of a text."""
        message_id = id_of_text(change.item_id)
        answer = self._of(message_id)
        is_first = not answer.texts
        answer.texts[kind] = answer.texts.get(kind, "") + change.text
        answer.may_be_there = True
        chunk = _chunk({**answer_message(message_id), **_fields(kind, change.text)})
        about = self._about(change.item_id, AGENT)
        self._frames.show("events", self._event("on_chat_model_stream", {"chunk": chunk}))
        if is_first:
            self._frames.show("messages", {message_id: {"metadata": about}}, event="messages/metadata")
        partial = answer_message(message_id)
        for each, text in answer.texts.items():
            partial |= _fields(each, text)
        self._frames.show("messages", [partial], event="messages/partial")
        if change.cursor is None and self._is_due_again():
            self._remove(answer, change.item_id)
            chunk = _chunk(partial)
            answer.may_be_there = True
        # A client adds it to what it has, so it is the one with the id.
        self._frames.show("messages-tuple", [chunk, about], event="messages")
        if change.cursor is not None:
            self._frames.mark(change.cursor)

    def add_item(self, item: MessageItem | ReasoningItem | ToolCallItem) -> None:
        """Add what is committed."""
        answer = self._of(answer_id(item))
        self._has_items = True
        add_to_answer(answer.document, item)
        if isinstance(item, ToolCallItem):
            if self._is_due_again():
                self._restate(answer, item.id, "message")
            self._add_call(answer, item)
            return
        kind: TextKind = "message" if isinstance(item, MessageItem) else "reasoning"
        if kind in answer.lost:
            self._restate(answer, item.id, kind)

    def void(self, item_id: str, kind: TextKind) -> None:
        """Remove a text that the client may have, since it begins again or is none."""
        message_id = id_of_text(item_id)
        if message_id in self._ended:
            return
        answer = self._of(message_id)
        answer.texts.pop(kind, None)
        answer.lost.discard(kind)
        answer.lost |= answer.texts.keys()
        self._remove(answer, item_id)

    def end(self) -> JsonObject | None:
        """End the open message, and return it; None if nothing of it is committed."""
        answer, has_items = self._open, self._has_items
        if answer is None or not has_items:
            return None
        self._open, self._has_items = None, False
        document = answer.document
        self._ended.add(document["id"])
        self._frames.show("messages", [document], event="messages/complete")
        self._frames.show("updates", {AGENT: {"messages": [document]}})
        self._frames.show("events", self._event("on_chat_model_end", {"output": document}))
        for call in document["tool_calls"]:
            self._frames.show("events", self._event("on_tool_start", {"input": call["args"]}, name=call["name"]))
        return document

    def _of(self, message_id: str) -> _Answer:
        """Return the message, which is the open one from now on."""
        if self._open is None or self._open.document["id"] != message_id:
            self._open = _Answer(message_id, may_be_there=self._is_resumed and not self._frames.is_marked)
            self._has_items = False
        return self._open

    def _is_due_again(self) -> bool:
        """Return whether a client that was cut off may have what comes without an id, and would add it to that."""
        is_due = self._is_resumed and not (self._frames.is_held or self._frames.is_marked or self._is_restated)
        self._is_restated |= is_due
        return is_due

    def _restate(self, answer: _Answer, item_id: str, kind: TextKind) -> None:
        """Send what is committed of a message whole, in place of what the client may have of it."""
        self._remove(answer, item_id)
        # What was sent of the other texts is gone with it; reasoning precedes text.
        answer.lost = set[TextKind]() if kind == "message" else answer.texts.keys() - {kind}
        chunk = _chunk(answer.document)
        self._frames.show("messages-tuple", [chunk, self._about(item_id, AGENT)], event="messages")
        answer.may_be_there = True

    def _remove(self, answer: _Answer, item_id: str) -> None:
        if answer.may_be_there:
            removal = {"type": "remove", "id": answer.document["id"], "content": ""}
            self._frames.show("messages-tuple", [removal, self._about(item_id, AGENT)], event="messages")
            answer.may_be_there = False

    def _add_call(self, answer: _Answer, item: ToolCallItem) -> None:
        call = {
            "type": "tool_call_chunk",
            "id": item.id,
            "name": item.tool_name,
            "args": orjson.dumps(item.params).decode(),
            "index": len(answer.document["tool_calls"]) - 1,
        }
        chunk = {**_chunk(answer_message(answer.document["id"])), "tool_call_chunks": [call]}
        self._frames.show("messages-tuple", [chunk, self._about(item.id, AGENT)], event="messages")
        answer.may_be_there = True

    def _event(self, event: str, data: JsonObject, *, name: str = AGENT) -> JsonObject:
        return {"event": event, "name": name, "run_id": self._run_id, "tags": [], "metadata": {}, "data": data}


def _fields(kind: TextKind, text: str) -> JsonObject:
    return {"content": text} if kind == "message" else {"additional_kwargs": {"reasoning_content": text}}


def _chunk(message: JsonObject) -> JsonObject:
    """Return a message as one that a client adds to what it has."""
    return {**message, "type": "AIMessageChunk", "tool_calls": [], "tool_call_chunks": []}
