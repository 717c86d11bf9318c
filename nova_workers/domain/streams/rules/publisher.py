"""The writing side: buffers a run's events and sends them in one pipeline for all runs of the process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import cast

import orjson
import structlog
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError
from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import RedisError, ResponseError

from nova_workers.base.clock import Clock
from nova_workers.base.keys import (
    EVENTS_MAX_ENTRIES,
    EVENTS_TTL_S,
    orchestration_channel,
    orchestration_events,
    run_channel,
    run_events,
)
from nova_workers.contracts.content import storable_json
from nova_workers.contracts.events import Event, EventCursor, Reasoning, StreamEnd, Token
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.domain.streams.rules.wire import FIELD, RunEnding, encode

_log = structlog.get_logger(__name__)

_MAX_NEWS = 10_000
"""Changes of orchestrations kept while Redis is unavailable; the ledger has them all."""
_PUBLISH_TREE = (Path(__file__).parent / "publish_tree.lua").read_text(encoding="utf-8")
_RETRY_S = 0.25
_EXPIRE_EVERY_S = 10.0
"""A run that streams for hours keeps its events, and one whose key Redis lost gets its TTL again."""

_MAX_BUFFERED = 10_000
"""Events of one run kept while Redis is unavailable. Older ones are dropped: clients fill the gap from the ledger."""
_MAX_BUFFERED_BYTES = 2_000_000
"""The same for their size."""
_MAX_BATCH = 200
"""Events per entry, so that a late reader does not parse huge documents."""
_MAX_JOINED_CHARS = 2_000
"""Size of a piece of text that is joined from several, because they come faster than they can be sent."""


@dataclass(frozen=True, slots=True)
class TreeSource:
    """The orchestration on whose stream the events of a run are published too, and the run's agent in it."""

    orchestration_id: str
    agent_id: str


class RunEvents:
    """The stream of one attempt of one run. `emit` never waits and never fails."""

    def __init__(
        self, publisher: EventPublisher, clock: Clock, run_id: str, attempt: int, tree: TreeSource | None = None
    ) -> None:
        self.run_id = run_id
        self.tree = tree
        self.attempt = attempt
        self.due_s = 0.0
        """Earliest time of the next flush."""
        self.refused = False
        """Redis has an entry of a later attempt: this worker lost the run and sends no more."""
        self.expire_due_s = 0.0
        """When to renew the key's TTL, on the monotonic clock."""
        self.ending: bytes | None = None
        """Sent beside the events from `end` on."""
        self._publisher = publisher
        self._clock = clock
        self._seq = 0
        self._buffer = _EventBuffer()

    def emit(self, event: Event, *, urgent: bool = False) -> None:
        """Send an event soon, with the current time. An urgent one does not wait for the flush interval.

        Text that comes faster than it can be sent is joined to the event before it, and then has the id of that event.
        """
        if self.refused:
            self._seq += 1
        elif not self._buffer.join(event):
            self._seq += 1
            self._buffer.add(self._seq, event, self._clock.now())
            self.due_s = 0.0 if urgent else self.due_s
            self._publisher.mark_dirty(self)

    def end(self, event: StreamEnd, ending: RunEnding | None) -> None:
        """Send the last event of the run at once, and what those who wait for the run need besides."""
        self.ending = None if ending is None else to_json(ending)
        self.emit(event, urgent=True)

    def upcoming(self, ahead: int = 1) -> EventCursor:
        """Return the id that the event after `ahead` - 1 others will have; with 0, that of the last one."""
        return EventCursor.model_construct(attempt=self.attempt, seq=self._seq + ahead, number=0)

    def take(self) -> list[tuple[int, bytes]]:
        """Take the next batch out of the buffer."""
        return self._buffer.take()

    def put_back(self, batch: list[tuple[int, bytes]]) -> None:
        """Put back a batch that could not be sent."""
        self._buffer.put_back(batch)

    def __len__(self) -> int:
        return len(self._buffer)


