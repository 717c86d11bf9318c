"""Turns the live events of a run into changes of its items.

Pieces of text and the beginning of a call come from the events at once. What an item has when it is done comes from the
ledger, which alone has arguments and results of calls: so it is what any later read gives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.thread_state import merge_patch
from nova_workers.domain.streams.rules.wire import LiveEvent, is_final
from nova_workers.domain.threads.sql.items import TurnContents

from .items import (
    Item,
    MessageItem,
    QuestionItem,
    ReasoningItem,
    StepEvents,
    ToolCallItem,
    call_item_id,
    input_id,
    items_of,
    items_since,
    message_id,
    reasoning_id,
)

TextKind = Literal["message", "reasoning"]
ItemKind = Literal["message", "reasoning", "tool_call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfEvent:
    """What a follower is given with an event of the run.

    Attributes:
        event: The event. It is the same however events are batched, and whether they are live or from the ledger.
    """

    event: EventCursor = field(default=EventCursor(), compare=False)


@dataclass(frozen=True, slots=True)
class Started(_OfEvent):
    """An item begins: a message, reasoning, or a call, of which only the name is known.

    Attributes:
        replaces: It may begin again, in place of what the follower may have from before.
    """

    item_id: str
    kind: ItemKind
    step: int
    tool_name: str | None = None
    call_id: str | None = None
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Delta(_OfEvent):
    """The next piece of the text of a message or of reasoning that began.

    Attributes:
        cursor: A follower that has it resumes here; None for what the ledger added to the live text.
    """

    item_id: str
    kind: ItemKind
    text: str
    cursor: EventCursor | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Done(_OfEvent):
    """An item is committed. Also given for one that never began, and for a question again when it is answered.

    Attributes:
        at: The event with which it and all before it are done, if that is known: a client that resumes after it misses
            nothing, and gets nothing of them again.
    """

    item: Item
    at: EventCursor | None = None


@dataclass(frozen=True, slots=True)
class Voided(_OfEvent):
    """An item that began will not be done: its text is void. One with the same id may begin anew."""

    item_id: str
    kind: ItemKind


@dataclass(frozen=True, slots=True)
class Progress(_OfEvent):
    """A call that takes long says how far it is."""

    item_id: str
    summary: str


@dataclass(frozen=True, slots=True)
class StateChanged(_OfEvent):
    """The agent changed the thread's state document, to the document of a version."""

    version: int
    patch: JsonObject | None
    state: JsonObject | None

    def after(self, before: JsonObject) -> JsonObject:
        """Return the document of its version, from the one before that."""
        return merge_patch(before, self.patch) if self.patch is not None else self.state or {}


@dataclass(frozen=True, slots=True)
class Paused(_OfEvent):
    """The run gave up its worker and goes on later: it waits, or is queued again."""

    status: str


@dataclass(frozen=True, slots=True)
class Ended(_OfEvent):
    """The run has ended."""

    status: str


_TEXT_EVENTS: Final = frozenset({"token", "reasoning", "assistant_message", "restart"})

Change = Started | Delta | Done | Voided | Progress | StateChanged | Paused | Ended

Read = Callable[[int | None], Awaitable[TurnContents | None]]
"""Reads the contents of the run's turn from a step on; None for all of it."""


@dataclass(slots=True)
class _Open:
    """An item that began and is not done."""

    kind: ItemKind
    step: int
    pieces: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """What was sent of it."""
        return "".join(self.pieces)


class Resumed(NamedTuple):
    """Where a follower that has an event goes on.

    Attributes:
        before: The items that it has, as far as they were done before `after`.
        after: The event after which it follows: the newest one before that it has with which nothing was open. So what
            is open is taken from its beginning, and goes on as it would have gone on without a break.
    """

    before: tuple[Item, ...]
    after: EventCursor


