"""What a run does, as the protocol streams it."""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.events import EventCursor
from nova_workers.domain.runs.sql.reads import RunState

from ..feed import Change, Delta, Done, Ended, Paused, Progress, Started, StateChanged, Voided
from ..items import Item, MessageItem, QuestionItem, ReasoningItem, ToolCallItem, ToolResultItem
from ..service import Door
from .answers import Answers
from .conversations import items_before
from .frames import Frames
from .messages import (
    AGENT,
    TOOLS,
    answer_id,
    human_message,
    id_of_text,
    interrupts_of,
    is_asked,
    messages_of,
    tool_message,
)
from .runs import Sent, error_of


class RunWriter:
    """Writes one stream of a run, until the run has ended or asks something."""

    def __init__(self, door: Door, sent: Sent, modes: frozenset[str], *, is_resumed: bool = False) -> None:
        """Take what is streamed.

        Args:
            door: The service, for the request's caller.
            sent: The run, and the event after which the stream begins.
            modes: What the client wants to see.
            is_resumed: Whether it has the stream up to this event.
        """
        self.is_over = False
        self._door = door
        self._sent = sent
        self._is_resumed = is_resumed
        self._frames = Frames(modes, sent.after)
        self._answers = Answers(self._frames, self._about, sent.run_id, is_resumed=is_resumed)
        self._items: list[Item] = []
        self._asked: set[str] = set()
        """Calls that the run asks about, by their ids in the run."""
        self._is_changed = False

    async def begin(self, run: RunState, before: Sequence[Item]) -> bytes:
        """Return the beginning of the stream: the run, and the values that it begins with."""
        for item in before:
            self._note_question(item)
        if self._frames.shows("values"):
            items = before or [item for item in await self._door.items(self._sent.run_id) if item.step < 0]
            self._items = [*await items_before(self._door, self._sent.thread_id, self._sent.run_id), *items]
        if not self._is_resumed:
            about = {"run_id": self._sent.run_id, "thread_id": self._sent.thread_name, "attempt": 1}
            self._frames.begin("metadata", about)
        if self._sent.after == EventCursor():
            self._show_values()
        return self._frames.take()

    async def write(self, changes: Sequence[Change], cursor: EventCursor) -> bytes:
        """Return changes as events."""
        for change in changes:
            self._frames.is_held = change.event.key() <= self._sent.after.key()
            if not self._is_of_open_answer(change):
                self._end_answer()
            match change:
                case Started(_, "message" | "reasoning" as kind):
                    self._answers.start(change, kind)
                case Delta(kind="message" | "reasoning" as kind):
                    self._answers.add_text(change, kind)
                case Voided(item_id, "message" | "reasoning" as kind):
                    self._answers.void(item_id, kind)
                case Done():
                    self._finish(change)
                case Progress(item_id, summary):
                    self._frames.show("custom", {"type": "progress", "tool_call_id": item_id, "summary": summary})
                case Paused("waiting") if not self._frames.is_held:
                    await self._pause(cursor)
                case Ended():
                    await self._end(cursor)
                case _:
                    pass
        # All of a response comes at once: nothing more of it follows.
        self._end_answer()
        return self._frames.take()

    def _is_of_open_answer(self, change: Change) -> bool:
        """Return whether a change may belong to the message whose items come."""
        match change:
            case Started(item_id) | Delta(item_id) | Voided(item_id) if not item_id.startswith("call_"):
                return self._answers.is_of_open(id_of_text(item_id))
            case Done(item=MessageItem(role="assistant") | ReasoningItem() | ToolCallItem() as item):
                return self._answers.is_of_open(answer_id(item))
            case Started() | Voided() | StateChanged():
                # They show nothing.
                return True
            case _:
                return False

    def _finish(self, change: Done) -> None:
        item = change.item
        self._note_question(item)
        if self._frames.shows("values") and item.id not in {each.id for each in self._items}:
            self._items.append(item)
        match item:
            case MessageItem(role="user"):
                message = human_message(item)
                self._frames.show("messages-tuple", [message, self._about(item.id, AGENT)], event="messages")
                self._frames.show("messages", [message], event="messages/complete")
                self._is_changed = True
            case MessageItem() | ReasoningItem() | ToolCallItem():
                self._answers.add_item(item)
            case ToolResultItem():
                self._show_result(item)
            case _:
                pass
        if change.at is not None:
            self._end_answer()
            if self._is_changed:
                self._show_values()
            self._frames.mark(change.at)

    def _note_question(self, item: Item) -> None:
        match item:
            case QuestionItem() | ToolCallItem() if is_asked(item):
                self._asked.add(item.call_id)
            case QuestionItem() | ToolResultItem():
                self._asked.discard(item.call_id)
            case _:
                pass

    def _end_answer(self) -> None:
        if self._answers.end():
            self._is_changed = True

    def _show_result(self, item: ToolResultItem) -> None:
        message = tool_message(item)
        self._frames.show("messages-tuple", [message, self._about(item.id, TOOLS)], event="messages")
        self._frames.show("messages", [message], event="messages/complete")
        self._frames.show("updates", {TOOLS: {"messages": [message]}})
        event = {
            "event": "on_tool_end",
            "name": item.tool_name,
            "run_id": self._sent.run_id,
            "tags": [],
            "metadata": {},
            "data": {"output": message},
        }
        self._frames.show("events", event)
        self._is_changed = True

    async def _pause(self, cursor: EventCursor) -> None:
        """End the stream if the run asks something that is not answered."""
        run = await self._door.run(self._sent.run_id)
        if not self._asked & {wait.tool_call_id for wait in run.waits}:
            return
        asked = interrupts_of(run)
        self._show_values(asked)
        if self._frames.shows("updates") or not self._frames.shows("values"):
            self._frames.add("updates", {"__interrupt__": asked})
        self._close(cursor)

    async def _end(self, cursor: EventCursor) -> None:
        error = error_of(await self._door.run(self._sent.run_id))
        if self._is_changed:
            self._show_values()
        if error is not None:
            self._frames.add("error", error)
        self._close(cursor)

    def _close(self, cursor: EventCursor) -> None:
        self._frames.add("end", None)
        self._frames.mark(cursor)
        self.is_over = True

    def _show_values(self, asked: Sequence[JsonObject] = ()) -> None:
        """Show the values. This depends on an event of the run alone, and not on how many come at once."""
        self._is_changed = False
        if self._frames.shows("values"):
            values: JsonObject = {"messages": messages_of(self._items)}
            self._frames.add("values", {**values, "__interrupt__": list(asked)} if asked else values)

    def _about(self, item_id: str, node: str) -> JsonObject:
        return {
            "run_id": self._sent.run_id,
            "thread_id": self._sent.thread_name,
            "langgraph_node": node,
            "nova_item_id": item_id,
        }
