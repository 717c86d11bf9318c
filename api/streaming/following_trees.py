"""Follows an orchestration to its end: live, and from the ledger what the stream does not have any more."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, cast

import structlog
from redis.exceptions import RedisError

from api.streaming.following import Ending, until_first
from api.streaming.run_watch import RunWatch
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.orchestration.events import TreeCursor
from nova_workers.contracts.waits import ANSWERABLE
from nova_workers.ledger.database import Database
from nova_workers.ledger.orchestrations.changes import recorded_news
from nova_workers.ledger.orchestrations.trees import TreeHead, tree_head
from nova_workers.streams.hub import StreamHub
from nova_workers.streams.trees import TreeFeed, TreeItem

__all__ = ["ItemSink", "TreeFollower", "TreeTarget"]

_log = structlog.get_logger(__name__)

_LOOK_EVERY_S = 5.0
"""How often a silent orchestration is looked up in the ledger, in case its end was not published."""
_RETRY_S = 0.25
_CLOCKS_DIFFER_MS = 5_000
_FIRST_ENTRY_WITHIN_MS = 5_000
"""A stream whose oldest entry is later after the start than this has lost its beginning."""
_START = TreeCursor()


@dataclass(frozen=True, slots=True)
class TreeTarget:
    """The orchestration to follow, and the cursor to start from."""

    tenant_id: str
    orchestration_id: str
    after: TreeCursor = _START


class ItemSink(Protocol):
    """Receives the events of an orchestration: one HTTP response."""

    async def on_items(self, items: Sequence[TreeItem]) -> None:
        """Take events, in order."""
        ...

    @property
    def idle_every_s(self) -> float:
        """How often `on_idle` is called."""
        ...

    @property
    def on_idle(self) -> Callable[[], Awaitable[None]]:
        """Say that the stream is alive."""
        ...

    @property
    def until_gone(self) -> Callable[[], Coroutine[Any, Any, None]]:
        """Return when the client has disconnected."""
        ...


class TreeFollower:
    """Follows orchestrations. One object per process."""

    def __init__(self, database: Database, hub: StreamHub, watch: RunWatch) -> None:
        self._database = database
        self._hub = hub
        self._watch = watch

    async def find(self, target: TreeTarget) -> TreeHead:
        """Return when an orchestration began and ended.

        Raises:
            NotFound: No such orchestration in this tenant.
        """
        async with self._database.connection() as connection:
            return await tree_head(connection, target.tenant_id, target.orchestration_id)

    async def follow(self, target: TreeTarget, head: TreeHead, sink: ItemSink) -> Ending:
        """Pass every event after the target's cursor to a sink, until the orchestration has ended."""
        async with self._hub.follow_tree(target.orchestration_id) as feed:
            with self._watch.watch(target.orchestration_id) as woken:
                pump = _Pump(self, target, feed, sink).run(head)
                ending = await until_first(pump, woken, sink.until_gone(), sink.idle_every_s, sink.on_idle)
        return "over" if ending == "done" else cast(Ending, ending)

    async def wait(
        self, target: TreeTarget, until_gone: Coroutine[Any, Any, None], *, timeout_s: float
    ) -> Ending | Literal["timeout"]:
        """Wait until an orchestration has ended or one of its agents asks a person.

        Raises:
            NotFound: No such orchestration in this tenant.
        """

        async def is_settled() -> bool:
            head = await self.find(target)
            return head.finished_at is not None or head.asks

        return await self.wait_until(target, is_settled, _may_settle, until_gone, timeout_s=timeout_s)

    async def wait_until(
        self,
        target: TreeTarget,
        is_done: Callable[[], Awaitable[bool]],
        is_noteworthy: Callable[[JsonObject], bool],
        until_gone: Coroutine[Any, Any, None],
        *,
        timeout_s: float,
    ) -> Ending | Literal["timeout"]:
        """Wait for a state of an orchestration, driven by its events.

        The ledger decides: an event is only a reason to read it, and so is silence, in case the event was lost.

        Args:
            target: The orchestration.
            is_done: Reads the ledger.
            is_noteworthy: Whether an event is a reason to read it.
            until_gone: Returns once the client has disconnected.
            timeout_s: Longest wait.
        """
        async with self._hub.follow_tree(target.orchestration_id) as feed:
            with self._watch.watch(target.orchestration_id) as woken:
                ending = await until_first(_until(feed, is_done, is_noteworthy), woken, until_gone, timeout_s)
        return "over" if ending == "done" else ending

    async def has_more(self, target: TreeTarget) -> bool:
        """Whether there are events after the target's cursor: in the stream, or in the ledger if the stream is gone."""
        try:
            async with self._hub.follow_tree(target.orchestration_id) as feed:
                if await feed.first() is not None:
                    return bool(await feed.read(target.after))
        except RedisError:
            return True
        return any(item.cursor.key() > target.after.key() for item in await self.recorded(target.orchestration_id))

    async def recorded(self, orchestration_id: str) -> list[TreeItem]:
        """Return what the ledger has of an orchestration, oldest first, with ids made of times."""
        async with self._database.connection() as connection:
            records = await recorded_news(connection, orchestration_id)
        items: list[TreeItem] = []
        for at, record in records:
            ms = int(at.timestamp() * 1000)
            number = items[-1].cursor.number + 1 if items and items[-1].cursor.ms == ms else 1
            cursor = TreeCursor(ms=ms, number=number)
            items.append(TreeItem(cursor, record.model_dump(mode="json", exclude_none=True)))
        return items


