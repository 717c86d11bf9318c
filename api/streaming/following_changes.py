"""Follows a tenant's changes: those after the client's last one from the database, then new ones as they are read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self, cast

import orjson

from nova_workers.base.errors import Unauthenticated, Unavailable
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.vocabulary import ChangeSubject
from nova_workers.contracts.changes import KEPT_S, ChangeEvent, Ready, Reset
from nova_workers.domain.changes.rules import ChangeFeed, ChangeHub
from nova_workers.domain.changes.sql import Horizon, Position, RecordedChange

from .following import Ending, until_first
from .run_watch import Wake
from .sse import EventStream, StreamClient
from .stream_permits import StreamPermit

_CURSOR = re.compile(r"([0-9a-f]{8})-(\d{1,18})-(\d{1,18})-(\d{1,11})")


@dataclass(frozen=True, slots=True)
class ChangeCursor:
    """The id of an event: a position in the changes of one database, and when there was nothing before it to be read.

    The time bounds how long the position can be resumed from, since changes are kept for a day.
    """

    database: str
    position: Position
    at: datetime

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``<database>-<transaction>-<id>-<seconds>``.

        Raises:
            ValueError: The text does not have this form.
        """
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not the id of an event of this stream")
        database, xact, id, at_s = found.groups()
        return cls(database, Position(int(xact), int(id)), datetime.fromtimestamp(int(at_s), UTC))

    def __str__(self) -> str:
        return f"{self.database}-{self.position.xact}-{self.position.id}-{int(self.at.timestamp())}"


Admit = Callable[[], Awaitable[None]]
"""Raises `Unauthenticated` once the caller's key or session has ended."""


@dataclass(frozen=True, slots=True)
class ChangeTarget:
    """Whose changes to follow, of which subjects, and from where; without a cursor from now on."""

    tenant_id: str
    subjects: frozenset[ChangeSubject]
    after: ChangeCursor | None


class ChangeFollower:
    """Sends changes to clients, each once, in order. One object per process."""

    def __init__(self, hub: ChangeHub) -> None:
        self._hub = hub
        self._open: set[asyncio.Future[Wake]] = set()
        self._is_closing = False

    async def begin(self) -> Horizon:
        """Return how far changes can be read: where a stream begins.

        Raises:
            Unavailable: The database cannot be reached.
        """
        return await self._hub.horizon()

    async def follow(self, target: ChangeTarget, begins: Horizon, client: StreamClient, admit: Admit) -> Ending:
        """Pass changes to a client until it leaves, is too slow, or the process stops.

        Args:
            target: What to follow.
            begins: Of a moment ago, from `begin`.
            client: Receives the events.
            admit: Is awaited with each heartbeat.

        Raises:
            Unauthenticated: From `admit`.
        """
        sender = _Sender(self._hub, target, begins, client)

        async def on_idle() -> None:
            # A stream goes on while the database is away.
            with suppress(Unavailable):
                await admit()
            await sender.on_idle()

        with self._watched() as woken:
            ending = await until_first(sender.run(), woken, client.until_gone(), client.idle_every_s, on_idle)
        return "over" if ending == "done" else cast(Ending, ending)

    def close(self) -> None:
        """End every stream, now and from now on: the process stops."""
        self._is_closing = True
        for woken in self._open:
            _wake(woken)

    @contextmanager
    def _watched(self) -> Generator[asyncio.Future[Wake]]:
        woken: asyncio.Future[Wake] = asyncio.get_running_loop().create_future()
        self._open.add(woken)
        if self._is_closing:
            _wake(woken)
        try:
            yield woken
        finally:
            self._open.discard(woken)
            woken.cancel()


def _wake(woken: asyncio.Future[Wake]) -> None:
    if not woken.done():
        woken.set_result("closing")


class _Sender:
    """Sends one client what it missed, and then what is new."""

    def __init__(self, hub: ChangeHub, target: ChangeTarget, begins: Horizon, client: StreamClient) -> None:
        self._hub = hub
        self._target = target
        self._begins = begins
        self._client = client
        self._sent = begins.position
        self._is_sending = False
        self._feed: ChangeFeed | None = None

    async def run(self) -> None:
        after = self._target.after
        greeting = Ready() if after is None else self._refusal(after)
        if greeting is not None:
            await self._client.send(_frame(self._cursor(self._begins.position, self._begins.at), greeting))
        elif after is not None:
            self._sent = after.position
            await self._catch_up(self._begins.position)
        async with self._hub.follow(self._target.tenant_id, self._begins) as (feed, position):
            # The feed may begin later than this stream did: other clients of the tenant are further.
            await self._catch_up(position)
            self._feed = feed
            while (changes := await feed.take()) is not None:
                await self._send(changes)

    async def on_idle(self) -> None:
        """Send a heartbeat, with the id of where the stream is if everything before it was sent."""
        position = None if self._feed is None else self._feed.quiet_since
        if position is None or position < self._sent or self._is_sending:
            await self._client.on_idle()
        else:
            self._sent = position
            cursor = self._cursor(position, max(self._hub.read_at, self._begins.at))
            await self._client.send(b": heartbeat\nid: %s\n\n" % str(cursor).encode())

    def _refusal(self, after: ChangeCursor) -> Reset | None:
        if after.database != self._begins.database or after.position.xact > self._begins.newest_xact:
            return Reset(reason="unknown")
        is_old = after.at < self._begins.at - timedelta(seconds=KEPT_S)
        return Reset(reason="expired") if is_old else None

    async def _catch_up(self, to: Position) -> None:
        while self._sent < to:
            changes = await self._hub.page(self._target.tenant_id, self._sent, to)
            if not changes:
                self._sent = to
            await self._send(changes)

    async def _send(self, changes: Sequence[RecordedChange]) -> None:
        # A client that was served by another process may have some already.
        new = [each for each in changes if each.position > self._sent]
        if not new:
            return
        wanted = [each for each in new if each.changed.subject in self._target.subjects]
        if wanted:
            self._is_sending = True
            await self._client.send(
                b"".join(_frame(self._cursor(each.position, each.changed.at), each.changed) for each in wanted)
            )
            self._is_sending = False
        self._sent = new[-1].position

    def _cursor(self, position: Position, at: datetime) -> ChangeCursor:
        return ChangeCursor(self._begins.database, position, at)


def _frame(cursor: ChangeCursor, event: ChangeEvent) -> bytes:
    data = orjson.dumps(event.model_dump(mode="json", exclude_none=True))
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (str(cursor).encode(), event.type.encode(), data)


class ChangeEventStream(EventStream):
    """A tenant's changes. It ends with its key or session, with the process, and where the client is too slow."""

    def __init__(
        self,
        target: ChangeTarget,
        begins: Horizon,
        *,
        follower: ChangeFollower,
        admit: Admit,
        permit: StreamPermit,
        metrics: Metrics,
        heartbeat_s: float,
    ) -> None:
        about = {"tenant_id": target.tenant_id}
        super().__init__(permit=permit, metrics=metrics, heartbeat_s=heartbeat_s, about=about)
        self._target = target
        self._begins = begins
        self._follower = follower
        self._admit = admit

    async def follow(self, client: StreamClient) -> Ending:
        """Send the events."""
        try:
            return await self._follower.follow(self._target, self._begins, client, self._admit)
        except Unauthenticated:
            return "closing"
