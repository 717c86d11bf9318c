"""The events of a stream, and the ids after which a client resumes."""

from __future__ import annotations

from typing import Any

import orjson

from nova_workers.contracts.events import EventCursor


class Frames:
    """Events that are not sent yet.

    The id of an event is a cursor of the run: a client that resumes after it misses nothing, and gets nothing again. It
    depends on the run alone, and not on how its events were batched. Events before the one that has an id have none:
    a client that was cut off among them gets them again.
    """

    def __init__(self, modes: frozenset[str], after: EventCursor) -> None:
        """Take what the client wants to see, and the cursor that it has."""
        self.is_marked = False
        """Whether an event of this stream has an id."""
        self.is_held = False
        """Whether the client has the events that are added now: they are not sent."""
        self._modes = modes
        self._frames: list[tuple[str, Any]] = []
        self._marks: dict[int, EventCursor] = {}
        """Cursors, by the places of events."""
        self._newest = after

    def shows(self, mode: str) -> bool:
        """Return whether the client wants to see a mode."""
        return mode in self._modes

    def show(self, mode: str, data: Any, *, event: str | None = None) -> None:
        """Add an event of a mode, if the client wants to see it."""
        if mode in self._modes:
            self.add(event or mode, data)

    def add(self, event: str, data: Any) -> None:
        """Add an event."""
        if not self.is_held:
            self._frames.append((event, data))

    def mark(self, cursor: EventCursor) -> None:
        """Note that with the events so far a client has all up to a cursor. Of several it is the last that has it."""
        place = len(self._frames) - 1
        is_again = cursor == self._newest and cursor in self._marks.values()
        if place < 0 or place in self._marks or (cursor.key() <= self._newest.key() and not is_again):
            return
        self._marks = {at: known for at, known in self._marks.items() if known != cursor}
        self._marks[place] = cursor
        self._newest = cursor
        self.is_marked = True

    def begin(self, event: str, data: Any) -> None:
        """Add the first event: it has the cursor from which the stream continues."""
        self._marks[len(self._frames)] = self._newest
        self.add(event, data)

    def take(self) -> bytes:
        """Return the events as they are sent."""
        sent: list[bytes] = []
        for place, (event, data) in enumerate(self._frames):
            cursor = self._marks.get(place)
            head = "" if cursor is None else f"id: {cursor}\n"
            sent.append(b"%sevent: %s\ndata: %s\n\n" % (head.encode(), event.encode(), orjson.dumps(data)))
        self._frames.clear()
        self._marks.clear()
        return b"".join(sent)