class _Pump:
    """Moves the events of one orchestration to one sink."""

    def __init__(self, follower: TreeFollower, target: TreeTarget, feed: TreeFeed, sink: ItemSink) -> None:
        self._follower = follower
        self._target = target
        self._feed = feed
        self._sink = sink
        self._sent = target.after
        self._is_over = False

    async def run(self, head: TreeHead) -> None:
        """Send until the orchestration has ended and everything was sent."""
        await self._replay_lost(head)
        while True:
            sent = await self._send_new()
            finished_at = (await self._follower.find(self._target)).finished_at if self._is_over or not sent else None
            if finished_at is not None and not await self._send_new():
                await self._send_end(finished_at)
                return
            await self._feed.wait(_LOOK_EVERY_S)

    async def _replay_lost(self, head: TreeHead) -> None:
        """Send from the ledger what happened before the oldest entry of the stream, if the client needs it."""
        try:
            first = await self._feed.first()
        except RedisError:
            first = None
        started_ms = int(head.created_at.timestamp() * 1000)
        if first is not None and (
            first.ms <= started_ms + _FIRST_ENTRY_WITHIN_MS or self._target.after.key() >= first.key()
        ):
            return
        items = await self._follower.recorded(self._target.orchestration_id)
        lost = [item for item in items if first is None or item.cursor.ms < first.ms]
        await self._send([item for item in lost if item.cursor.key() > self._sent.key()])

    async def _send_new(self) -> bool:
        """Send what was added to the stream, and return whether there was anything."""
        sent = False
        while True:
            try:
                items = await self._feed.read(self._sent)
            except RedisError as error:
                _log.warning("tree_follower.redis_unavailable", error=str(error))
                await asyncio.sleep(_RETRY_S)
                return sent
            if not items:
                return sent
            await self._send(items)
            sent = True

    async def _send(self, items: Sequence[TreeItem]) -> None:
        if items:
            await self._sink.on_items(items)
            self._sent = items[-1].cursor
            for item in items:
                self._is_over = _is_over(item.record["event"], before=self._is_over)

    async def _was_published(self, finished_at: datetime) -> bool:
        """Whether the stream has the end of an orchestration that ended then. Clocks of servers may differ a little."""
        after = TreeCursor(ms=int(finished_at.timestamp() * 1000) - _CLOCKS_DIFFER_MS)
        try:
            while items := await self._feed.read(after):
                if any(item.record["event"]["type"] == "orchestration_end" for item in items):
                    return True
                after = items[-1].cursor
        except RedisError:
            pass
        return False

    async def _send_end(self, finished_at: datetime) -> None:
        """Send the end from the ledger, if it was not published.

        Events of runs may follow it, so a client that resumes between them has it already.
        """
        if self._is_over or await self._was_published(finished_at):
            return
        if items := await self._follower.recorded(self._target.orchestration_id):
            cursor = self._sent.model_copy(update={"number": self._sent.number + 1})
            await self._send([TreeItem(cursor, items[-1].record)])


async def _until(
    feed: TreeFeed, is_done: Callable[[], Awaitable[bool]], is_noteworthy: Callable[[JsonObject], bool]
) -> None:
    seen = await _newest(feed)
    while not await is_done():
        seen = await _next_noteworthy(feed, seen, is_noteworthy)


async def _newest(feed: TreeFeed) -> TreeCursor:
    """Return a cursor after the newest event. The start if Redis does not answer."""
    try:
        return await feed.last()
    except RedisError:
        return _START


async def _next_noteworthy(feed: TreeFeed, seen: TreeCursor, is_noteworthy: Callable[[JsonObject], bool]) -> TreeCursor:
    """Wait for a noteworthy event, and return the cursor after it.

    Without such an event it returns after some seconds.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + _LOOK_EVERY_S
    while (left_s := until_s - loop.time()) > 0 and await feed.wait(left_s):
        try:
            while items := await feed.read(seen):
                seen = items[-1].cursor
                if any(is_noteworthy(item.record["event"]) for item in items):
                    return seen
        except RedisError as error:
            _log.warning("tree_follower.redis_unavailable", error=str(error))
            await asyncio.sleep(_RETRY_S)
            return seen
    return seen


def _may_settle(event: JsonObject) -> bool:
    return event["type"] == "orchestration_end" or (event["type"] == "waiting" and event["kind"] in ANSWERABLE)


def _is_over(event: JsonObject, *, before: bool) -> bool:
    """Whether the orchestration has ended, by an event: a continuation begins with the master's PENDING."""
    if event["type"] == "orchestration_end":
        return True
    return before and not (event["type"] == "agent_state" and event["depth"] == 0 and event["state"] == "PENDING")
