"""The stream of an orchestration: the events of its agents' runs, and what happens to agents and between them.

An entry has the payload of `wire` in `p`, the agent in `g` and the run in `r`. Events that no run
has are in a payload with attempt 0, whole as `TreeRecord`. Redis gives the ids of entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from redis.asyncio import Redis

from nova_workers.base.keys import orchestration_events, run_events
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.orchestration.events import TreeCursor
from nova_workers.domain.streams.rules.wire import FIELD, LiveEvent, decode

AGENT_FIELD = b"g"
RUN_FIELD = b"r"
_PAGE_ENTRIES = 500
_LAST_ENTRIES = 3
"""Entries that have the last events of a run that waits: what it waits for, and the end of the attempt."""
_AFTER_ENTRY = 2**31
"""A number above that of every event of an entry."""


class TreeItem(NamedTuple):
    """An event of an orchestration and its id. `record` is a `TreeRecord` as JSON."""

    cursor: TreeCursor
    record: JsonObject


class TreeFeed:
    """The events of one orchestration for one follower: read from the stream whenever something was added."""

    def __init__(self, redis: Redis, orchestration_id: str) -> None:
        self._redis = redis
        self._key = orchestration_events(orchestration_id)
        self._added = asyncio.Event()

    def push(self, events: list[LiveEvent]) -> None:
        """Note that entries were added. They are read from the stream."""
        self._added.set()

    def resync(self) -> None:
        """Make the follower read the stream from its cursor."""
        self._added.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait until entries may have been added. False if that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._added.wait()
        except TimeoutError:
            return False
        self._added.clear()
        return True

    async def first(self) -> TreeCursor | None:
        """Return the id of the oldest entry; None if the stream is gone."""
        entries = cast(list[tuple[bytes, Any]], await self._redis.xrange(self._key, count=1))
        return _cursor(entries[0][0]) if entries else None

    async def last(self) -> TreeCursor:
        """Return a cursor after the newest entry; the start if the stream is gone."""
        entries = cast(list[tuple[bytes, Any]], await self._redis.xrevrange(self._key, count=1))
        return _cursor(entries[0][0]).model_copy(update={"number": _AFTER_ENTRY}) if entries else TreeCursor()

    async def questions(self, run_id: str) -> set[str]:
        """Return the tool calls of a waiting run whose `waiting` events were published, on its own stream and here."""
        answer = await self._redis.xrevrange(run_events(run_id), count=_LAST_ENTRIES)
        entries = cast(list[tuple[bytes, Mapping[bytes, bytes]]], answer)
        events = [event for _, fields in entries for event in decode(fields.get(FIELD, b""))]
        return {each.event.get("tool_call_id", "") for each in events if each.event.get("type") == "waiting"}

    async def read(self, after: TreeCursor) -> list[TreeItem]:
        """Return the next events after a cursor: at most a page of entries. Empty if there are none."""
        while True:
            # The entry of the cursor may have more events than the client received.
            answer = await self._redis.xrange(self._key, min=f"{after.ms}-{after.seq}", count=_PAGE_ENTRIES)
            entries = cast(list[tuple[bytes, Mapping[bytes, bytes]]], answer)
            items = [item for entry in entries for item in _items(*entry) if item.cursor.key() > after.key()]
            if items or len(entries) < _PAGE_ENTRIES:
                return items
            after = _cursor(entries[-1][0])


def _items(entry_id: bytes, fields: Mapping[bytes, bytes]) -> Iterator[TreeItem]:
    at = _cursor(entry_id)
    agent, run = fields.get(AGENT_FIELD), fields.get(RUN_FIELD)
    for number, event in enumerate(decode(fields.get(FIELD, b"")), start=1):
        cursor = at.model_copy(update={"number": number})
        if run is None:
            yield TreeItem(cursor, event.event)
        else:
            source = {"agent_id": (agent or b"").decode(), "run_id": run.decode(), "event_id": str(event.cursor)}
            yield TreeItem(cursor, {**source, "event": event.event})


def _cursor(entry_id: bytes) -> TreeCursor:
    ms, _, seq = entry_id.decode().partition("-")
    return TreeCursor(ms=int(ms), seq=int(seq))