class EventPublisher:
    """Sends the events of all runs of a process.

    The first event after a pause is sent at once; then a run's events are sent at most every `flush_ms`, several per
    entry.
    """

    def __init__(
        self, redis: Redis, *, flush_ms: int, clock: Clock, on_sent: Callable[[float], object] = float
    ) -> None:
        """Take the server.

        Args:
            redis: Where streams are.
            flush_ms: The shortest time between two entries of a run.
            clock: The time.
            on_sent: Receives for each flush how long its oldest event waited, in seconds.
        """
        self._redis = redis
        self._flush_s = flush_ms / 1000
        self._clock = clock
        self._on_sent = on_sent
        self._dirty: dict[RunEvents, float] = {}
        """Runs with something to send, each with the time from which it waits, on the monotonic clock."""
        self._news: deque[TreeNews] = deque(maxlen=_MAX_NEWS)
        self._hinted: deque[str] = deque(maxlen=_MAX_NEWS)
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def open(self, run_id: str, attempt: int, tree: TreeSource | None = None) -> RunEvents:
        """Begin the stream of an attempt."""
        return RunEvents(self, self._clock, run_id, attempt, tree)

    def announce_tree(self, news: TreeNews) -> None:
        """Send what a transaction changed in an orchestration, on its stream, after urgent events of runs until now."""
        if news.records:
            self._news.append(news)
            self._idle.clear()
            self._wake.set()

    def hint(self, run_ids: Sequence[str]) -> None:
        """Let followers of runs that were not begun look at the ledger, which has why they do not begin.

        Best effort: they look by themselves every few seconds.
        """
        if run_ids:
            self._hinted.extend(run_ids)
            self._idle.clear()
            self._wake.set()

    def mark_dirty(self, events: RunEvents) -> None:
        """Note that a run has something to send."""
        if events in self._dirty and events.due_s:
            # It is sent when it is due: to look each time would cost more than to send.
            return
        if events not in self._dirty:
            self._dirty[events] = self._clock.monotonic_s()
        self._idle.clear()
        self._wake.set()

    async def run(self) -> None:
        """Send until canceled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._flush_due()
                continue
            except RedisError as error:
                _log.warning("events.redis_unavailable", outage="redis", waiting=len(self._dirty), error=str(error))
            except Exception:
                _log.exception("events.flush_failed")
            await asyncio.sleep(_RETRY_S)
            self._wake.set()

    def announce_end(self, run_id: str, event: Event) -> None:
        """Send the only event of a run that never began (canceled while queued, or merged). Its id is ``0-1``."""
        self.open(run_id, 0).emit(event, urgent=True)

    async def drain(self, timeout_s: float) -> None:
        """Wait until everything is sent, at most this long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            _log.warning("events.not_all_sent", waiting=len(self._dirty))

    async def _flush_due(self) -> None:
        now_s = self._clock.monotonic_s()
        due = [events for events in self._dirty if events.due_s <= now_s]
        # News that arrive while events are sent are left for the next flush: events before them may have arrived too.
        news = list(self._news)
        if due:
            await self._send(due, now_s)
        if news:
            await self._send_news(news)
        if self._hinted:
            await self._send_hints()
        if not self._dirty and not self._news and not self._hinted:
            self._idle.set()
        elif self._dirty:
            wait_s = min(events.due_s for events in self._dirty) - self._clock.monotonic_s()
            asyncio.get_running_loop().call_later(max(wait_s, 0), self._wake.set)

    async def _send(self, due: list[RunEvents], now_s: float) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        batches: list[tuple[RunEvents, list[tuple[int, bytes]], int]] = []
        commands, waiting_since_s = 0, now_s
        for events in due:
            since_s = self._dirty.pop(events)
            waiting_since_s = min(waiting_since_s, since_s)
            events.due_s = now_s + self._flush_s
            batch = events.take()
            if len(events):
                self._dirty[events] = since_s
            if not batch:
                continue
            payload = encode(events.attempt, batch, events.ending)
            batches.append((events, batch, commands))
            commands += _add(pipeline, events, f"{events.attempt}-{batch[-1][0]}", payload)
            # At the end too: Redis may have lost the key since, and would keep the new one for ever.
            if now_s >= events.expire_due_s or b'"stream_end"' in payload:
                pipeline.expire(run_events(events.run_id), EVENTS_TTL_S)
                commands += 1
                events.expire_due_s = now_s + _EXPIRE_EVERY_S
        try:
            answers = await pipeline.execute(raise_on_error=False)
        except RedisError:
            for events, batch, _ in batches:
                events.put_back(batch)
                events.expire_due_s = 0.0
                self._dirty[events] = waiting_since_s
            raise
        self._on_sent(self._clock.monotonic_s() - waiting_since_s)
        for events, batch, position in batches:
            answer = answers[position]
            if isinstance(answer, ResponseError) and "equal or smaller" in str(answer):
                await self._look_who_writes(events, batch[-1][0])
            elif isinstance(answer, Exception):
                _log.warning("events.not_sent", outage="redis", run_id=events.run_id, error=str(answer))

    async def _send_news(self, sent: Sequence[TreeNews]) -> None:
        """Send the oldest changes of orchestrations. After a failure they are sent again: an event may come twice."""
        pipeline = self._redis.pipeline(transaction=False)
        for news in sent:
            name = orchestration_events(news.orchestration_id)
            batch = [(0, to_json(record)) for record in news.records]
            pipeline.xadd(name, {FIELD: encode(0, batch)}, maxlen=EVENTS_MAX_ENTRIES, approximate=True)
            pipeline.expire(name, EVENTS_TTL_S)
            pipeline.publish(orchestration_channel(news.orchestration_id), b"")
        answers = await pipeline.execute(raise_on_error=False)
        for _ in sent:
            self._news.popleft()
        for answer in answers:
            if isinstance(answer, Exception):
                _log.warning("events.tree_not_sent", outage="redis", error=str(answer))

    async def _send_hints(self) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        while self._hinted:
            pipeline.publish(run_channel(self._hinted.popleft()), b"")
        await pipeline.execute(raise_on_error=False)

    async def _look_who_writes(self, events: RunEvents, last_seq: int) -> None:
        """Find the reason of a refusal: a later attempt writes now, or the entry was added and its reply lost."""
        newest = cast(
            list[tuple[bytes, dict[bytes, bytes]]], await self._redis.xrevrange(run_events(events.run_id), count=1)
        )
        if newest and EventCursor.parse(newest[0][0].decode()).attempt > events.attempt:
            events.refused = True
            _log.warning("events.refused", run_id=events.run_id, attempt=events.attempt, last_seq=last_seq)


def _add(pipeline: Pipeline, events: RunEvents, entry_id: str, payload: bytes) -> int:
    """Add an entry to the stream of a run and to that of its orchestration; return the number of commands."""
    name, tree = run_events(events.run_id), events.tree
    if tree is None:
        pipeline.xadd(name, {FIELD: payload}, id=entry_id, maxlen=EVENTS_MAX_ENTRIES, approximate=True)
    else:
        keys = (name, orchestration_events(tree.orchestration_id))
        source = (tree.agent_id, events.run_id)
        pipeline.eval(_PUBLISH_TREE, 2, *keys, entry_id, payload, *source, EVENTS_MAX_ENTRIES, EVENTS_TTL_S)
        pipeline.publish(orchestration_channel(tree.orchestration_id), b"")
    pipeline.publish(run_channel(events.run_id), payload)
    return 2 if tree is None else 3


class _EventBuffer:
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