class ItemFeed:
    """The items of one run, for one follower."""

    def __init__(self, run_id: str, read: Read) -> None:
        """Take the run, and what reads its turn."""
        self._run_id = run_id
        self._read = read
        self._step = 0
        """The step whose text is streamed."""
        self._open: dict[str, _Open] = {}
        self._done: set[tuple[str, bool]] = set()
        """Ids of items that are done; with True for questions that are answered."""
        self._held = EventCursor()
        """The event that the follower had when it came."""
        self._may_have: dict[str, TextKind] = {}
        """Texts of which the follower may have a part, as long as the live events have not shown what it has."""
        self._held_step = -1
        """The step of these texts."""
        self._floor = EventCursor()
        """The least event of what comes: above what the follower has once it gets what it may have again."""
        self._cursor = EventCursor()
        """The id of the event that is taken."""

    async def resume(self, after: EventCursor, *, joined_by: str | None = None) -> Resumed:
        """Continue after an event that the follower has.

        Args:
            after: The event. What comes up to it is to be taken in parts of its own, which the follower has.
            joined_by: The run that is followed, if its message joined this run's turn: it has what comes after that.
        """
        is_from_the_beginning = after.key() <= EventCursor().key() and joined_by is None
        turn = None if is_from_the_beginning else await self._read(None)
        if turn is None:
            return Resumed((), EventCursor())
        items, events = items_of(turn), StepEvents(turn)
        own, begin = items, EventCursor()
        if joined_by is not None:
            message = next((item for item in items if item.id == input_id(joined_by)), None)
            own = items_since(items, joined_by)
            if message is not None:
                own, begin = (message, *own), events.closing(message.step) or begin
        start = max(begin, events.newest_before(after), key=EventCursor.key)
        behind = [item for item in items if events.is_behind(item, start)]
        self._done = {_key(item) for item in behind}
        self._step = 1 + max((item.step for item in behind), default=-1)
        if after.key() > start.key():
            self._held = after
            has = {item.id: item.step for item in items if events.is_behind(item, after)}
            self._held_step = step = 1 + max(has.values(), default=-1)
            names: dict[str, TextKind] = {name(self._run_id, step): kind for kind, name in _TEXT_ID.items()}
            self._may_have = {item_id: kind for item_id, kind in names.items() if item_id not in has}
        return Resumed(tuple(item for item in own if _key(item) in self._done), start)

    async def take(self, events: Sequence[LiveEvent]) -> list[Change]:
        """Return the changes that events are, in order; pieces of one text in one piece."""
        changes: list[Change] = []
        is_read_due = False
        for live in events:
            event = live.event
            # What is done comes before the text that follows it: a client may be cut off between them.
            changes.extend(await self._commit() if is_read_due and event["type"] in _TEXT_EVENTS else ())
            is_read_due &= event["type"] not in _TEXT_EVENTS
            self._come_to(live.cursor)
            match event["type"]:
                case "tool_status" if event.get("agent") is None:
                    is_read_due |= self._call(changes, event)
                case "state":
                    changes.append(
                        StateChanged(event["version"], event.get("patch"), event.get("state"), event=live.cursor)
                    )
                case "step":
                    # What the step has is read before a later one begins.
                    changes.extend(await self._commit())
                    is_read_due = False
                    self._step = max(self._step, event["index"] + 1)
                case "waiting" | "tool_servers_away":
                    is_read_due = True
                case "stream_end":
                    changes.extend(await self._end(event, is_last=is_final(live)))
                    is_read_due = False
                case "stream_start":
                    self._text(changes, event)
                    # What an attempt before committed whose worker was lost before it emitted the event after it.
                    is_read_due |= event["attempt"] > 1
                case _ if event.get("agent") is None:
                    self._text(changes, event)
                case _:
                    pass
        if is_read_due:
            changes.extend(await self._commit())
        return changes

    def _text(self, changes: list[Change], event: JsonObject) -> None:
        """Take an event about the text of the open step; others change nothing."""
        match event["type"]:
            case "token":
                self._add(changes, "message", event["text"])
            case "reasoning":
                self._add(changes, "reasoning", event["text"])
            case "assistant_message":
                self._replace(changes, event)
            case "restart" | "stream_start":
                changes.extend(self._void([key for key, begun in self._open.items() if begun.kind != "tool_call"]))
                changes.extend(self._void_held())
            case _:
                pass

    async def _end(self, event: JsonObject, *, is_last: bool) -> list[Change]:
        """Return the changes at the end of the run, or of an attempt."""
        if not is_last:
            return [*await self._commit(), Paused(event["status"], event=self._of(self._cursor))]
        committed = await self._commit(is_last=True)
        return [
            *committed,
            *self._void(list(self._open)),
            *self._void_held(),
            Ended(event["status"], event=self._of(self._cursor)),
        ]

    def _come_to(self, cursor: EventCursor) -> None:
        """Take the id of the next event."""
        self._cursor = cursor
        if cursor == self._held:
            # All that the follower has came again.
            self._may_have = {}

    def _add(self, changes: list[Change], kind: TextKind, text: str) -> None:
        item_id = self._id(kind)
        if (item_id, False) in self._done or not text:
            return
        if item_id not in self._open:
            started = self._started(item_id, kind, self._step, self._cursor)
            self._open[item_id] = _Open(kind, self._step)
            changes.append(started)
        self._open[item_id].pieces.append(text)
        event = self._of(self._cursor)
        match changes:
            case [*_, Delta(item_id=last, text=before)] if last == item_id:
                changes[-1] = Delta(item_id, kind, before + text, self._cursor, event=event)
            case _:
                changes.append(Delta(item_id, kind, text, self._cursor, event=event))

    def _started(self, item_id: str, kind: TextKind, step: int, event: EventCursor) -> Started:
        """Return the beginning of a text: a new one of what the follower may have a part of, if the ledger has it."""
        is_held = event.key() <= self._held.key()
        replaces = item_id in self._may_have and (event.number > 0 or not is_held)
        if replaces or not is_held:
            self._may_have.pop(item_id, None)
        if replaces and is_held:
            self._floor = self._held.following()
        return Started(item_id, kind, step, replaces=replaces, event=self._of(event))

    def _of(self, event: EventCursor) -> EventCursor:
        """Return the event that a change is of."""
        return max(event, self._floor, key=EventCursor.key)

    def _replace(self, changes: list[Change], event: JsonObject) -> None:
        """Take the whole text of the open step: what was sent of it stays where it begins the text."""
        if event.get("step") is not None and event["step"] < self._step:
            return
        item_id = self._id("message")
        begun = self._open.get(item_id)
        text: str = event["text"]
        if begun is not None and text.startswith(begun.text):
            self._add(changes, "message", text[len(begun.text) :])
            return
        if begun is not None:
            changes.extend(self._void([item_id]))
        self._add(changes, "message", text)

    def _call(self, changes: list[Change], event: JsonObject) -> bool:
        """Take the state of a call. Return whether the ledger may have more of it now."""
        item_id = call_item_id(self._run_id, event["tool_call_id"])
        is_done = (item_id, False) in self._done
        if event["status"] == "running":
            if event.get("summary"):
                changes.append(Progress(item_id, event["summary"], event=self._of(self._cursor)))
            return False
        if event["status"] == "started" and not is_done and item_id not in self._open:
            self._open[item_id] = _Open("tool_call", self._step)
            name, call_id = event["tool_name"], event["tool_call_id"]
            changes.append(Started(item_id, "tool_call", self._step, name, call_id, event=self._of(self._cursor)))
        return True

    async def _commit(self, *, is_last: bool = False) -> list[Change]:
        """Return the changes that the ledger has up to the present event and that were not given; all at the end.

        The ledger may be ahead. What comes with a later event is given with that: so it depends on the event alone
        what a follower has, and one that resumes after it gets the rest, and nothing twice.
        """
        first = min((begun.step for begun in self._open.values()), default=self._step)
        turn = await self._read(min(first, self._step - 1) if self._step else None)
        changes: list[Change] = []
        if turn is not None:
            known = StepEvents(turn)
            due = [
                item
                for item in items_of(turn)
                if item.step >= 0 and _key(item) not in self._done and (is_last or self._is_due(item, turn, known))
            ]
            events = [known.of(item) for item in due]
            for item, event, following in zip(due, events, [*events[1:], None], strict=False):
                is_known = event is not None and self._has(event)
                at = event if is_known and event != following else None
                changes.extend(self._finish(item, at, event if event is not None and is_known else self._cursor))
                self._done.add(_key(item))
            steps = turn.steps
            closed = [item_id for item_id, begun in self._open.items() if self._is_closed(begun.step, steps, known)]
            changes.extend(self._void(closed))
            if self._is_closed(self._held_step, steps, known):
                changes.extend(self._void_held())
        return changes

    def _is_due(self, item: Item, turn: TurnContents, known: StepEvents) -> bool:
        """Return whether an item is given with the present event. Where its own is not known, it is as it is read."""
        event = known.of(item)
        return item.step < turn.steps if event is None else self._has(event)

    def _is_closed(self, step: int, steps: int, known: StepEvents) -> bool:
        event = known.closing(step)
        return step < steps and (event is None or self._has(event))

    def _has(self, event: EventCursor) -> bool:
        return event.key() <= self._cursor.key()

    def _finish(self, item: Item, at: EventCursor | None, event: EventCursor) -> Iterable[Change]:
        """Yield the end of an item, after what of its text was not sent."""
        begun = self._open.pop(item.id, None)
        match item:
            case MessageItem(role="assistant"):
                yield from self._rest("message", item, begun, event)
            case ReasoningItem():
                yield from self._rest("reasoning", item, begun, event)
            case ToolCallItem() if begun is None:
                yield Started(item.id, "tool_call", item.step, item.tool_name, item.call_id, event=self._of(event))
            case _:
                pass
        yield Done(item, at, event=self._of(event))

    def _rest(
        self, kind: TextKind, item: MessageItem | ReasoningItem, begun: _Open | None, event: EventCursor
    ) -> Iterable[Change]:
        """Yield the changes that complete a committed text: all of it if something else was sent."""
        if begun is None or not item.text.startswith(begun.text):
            if begun is not None:
                yield Voided(item.id, kind, event=self._of(event))
            yield self._started(item.id, kind, item.step, event)
            yield Delta(item.id, kind, item.text, event=self._of(event))
        elif rest := item.text[len(begun.text) :]:
            yield Delta(item.id, kind, rest, event=self._of(event))

    def _void(self, item_ids: Sequence[str]) -> list[Change]:
        if self._cursor.key() > self._held.key():
            for item_id in item_ids:
                self._may_have.pop(item_id, None)
        return [Voided(item_id, self._open.pop(item_id).kind, event=self._of(self._cursor)) for item_id in item_ids]

    def _void_held(self) -> list[Change]:
        """Void texts of which the follower may have a part, once it is known that none has them."""
        if self._cursor.key() <= self._held.key():
            return []
        held, self._may_have = self._may_have, {}
        return [Voided(item_id, kind, event=self._of(self._cursor)) for item_id, kind in held.items()]

    def _id(self, kind: TextKind) -> str:
        return _TEXT_ID[kind](self._run_id, self._step)


_TEXT_ID: Final[Mapping[TextKind, Callable[[str, int], str]]] = {
    "message": message_id,
    "reasoning": reasoning_id,
}


def _key(item: Item) -> tuple[str, bool]:
    return item.id, isinstance(item, QuestionItem) and not item.is_open
