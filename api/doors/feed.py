"""Turns the live events of a run into changes of its items.

Pieces of text and the beginning of a call come from the events at once. What an item has when it is done comes from the
ledger, which alone has arguments and results of calls: so it is what any later read gives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

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
    ToolCallItem,
    call_item_id,
    closed_with,
    done_with,
    is_behind,
    items_of,
    message_id,
    reasoning_id,
)

TextKind = Literal["message", "reasoning"]
ItemKind = Literal["message", "reasoning", "tool_call"]


@dataclass(frozen=True, slots=True)
class Started:
    """An item begins: a message, reasoning, or a call, of which only the name is known.

    Attributes:
        is_resumed: The follower came in the middle of its step, and may have its beginning from before.
        replaces: It begins again, in place of what the follower may have from before.
    """

    item_id: str
    kind: ItemKind
    step: int
    tool_name: str | None = None
    call_id: str | None = None
    is_resumed: bool = False
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Delta:
    """The next piece of the text of a message or of reasoning that began.

    Attributes:
        cursor: A follower that has it resumes here; None for what the ledger added to the live text.
    """

    item_id: str
    kind: ItemKind
    text: str
    cursor: EventCursor | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Done:
    """An item is committed. Also given for one that never began, and for a question again when it is answered.

    Attributes:
        at: The event with which it and all before it are done, if that is known: a client that resumes after it misses
            nothing, and gets nothing of them again.
    """

    item: Item
    at: EventCursor | None = None


@dataclass(frozen=True, slots=True)
class Voided:
    """An item that began will not be done: its text is void. One with the same id may begin anew.

    A follower that resumed may be given it for an item that it does not have.
    """

    item_id: str
    kind: ItemKind


@dataclass(frozen=True, slots=True)
class Progress:
    """A call that takes long says how far it is."""

    item_id: str
    summary: str


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The agent changed the thread's state document, to the document of a version."""

    version: int
    patch: JsonObject | None
    state: JsonObject | None

    def after(self, before: JsonObject) -> JsonObject:
        """Return the document of its version, from the one before that."""
        return merge_patch(before, self.patch) if self.patch is not None else self.state or {}


@dataclass(frozen=True, slots=True)
class Paused:
    """The run gave up its worker and goes on later: it waits, or is queued again."""

    status: str


