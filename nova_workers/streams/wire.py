"""The encoding of events in Redis: one payload per flush with several events, each with its sequence number.

The payload is ``{"a": <attempt>, "e": [[<seq>, <event>], …]}``. It is the only field (``p``) of a stream entry whose id
is ``<attempt>-<seq of its last event>``, and the same bytes are published on the run's channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import orjson

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.events import EventCursor

__all__ = ["FIELD", "LiveEvent", "decode", "encode"]

FIELD = b"p"


class LiveEvent(NamedTuple):
    """An event and its position in its run's stream."""

    cursor: EventCursor
    event: JsonObject


def encode(attempt: int, events: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the payload of events that are JSON already, given with their seqs."""
    body = b",".join(b"[%d,%s]" % (seq, event) for seq, event in events)
    return b'{"a":%d,"e":[%s]}' % (attempt, body)


def decode(payload: bytes) -> Iterator[LiveEvent]:
    """Yield the events of a payload in order."""
    document = orjson.loads(payload)
    attempt: int = document["a"]
    for seq, event in document["e"]:
        yield LiveEvent(EventCursor.model_construct(attempt=attempt, seq=seq), event)
