"""Delivers the events of an orchestration to one follower: live, and from the ledger what the stream does not have."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import structlog
from redis.exceptions import RedisError

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.orchestration.events import TreeCursor, TreeRecord
from nova_workers.domain.orchestrations.sql.changes import open_questions, recorded_news
from nova_workers.domain.orchestrations.sql.trees import TreeHead, tree_head
from nova_workers.domain.streams.rules.trees import TreeFeed, TreeItem
from nova_workers.ledger.database import Database

_log = structlog.get_logger(__name__)

LOOK_EVERY_S = 5.0
"""How often an orchestration is looked up in the ledger, in case its end or a question was not published."""
RETRY_S = 0.25
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


class TreeLedger:
    """What the ledger has of orchestrations, as followers need it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def head(self, target: TreeTarget) -> TreeHead:
        """Return when an orchestration began and ended.

        Raises:
            NotFound: No such orchestration in this tenant.
        """
        async with self._database.connection() as connection:
            return await tree_head(connection, target.tenant_id, target.orchestration_id)

    async def questions(self, orchestration_id: str) -> list[TreeRecord]:
        """Return the questions of agents to a person, except those whose events may still be on their way."""
        async with self._database.connection() as connection:
            return await open_questions(connection, orchestration_id, older_than_s=LOOK_EVERY_S)

    async def recorded(self, orchestration_id: str) -> list[TreeItem]:
        """Return the items of an orchestration in the ledger, oldest first, with ids made of times."""
        async with self._database.connection() as connection:
            records = await recorded_news(connection, orchestration_id)
        items: list[TreeItem] = []
        for at, record in records:
            ms = int(at.timestamp() * 1000)
            number = items[-1].cursor.number + 1 if items and items[-1].cursor.ms == ms else 1
            cursor = TreeCursor(ms=ms, number=number)
            items.append(TreeItem(cursor, record.model_dump(mode="json", exclude_none=True)))
        return items


class _Question(NamedTuple):
    run_id: str
    tool_call_id: str


class TreeDelivery:
    """Moves the events of one orchestration to one sink."""

    def __init__(self, ledger: TreeLedger, target: TreeTarget, feed: TreeFeed, sink: ItemSink) -> None:
        self._ledger = ledger
        self._target = target
        self._feed = feed
        self._sink = sink
        self._sent = target.after
        self._is_over = False
        self._asked: set[_Question] = set()
        """Questions that the stream has, or that were sent."""
        self._look_due_s = 0.0

    async def run(self, head: TreeHead) -> None:
        """Send until the orchestration has ended and everything was sent."""
        await self._replay_lost(head)
        while True:
            sent = await self._send_new()
            if (self._is_over or not sent or self._is_look_due()) and await self._look():
                return
            await self._feed.wait(LOOK_EVERY_S)

    async def _look(self) -> bool:
        """Send what the ledger has and was not published. Return whether the orchestration has ended."""
        self._look_due_s = asyncio.get_running_loop().time() + LOOK_EVERY_S
        head = await self._ledger.head(self._target)
        if head.asks:
            await self._send_lost_questions()
        if head.finished_at is None or await self._send_new():
            return False
        await self._send_end(head.finished_at)
        return True

    def _is_look_due(self) -> bool:
        return asyncio.get_running_loop().time() >= self._look_due_s

    async def _send_lost_questions(self) -> None:
        """Send each open question whose worker died before it published the event."""
        for record in await self._ledger.questions(self._target.orchestration_id):
            record_json = record.model_dump(mode="json", exclude_none=True)
            question = _question(record_json)
            if question in self._asked:
                continue
            if not await self._was_asked(question):
                await self._send([TreeItem(self._next_cursor(), record_json)])
            self._asked.add(question)

    async def _was_asked(self, question: _Question) -> bool:
        try:
            return question.tool_call_id in await self._feed.questions(question.run_id)
        except RedisError:
            return False

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
        items = await self._ledger.recorded(self._target.orchestration_id)
        lost = [item for item in items if first is None or item.cursor.ms < first.ms]
        await self._send([item for item in lost if item.cursor.key() > self._sent.key()])

    async def _send_new(self) -> bool:
        """Send what was added to the stream, and return whether there was anything."""
        sent = False
        while True:
            try:
                items = await self._feed.read(self._sent)
            except RedisError as error:
                _log.warning("tree_follower.redis_unavailable", outage="redis", error=str(error))
                await asyncio.sleep(RETRY_S)
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
                if item.record["event"]["type"] == "waiting":
                    self._asked.add(_question(item.record))

    def _next_cursor(self) -> TreeCursor:
        """Return an id for an event from the ledger, after what was sent."""
        return self._sent.model_copy(update={"number": self._sent.number + 1})

    async def _was_published(self, finished_at: datetime) -> bool:
        """Return whether the stream has the end of an orchestration that ended then. Clocks of servers may differ."""
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
        if self._is_over:
            return
        if await self._was_published(finished_at):
            # Perhaps only since the stream was read.
            await self._send_new()
        elif items := await self._ledger.recorded(self._target.orchestration_id):
            await self._send([TreeItem(self._next_cursor(), items[-1].record)])


def _question(record: JsonObject) -> _Question:
    return _Question(record.get("run_id", ""), record["event"].get("tool_call_id", ""))


def _is_over(event: JsonObject, *, before: bool) -> bool:
    """Return whether the orchestration has ended, by an event: a continuation begins with the master's PENDING."""
    if event["type"] == "orchestration_end":
        return True
    return before and not (event["type"] == "agent_state" and event["depth"] == 0 and event["state"] == "PENDING")