@dataclass(frozen=True, slots=True)
class Ended:
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
    is_whole: bool = True
    """Whether the follower got it from its beginning."""

    @property
    def text(self) -> str:
        """What was sent of it."""
        return "".join(self.pieces)


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
        self._torn: dict[str, TextKind] = {}
        """Texts of the step in whose middle the follower came, of which it may have the beginning."""
        self._torn_step = -1
        self._may_have: frozenset[str] = frozenset()
        """The texts that were torn when the follower came."""
        self._cursor: EventCursor | None = None
        """The id of the event that is taken."""

    async def resume(self, after: EventCursor) -> tuple[Item, ...]:
        """Continue after an event that the follower has, and return the items that it has."""
        turn = await self._read(None) if after.key() > EventCursor().key() else None
        if turn is None:
            return ()
        behind = [item for item in items_of(turn) if is_behind(item, turn, after)]
        self._done = {_key(item) for item in behind}
        self._step = self._torn_step = 1 + max((item.step for item in behind), default=-1)
        # With the event of a response, or the one that closes its step, nothing of the next step was given.
        ends = [closed_with(self._step - 1, turn), *(done_with(item, turn) for item in behind)]
        torn: tuple[TextKind, ...] = () if after in ends else ("reasoning", "message")
        self._torn = {item_id: kind for kind in torn if (item_id := self._id(kind), False) not in self._done}
        self._may_have = frozenset(self._torn)
        return tuple(behind)

    async def take(self, events: Sequence[LiveEvent]) -> list[Change]:
        """Return the changes that events are, in order; pieces of one text in one piece."""
        changes: list[Change] = []
        is_read_due = False
        for live in events:
            event = live.event
            # What is done comes before the text that follows it: a client may be cut off between them.
            changes.extend(await self._commit() if is_read_due and event["type"] in _TEXT_EVENTS else ())
            is_read_due &= event["type"] not in _TEXT_EVENTS
            self._cursor = live.cursor
            match event["type"]:
                case "tool_status" if event.get("agent") is None:
                    is_read_due |= self._call(changes, event)
                case "state":
                    changes.append(StateChanged(event["version"], event.get("patch"), event.get("state")))
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
                changes.extend(self._void_torn())
            case _:
                pass

    async def _end(self, event: JsonObject, *, is_last: bool) -> list[Change]:
        """Return the changes at the end of the run, or of an attempt."""
        if not is_last:
            return [*await self._commit(), Paused(event["status"])]
        committed = await self._commit(is_last=True)
        return [*committed, *self._void(list(self._open)), *self._void_torn(), Ended(event["status"])]

    def _add(self, changes: list[Change], kind: TextKind, text: str) -> None:
        item_id = self._id(kind)
        if (item_id, False) in self._done or not text:
            return
        if item_id not in self._open:
            is_torn = self._torn.pop(item_id, None) is not None
            self._open[item_id] = _Open(kind, self._step, is_whole=not is_torn)
            changes.append(self._started(item_id, kind, self._step, is_torn=is_torn))
        self._open[item_id].pieces.append(text)
        match changes:
            case [*_, Delta(item_id=last, text=before)] if last == item_id:
                changes[-1] = Delta(item_id, kind, before + text, self._cursor)
            case _:
                changes.append(Delta(item_id, kind, text, self._cursor))

    def _started(self, item_id: str, kind: TextKind, step: int, *, is_torn: bool) -> Started:
        replaces = not is_torn and item_id in self._may_have
        return Started(item_id, kind, step, is_resumed=is_torn, replaces=replaces)

    def _replace(self, changes: list[Change], event: JsonObject) -> None:
        """Take the whole text of the open step: what was sent of it stays where it begins the text."""
        if event.get("step") is not None and event["step"] < self._step:
            return
        item_id = self._id("message")
        begun = self._open.get(item_id)
        text: str = event["text"]
        if begun is not None and begun.is_whole and text.startswith(begun.text):
            self._add(changes, "message", text[len(begun.text) :])
            return
        if begun is not None:
            changes.extend(self._void([item_id]))
        # From here on the follower has the text from its beginning.
        self._torn.pop(item_id, None)
        self._add(changes, "message", text)

    def _call(self, changes: list[Change], event: JsonObject) -> bool:
        """Take the state of a call. Return whether the ledger may have more of it now."""
        item_id = call_item_id(self._run_id, event["tool_call_id"])
        is_done = (item_id, False) in self._done
        if event["status"] == "running":
            if event.get("summary"):
                changes.append(Progress(item_id, event["summary"]))
            return False
        if event["status"] == "started" and not is_done and item_id not in self._open:
            self._open[item_id] = _Open("tool_call", self._step)
            changes.append(Started(item_id, "tool_call", self._step, event["tool_name"], event["tool_call_id"]))
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
            due = [
                item
                for item in items_of(turn)
                if item.step >= 0 and _key(item) not in self._done and (is_last or self._is_due(item, turn))
            ]
            events = [done_with(item, turn) for item in due]
            for item, event, following in zip(due, events, [*events[1:], None], strict=False):
                is_known = event is not None and event != following and self._has(event)
                changes.extend(self._finish(item, event if is_known else None))
                self._done.add(_key(item))
            closed = [item_id for item_id, begun in self._open.items() if self._is_closed(begun.step, turn)]
            changes.extend(self._void(closed))
            if self._is_closed(self._torn_step, turn):
                changes.extend(self._void_torn())
        return changes

    def _is_due(self, item: Item, turn: TurnContents) -> bool:
        """Return whether an item is given with the present event. Where its own is not known, it is as it is read."""
        event = done_with(item, turn)
        return item.step < turn.steps if event is None else self._has(event)

    def _is_closed(self, step: int, turn: TurnContents) -> bool:
        event = closed_with(step, turn)
        return step < turn.steps and (event is None or self._has(event))

    def _has(self, event: EventCursor) -> bool:
        return self._cursor is not None and event.key() <= self._cursor.key()

    def _finish(self, item: Item, at: EventCursor | None) -> Iterable[Change]:
        """Yield the end of an item, after what of its text was not sent."""
        begun = self._open.pop(item.id, None)
        match item:
            case MessageItem(role="assistant"):
                yield from self._rest("message", item, begun)
            case ReasoningItem():
                yield from self._rest("reasoning", item, begun)
            case ToolCallItem() if begun is None:
                yield Started(item.id, "tool_call", item.step, item.tool_name, item.call_id)
            case _:
                pass
        yield Done(item, at)

    def _rest(self, kind: TextKind, item: MessageItem | ReasoningItem, begun: _Open | None) -> Iterable[Change]:
        """Yield the changes that complete a committed text: all of it if something else was sent."""
        if begun is None and self._torn.pop(item.id, None) is not None:
            # The follower may have it, or a part of it.
            yield Started(item.id, kind, item.step, is_resumed=True)
        elif begun is None or (begun.is_whole and not item.text.startswith(begun.text)):
            if begun is not None:
                yield Voided(item.id, kind)
            yield self._started(item.id, kind, item.step, is_torn=False)
            yield Delta(item.id, kind, item.text)
        elif begun.is_whole and (rest := item.text[len(begun.text) :]):
            yield Delta(item.id, kind, rest)

    def _void(self, item_ids: Sequence[str]) -> list[Change]:
        return [Voided(item_id, self._open.pop(item_id).kind) for item_id in item_ids]

    def _void_torn(self) -> list[Change]:
        """Void what the follower may have of the step in whose middle it came, unless it is done or begun again."""
        changes: list[Change] = [Voided(item_id, kind) for item_id, kind in self._torn.items()]
        self._torn = {}
        return changes

    def _id(self, kind: TextKind) -> str:
        return _TEXT_ID[kind](self._run_id, self._step)


_TEXT_ID: Final[Mapping[TextKind, Callable[[str, int], str]]] = {
    "message": message_id,
    "reasoning": reasoning_id,
}


def _key(item: Item) -> tuple[str, bool]:
    return item.id, isinstance(item, QuestionItem) and not item.is_open
