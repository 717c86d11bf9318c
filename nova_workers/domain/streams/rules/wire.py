"""The encoding of events in Redis: one payload per flush with several events, each with its sequence number.

The payload is ``{"a": <attempt>, "e": [[<seq>, <event>], …]}``. It is the only field (``p``) of a stream entry whose id
is ``<attempt>-<seq of its last event>``, and the same bytes are published on the run's channel. With the last event of
a plain run it also has ``"r"``, a `RunEnding`: for our processes, and never sent to clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import orjson
import structlog
from pydantic import BaseModel, ConfigDict

from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.events import EventCursor

_log = structlog.get_logger(__name__)

FIELD = b"p"
_MAX_CHARS = 16_000
"""A longer message is not worth its digest: the read costs less."""


class LiveEvent(NamedTuple):
    """An event and its position in its run's stream."""

    cursor: EventCursor
    event: JsonObject
    ending: JsonObject | None = None
    """The ending of a plain run, with its last event: a `RunEnding`."""


class Batch(NamedTuple):
    """Events that arrived together, without a gap between them."""

    events: list[LiveEvent]
    """Empty if the stream misses the end of an attempt: see `Feed.look`."""
    has_gap: bool
    """Whether events may be missing before the first one, also in the stream."""


def encode(attempt: int, events: Sequence[tuple[int, bytes]], ending: bytes | None = None) -> bytes:
    """Return the payload of events that are JSON already, given with their seqs, as is the ending."""
    body = b",".join(b"[%d,%s]" % (seq, event) for seq, event in events)
    return b'{"a":%d,"e":[%s]%s}' % (attempt, body, b"" if ending is None else b',"r":' + ending)


def decode(payload: bytes) -> list[LiveEvent]:
    """Return the events of a payload in order: none of one that no publisher wrote, which is logged."""
    try:
        document = orjson.loads(payload)
        attempt, events = document["a"], document["e"]
        found = [
            LiveEvent(EventCursor.model_construct(attempt=attempt, seq=seq, number=0), event) for seq, event in events
        ]
        if type(attempt) is int and all(type(at.seq) is int and _is_event(event, attempt) for at, event, _ in found):
            if isinstance(ending := document.get("r"), dict) and found and is_final(found[-1]):
                found[-1] = found[-1]._replace(ending=ending)
            return found
        error = "an attempt, a number or an event has another form"
    except (ValueError, TypeError, KeyError) as raised:
        error = repr(raised)
    _log.warning("stream.payload_dropped", size=len(payload), error=error[:200])
    return []


def _is_event(event: object, attempt: int) -> bool:
    """Return whether a value has what readers of streams rely on. Records of an orchestration have the attempt 0."""
    if not isinstance(event, dict):
        return False
    named: Mapping[str, object] = event
    return attempt == 0 or (isinstance(named.get("type"), str) and (named["type"] != "stream_end" or "final" in named))


def is_final(event: LiveEvent) -> bool:
    """Return whether an event is the last of its run."""
    return event.event["type"] == "stream_end" and bool(event.event["final"])


class Continuity:
    """Detects missing events from the ids of the events that were read.

    Within an attempt, ids have no gaps. The first event of an attempt continues the stream only if the attempt before
    it is known to be whole: its last event is a `stream_end`.
    """

    def __init__(self, after: EventCursor) -> None:
        self.cursor = after
        """The id of the last event."""
        self._attempt_ended = after.key() == EventCursor().key()

    def recall(self, event: LiveEvent) -> None:
        """Take note of an event that was read before, and may be the one at the cursor."""
        if event.cursor.key() == self.cursor.key():
            self._attempt_ended = event.event["type"] == "stream_end"

    def has_ended(self, attempt: int) -> bool:
        """Return whether the last event of an attempt was read."""
        return self._attempt_ended and self.cursor.attempt >= attempt and self.cursor.seq > 0

    def is_next(self, cursor: EventCursor) -> bool:
        """Return whether no event is missing between the cursor and another one, which is after it."""
        before = self.cursor
        if cursor.attempt == before.attempt:
            return cursor.seq == before.seq + 1 and not before.number
        ended = self._attempt_ended and not before.number
        return ended and cursor.attempt == before.attempt + 1 and cursor.seq == 1

    def advance(self, event: LiveEvent) -> None:
        """Move the cursor to an event."""
        self.cursor = event.cursor
        self._attempt_ended = event.event["type"] == "stream_end"

    def batches(self, events: Iterable[LiveEvent]) -> Iterator[Batch]:
        """Drop events that were read before, and yield the others in batches without gaps. Move the cursor to them."""
        batch = Batch([], has_gap=False)
        for event in events:
            if not self.is_next(event.cursor):
                if event.cursor.key() <= self.cursor.key():
                    self.recall(event)
                    continue
                if batch.events:
                    yield batch
                batch = Batch([], has_gap=True)
            batch.events.append(event)
            self.advance(event)
        if batch.events:
            yield batch


class RunEnding(BaseModel):
    """What a plain run has at its end and did not have when it was accepted, besides what its last event tells.

    Plain is a run that succeeded, without an output by a schema, on a message that is one text.
    """

    model_config = ConfigDict(frozen=True)

    message: str
    """The digest of the message that was answered: it may have been edited since it was accepted."""
    agent_id: str
    agent_version: int
    turn_id: str
    cancel_requested_at: datetime | None = None
    """The time at which a run was canceled too late."""
    started_at: datetime
    finished_at: datetime


def message_digest(content: Sequence[ContentBlock]) -> str | None:
    """Return a digest of a message that is one text block of moderate size; None of any other."""
    if len(content) != 1 or content[0].keys() != {"type", "text"} or content[0]["type"] != "text":
        return None
    text: str = content[0]["text"]
    if len(text) > _MAX_CHARS:
        return None
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
