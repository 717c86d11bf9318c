"""Items: what doors show of a run. They are made here and nowhere else.

An item's id is made from its run and its place in it, so that the live events, which know no ids of the ledger, and the
ledger name it alike: a door that follows a run and one that reads it later give the same items.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.waits import AskApproval, AskUser
from nova_workers.domain.threads.sql.items import StoredCall, StoredMessage, StoredWait, TurnContents

CallStatus = Literal["in_progress", "completed", "failed", "interrupted"]

_ENDED_CALLS: Final = frozenset({"completed", "failed", "interrupted"})
_SAID: Final = frozenset({"query", "steering"})


@dataclass(frozen=True, slots=True)
class _Placed:
    """What all items have.

    Attributes:
        id: The same whenever it is made.
        run_id: The run that it belongs to; None for one that took place elsewhere.
        step: The step of the turn; -1 before the first.
    """

    id: str
    run_id: str | None
    step: int


@dataclass(frozen=True, slots=True)
class MessageItem(_Placed):
    """What a person or the agent said."""

    role: Literal["user", "assistant"]
    content: tuple[ContentBlock, ...]

    @property
    def text(self) -> str:
        """Its text, as the deltas had it."""
        return _text(self.content, "text")


@dataclass(frozen=True, slots=True)
class ReasoningItem(_Placed):
    """What the model thought before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallItem(_Placed):
    """A call of a tool.

    Attributes:
        for_caller: Whether the caller of the run executes it.
    """

    call_id: str
    tool_name: str
    params: JsonObject
    for_caller: bool


@dataclass(frozen=True, slots=True)
class ToolResultItem(_Placed):
    """The result of a call."""

    call_id: str
    tool_name: str
    status: Literal["completed", "failed", "interrupted"]
    content: tuple[ContentBlock, ...]
    error: str | None
    for_caller: bool


@dataclass(frozen=True, slots=True)
class QuestionItem(_Placed):
    """What a person is asked: a question, or the permission for a call. Its id is that of the wait."""

    call_id: str
    request: AskUser | AskApproval
    is_open: bool


@dataclass(frozen=True, slots=True)
class FileItem(_Placed):
    """A file that the agent sent."""

    name: str
    media_type: str
    size_bytes: int
    caption: str | None


Item = MessageItem | ReasoningItem | ToolCallItem | ToolResultItem | QuestionItem | FileItem


def input_id(run_id: str) -> str:
    """Return the id of the message that a run was submitted with."""
    return f"msg_{_suffix(run_id)}_in"


def message_id(run_id: str, step: int) -> str:
    """Return the id of the text of a step."""
    return f"msg_{_suffix(run_id)}_{step}"


def reasoning_id(run_id: str, step: int) -> str:
    """Return the id of the reasoning of a step."""
    return f"rs_{_suffix(run_id)}_{step}"


def call_item_id(run_id: str, call_id: str) -> str:
    """Return the id of a call."""
    return f"call_{_suffix(run_id)}_{call_id}"


def result_id(run_id: str, call_id: str) -> str:
    """Return the id of the result of a call."""
    return f"res_{_suffix(run_id)}_{call_id}"


def items_of(turn: TurnContents) -> tuple[Item, ...]:
    """Return the items of a turn in order, as far as they are committed.

    A call has its item once the response that made it is committed, so that it never precedes the text before it.
    """
    # Of a turn that took place elsewhere, the turn's own id makes the ids.
    owner = turn.run_id or turn.turn_id
    calls: defaultdict[int, list[StoredCall]] = defaultdict(list)
    for call in turn.calls:
        calls[call.step].append(call)
    waits: defaultdict[str, list[StoredWait]] = defaultdict(list)
    for wait in turn.waits:
        waits[wait.tool_call_id].append(wait)
    # Steering messages follow what their step has beside them.
    said = sorted(turn.messages, key=lambda message: (_step(message), message.kind == "steering", message.seq))
    items: list[Item] = []
    for message in said:
        step = _step(message)
        if message.kind in _SAID:
            items.append(_said(turn, owner, message))
        elif message.kind == "response":
            items.extend(_response(turn, owner, step, message.content))
            items.extend(_calls(turn, owner, calls[step], waits))
            items.extend(_files(turn, step))
    # Those of a step that has no response yet, or never: of a run that failed or was canceled after them.
    responded = {_step(message) for message in said if message.kind == "response"}
    if turn.steps not in responded:
        items.extend(_files(turn, turn.steps))
    return tuple(items)


def items_since(items: Sequence[Item], run_id: str) -> tuple[Item, ...]:
    """Return the items of a turn after the message of a run that joined it; all of them if it began the turn."""
    place = next((at for at, item in enumerate(items, start=1) if item.id == input_id(run_id)), None)
    if place is None:
        place = sum(item.step < 0 for item in items)
    return tuple(items[place:])


