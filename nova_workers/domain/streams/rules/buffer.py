"""The events of a run that wait to be sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime

import orjson
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from nova_workers.contracts.content import storable_json
from nova_workers.contracts.events import Event, Reasoning, Token

_MAX_BUFFERED = 10_000
"""Events of one run kept while Redis is unavailable. Older ones are dropped: clients fill the gap from the ledger."""
_MAX_BUFFERED_BYTES = 2_000_000
"""The same for their size."""
_MAX_BATCH = 200
"""Events per entry, so that a late reader does not parse huge documents."""
_MAX_JOINED_CHARS = 2_000
"""Size of a piece of text that is joined from several, because they come faster than they can be sent."""


class EventBuffer:
    """Events of one run that are to be sent, oldest first.

    If more than one batch waits, pieces of text are joined: a model that streams faster than Redis takes loses no text.
    """

    def __init__(self) -> None:
        self._events: deque[tuple[int, bytes]] = deque()
        self._size_bytes = 0
        self._unsent: list[tuple[int, bytes]] = []
        """A batch that was put back. It is not trimmed."""
        self._open: Token | Reasoning | None = None
        """The first piece of the newest event, to which more text may be joined."""
        self._open_at: datetime
        self._pieces: list[str] = []
        self._open_seq = 0
        self._open_chars = 0

    def __len__(self) -> int:
        return len(self._unsent) + len(self._events) + (self._open is not None)

    def join(self, event: Event) -> bool:
        """Join a piece of text to the newest event, if that is open for it."""
        if self._open is None or not isinstance(event, Token | Reasoning) or self._open_chars > _MAX_JOINED_CHARS:
            return False
        if (event.type, event.agent) != (self._open.type, self._open.agent):
            return False
        self._pieces.append(event.text)
        self._open_chars += len(event.text)
        return True

    def add(self, seq: int, event: Event, at: datetime) -> None:
        """Add an event without a time, and the time at which it happened."""
        if self._open is not None:
            self._close()
        if len(self._events) >= _MAX_BATCH and isinstance(event, Token | Reasoning):
            self._open, self._open_at, self._open_seq = event, at, seq
            self._pieces, self._open_chars = [event.text], len(event.text)
        else:
            self._append(seq, _at(at, event))

    def take(self) -> list[tuple[int, bytes]]:
        """Take the next batch out."""
        if self._unsent:
            batch, self._unsent = self._unsent, []
            return batch
        if len(self._events) < _MAX_BATCH:
            self._close()
        batch = [self._events.popleft() for _ in range(min(len(self._events), _MAX_BATCH))]
        self._size_bytes -= sum(len(body) for _, body in batch)
        return batch

    def put_back(self, batch: Sequence[tuple[int, bytes]]) -> None:
        """Put back the batch that was taken last, if Redis did not answer.

        Redis may have added it. It is sent again unchanged: with its id, Redis refuses it then.
        """
        self._unsent = list(batch)

    def _close(self) -> None:
        if (event := self._open) is not None:
            self._open = None
            self._append(self._open_seq, _at(self._open_at, event.model_copy(update={"text": "".join(self._pieces)})))

    def _append(self, seq: int, body: bytes) -> None:
        self._events.append((seq, body))
        self._size_bytes += len(body)
        if self._size_bytes > _MAX_BUFFERED_BYTES or len(self._events) > _MAX_BUFFERED:
            self._trim()

    def _trim(self) -> None:
        while len(self._events) > _MAX_BUFFERED or (self._size_bytes > _MAX_BUFFERED_BYTES and len(self._events) > 1):
            self._size_bytes -= len(self._events.popleft()[1])


def to_json(event: BaseModel) -> bytes:
    """Return an event, or a record with one, as JSON."""
    try:
        # `model_dump_json` makes text of these bytes, for each token of each response.
        return event.__pydantic_serializer__.to_json(event, exclude_none=True)
    except PydanticSerializationError:
        # A lone surrogate in text from a model or a tool.
        return orjson.dumps(storable_json(event.model_dump(exclude_none=True)))


def _at(at: datetime, event: Event) -> bytes:
    """Return an event as JSON with its time, which is put into the JSON: a copy of the event costs more than that."""
    return b'{"at":%b,%b' % (orjson.dumps(at, option=orjson.OPT_UTC_Z), to_json(event)[1:])
