"""Follows orchestrations to their end, and waits for a state of them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import structlog
from redis.exceptions import RedisError
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.orchestration.events import TreeCursor
from nova_workers.contracts.waits import ANSWERABLE
from nova_workers.domain.orchestrations.sql.trees import TreeHead
from nova_workers.domain.streams.rules.hub import StreamHub
from nova_workers.domain.streams.rules.trees import TreeFeed
from nova_workers.ledger.database import Database

from ..boundary import until_gone
from .following import Ending, Waited, until_first
from .run_watch import RunWatch
from .tree_delivery import LOOK_EVERY_S, RETRY_S, ItemSink, TreeDelivery, TreeLedger, TreeTarget

_log = structlog.get_logger(__name__)

_START = TreeCursor()


class TreeFollower:
    """Follows orchestrations. One object per process."""

    def __init__(self, database: Database, hub: StreamHub, watch: RunWatch) -> None:
        self._ledger = TreeLedger(database)
        self._hub = hub
        self._watch = watch

    async def find(self, target: TreeTarget) -> TreeHead:
        """Return when an orchestration began and ended.

        Raises:
            NotFound: No such orchestration in this tenant.
        """
        return await self._ledger.head(target)

    async def follow(self, target: TreeTarget, head: TreeHead, sink: ItemSink) -> Ending:
        """Pass every event after the target's cursor to a sink, until the orchestration has ended."""
        async with self._hub.follow_tree(target.orchestration_id) as feed:
            with self._watch.watch(target.orchestration_id) as woken:
                pump = TreeDelivery(self._ledger, target, feed, sink).run(head)
                ending = await until_first(pump, woken, sink.until_gone(), sink.idle_every_s, sink.on_idle)
        return "over" if ending == "done" else cast(Ending, ending)

    async def wait(self, target: TreeTarget, receive: Receive, *, timeout_s: float) -> Waited:
        """Wait until an orchestration has ended or one of its agents asks a person.

        Raises:
            NotFound: No such orchestration in this tenant.
            ClientDisconnect: The client has disconnected.
        """

        async def is_settled() -> bool:
            head = await self.find(target)
            return head.finished_at is not None or head.asks

        return await self.wait_until(target, is_settled, _may_settle, receive, timeout_s=timeout_s)

    async def wait_until(
        self,
        target: TreeTarget,
        is_done: Callable[[], Awaitable[bool]],
        is_noteworthy: Callable[[JsonObject], bool],
        receive: Receive,
        *,
        timeout_s: float,
    ) -> Waited:
        """Wait for a state of an orchestration, driven by its events.

        The ledger decides: an event is only a reason to read it, and so is silence, in case the event was lost.

        Args:
            target: The orchestration.
            is_done: Reads the ledger.
            is_noteworthy: Whether an event is a reason to read it.
            receive: Of the request.
            timeout_s: Longest wait.

        Raises:
            ClientDisconnect: The client has disconnected.
        """
        async with self._hub.follow_tree(target.orchestration_id) as feed:
            with self._watch.watch(target.orchestration_id) as woken:
                ending = await until_first(_until(feed, is_done, is_noteworthy), woken, until_gone(receive), timeout_s)
        if ending == "gone":
            raise ClientDisconnect
        return "over" if ending == "done" else ending

    async def has_more(self, target: TreeTarget) -> bool:
        """Return whether the stream, or the ledger if the stream is gone, has events after the target's cursor."""
        try:
            async with self._hub.follow_tree(target.orchestration_id) as feed:
                if await feed.first() is not None:
                    return bool(await feed.read(target.after))
        except RedisError:
            return True
        return any(
            item.cursor.key() > target.after.key() for item in await self._ledger.recorded(target.orchestration_id)
        )


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
    until_s = loop.time() + LOOK_EVERY_S
    while (left_s := until_s - loop.time()) > 0 and await feed.wait(left_s):
        try:
            while items := await feed.read(seen):
                seen = items[-1].cursor
                if any(is_noteworthy(item.record["event"]) for item in items):
                    return seen
        except RedisError as error:
            _log.warning("tree_follower.redis_unavailable", outage="redis", error=str(error))
            await asyncio.sleep(RETRY_S)
            return seen
    return seen


def _may_settle(event: JsonObject) -> bool:
    return event["type"] == "orchestration_end" or (event["type"] == "waiting" and event["kind"] in ANSWERABLE)