def input_item(run_id: str, content: Sequence[ContentBlock]) -> MessageItem:
    """Return the message of a run whose turn has not begun."""
    return MessageItem(input_id(run_id), run_id, -1, "user", tuple(content))


class StepEvents:
    """The events with which the items of a turn are given, as far as they are known.

    A response that calls tools is committed before the event that follows it: with that its text, its calls and what
    they ask are done. All else of a step is done with the event that closes it.
    """

    def __init__(self, turn: TurnContents) -> None:
        """Take the turn, or a part of it: what is known of a step is in its messages."""
        self._responses: dict[int, EventCursor] = {}
        self._closing: dict[int, EventCursor] = {}
        for message in turn.messages:
            if message.event is None:
                continue
            step = _step(message)
            if message.kind == "response":
                self._responses.setdefault(step, message.event)
            if step < turn.steps:
                self._closing[step] = max(self._closing.get(step, message.event), message.event, key=EventCursor.key)

    def of(self, item: Item) -> EventCursor | None:
        """Return the event with which an item is given; None if none is known."""
        with_response = isinstance(item, ReasoningItem | ToolCallItem | QuestionItem)
        if with_response or (isinstance(item, MessageItem) and item.role == "assistant"):
            return self._responses.get(item.step)
        return self.closing(item.step)

    def closing(self, step: int) -> EventCursor | None:
        """Return the event that closes a step; None if it is open, or none is known."""
        return self._closing.get(step)

    def newest_before(self, cursor: EventCursor) -> EventCursor:
        """Return the newest event before another one with which nothing was open; the beginning if there is none."""
        ends = [*self._responses.values(), *self._closing.values()]
        known = [end for end in ends if end.key() < cursor.key()]
        return max(known, key=EventCursor.key, default=EventCursor())

    def is_behind(self, item: Item, after: EventCursor) -> bool:
        """Return whether a follower who has the event `after` was given an item. Questions are given again."""
        if item.step < 0:
            return True
        event = None if isinstance(item, QuestionItem) else self.of(item)
        return event is not None and event.key() <= after.key()


def newest_event(turn: TurnContents) -> EventCursor:
    """Return the event with which all that is committed of a turn was given; the beginning if none is known."""
    events = [row.event for row in turn.messages if row.event is not None]
    return max(events, key=EventCursor.key, default=EventCursor())


def _said(turn: TurnContents, owner: str, message: StoredMessage) -> MessageItem:
    source = message.run_id or turn.run_id
    item_id = f"msg_{_suffix(owner)}_in{message.seq}" if source is None else input_id(source)
    return MessageItem(item_id, source, _step(message), "user", message.content)


def _response(turn: TurnContents, owner: str, step: int, content: Sequence[ContentBlock]) -> Iterator[Item]:
    thought = _text(content, "thinking")
    if thought.strip():
        yield ReasoningItem(reasoning_id(owner, step), turn.run_id, step, thought)
    spoken = tuple(block for block in content if block.get("type") == "text")
    if _text(spoken, "text"):
        yield MessageItem(message_id(owner, step), turn.run_id, step, "assistant", spoken)


def _calls(
    turn: TurnContents, owner: str, calls: Sequence[StoredCall], waits: defaultdict[str, list[StoredWait]]
) -> Iterator[Item]:
    for call in calls:
        yield ToolCallItem(
            call_item_id(owner, call.call_id),
            turn.run_id,
            call.step,
            call.call_id,
            call.tool_name,
            call.params,
            call.tool_name in turn.client_tools,
        )
    for call in calls:
        for wait in waits[call.call_id]:
            if isinstance(wait.request, AskUser | AskApproval):
                is_open = wait.status == "open"
                yield QuestionItem(wait.id, turn.run_id, call.step, call.call_id, wait.request, is_open)
        if call.status in _ENDED_CALLS:
            yield ToolResultItem(
                result_id(owner, call.call_id),
                turn.run_id,
                call.step,
                call.call_id,
                call.tool_name,
                "completed" if call.status == "completed" else "failed" if call.status == "failed" else "interrupted",
                call.result or (),
                call.error,
                call.tool_name in turn.client_tools,
            )


def _files(turn: TurnContents, step: int) -> Iterator[FileItem]:
    for file in turn.files:
        if file.step == step:
            yield FileItem(file.id, turn.run_id, step, file.name, file.media_type, file.size_bytes, file.caption)


def _step(message: StoredMessage) -> int:
    return -1 if message.step is None else message.step


def _text(content: Sequence[ContentBlock], kind: Literal["text", "thinking"]) -> str:
    return "".join(str(block.get(kind, "")) for block in content if block.get("type") == kind)


def _suffix(owner: str) -> str:
    return owner.partition("_")[2] or owner
