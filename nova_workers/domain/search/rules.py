"""Message search, and reading on from a hit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import structlog

from nova_workers.base.errors import InvalidInput, NotFound, NovaError
from nova_workers.contracts.http.history import SaidMessage, SearchHit, SearchResult
from nova_workers.contracts.ports import Embedder
from nova_workers.domain.search.sql.messages import MessageFilter, search_messages
from nova_workers.domain.search.sql.said import PositionedMessage, find_thread_message, messages_around
from nova_workers.ledger.database import Database

_EMBED_S: Final = 10.0
"""Most time for the query's vector: a cold model takes one second, a busy one a few. Then only words are searched."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Consecutive messages of a thread, oldest first. `sought`: the ids of the hits among them."""

    messages: tuple[SaidMessage, ...]
    sought: frozenset[str]


@dataclass(frozen=True, slots=True)
class ThreadExcerpt:
    """A part of a thread around a message."""

    title: str | None
    excerpt: Excerpt


class History:
    """Past conversations of a tenant.

    Args:
        database: The ledger.
        embedder: Makes a query's vector; None searches by words only.
    """

    def __init__(self, database: Database, embedder: Embedder | None) -> None:
        self._database = database
        self._embedder = embedder

    async def search(self, which: MessageFilter, text: str, *, limit: int) -> SearchResult:
        """Return the messages that match a query best: by words, and by meaning if a vector can be made.

        Args:
            which: Where to look.
            text: Words or a question, not blank.
            limit: Most hits, up to 50.

        Raises:
            InvalidInput: The period ends before it begins.
        """
        check_period(which.since, which.until)
        vector = await self._vector(text)
        async with self._database.transaction() as transaction:
            hits = await search_messages(
                transaction,
                which,
                text,
                vector=vector,
                model=None if self._embedder is None or vector is None else self._embedder.model,
                limit=limit,
            )
        return SearchResult(items=hits, by_meaning=vector is not None)

    async def around(
        self, tenant_id: str, hits: Sequence[SearchHit], *, before: int, after: int
    ) -> dict[str, list[Excerpt]]:
        """Return the messages around hits, by thread, in the order of the best hit of each.

        Overlapping and adjacent windows become one excerpt, so that no message occurs twice.
        """
        async with self._database.connection() as connection:
            placed = await messages_around(
                connection, tenant_id, [hit.message_id for hit in hits], before=before, after=after
            )
        threads: dict[str, list[Excerpt]] = {}
        for thread_id in dict.fromkeys(hit.thread_id for hit in hits):
            sought = frozenset(hit.message_id for hit in hits if hit.thread_id == thread_id)
            threads[thread_id] = _joined([item for item in placed if item.anchor_id in sought], sought)
        return threads

    async def read(
        self, tenant_id: str, agent_id: str, thread_id: str, *, message_id: str | None, before: int, after: int
    ) -> ThreadExcerpt:
        """Return a part of an agent's thread around a message, or its end.

        Raises:
            NotFound: The agent has no such thread, or the thread no such message.
        """
        async with self._database.connection() as connection:
            found = await find_thread_message(connection, tenant_id, agent_id, thread_id, message_id)
            if found is None:
                text = f"You have no thread {thread_id!r}. Was it deleted?"
                raise NotFound(text, kind="thread", id=thread_id, field="thread_id")
            title, anchor_id, there = found
            if not there:
                raise NotFound(
                    f"Thread {thread_id!r} has no message {message_id!r}. Take an id that history_search gave, "
                    "or leave it out for the newest.",
                    kind="message",
                    id=message_id,
                    field="message_id",
                )
            anchors = [] if anchor_id is None else [anchor_id]
            placed = await messages_around(connection, tenant_id, anchors, before=before, after=after)
        return ThreadExcerpt(title, Excerpt(tuple(item.message for item in placed), frozenset(anchors)))

    async def _vector(self, text: str) -> Sequence[float] | None:
        if self._embedder is None:
            return None
        try:
            async with asyncio.timeout(_EMBED_S):
                (vector,) = await self._embedder.embed([text])
        except (NovaError, TimeoutError) as error:
            _log.warning("search.without_meaning", error=f"{type(error).__name__}: {error}")
            return None
        return vector


def check_period(since: datetime | None, until: datetime | None) -> None:
    """Refuse an empty period.

    Raises:
        InvalidInput: It ends before it begins.
    """
    if since is not None and until is not None and until <= since:
        raise InvalidInput(
            f"until is {until.isoformat()!r}, which is not after since, {since.isoformat()!r}.", field="until"
        )


def _joined(placed: Sequence[PositionedMessage], sought: frozenset[str]) -> list[Excerpt]:
    """Join the windows of one thread's hits: each a run of messages without a gap."""
    windows: dict[str, list[PositionedMessage]] = {}
    for item in placed:
        windows.setdefault(item.anchor_id, []).append(item)
    joined: list[dict[tuple[int, int], SaidMessage]] = []
    for window in sorted(windows.values(), key=lambda items: items[0].place):
        messages = {item.place: item.message for item in window}
        if joined and messages.keys() & joined[-1].keys():
            joined[-1] |= messages
        else:
            joined.append(messages)
    return [Excerpt(tuple(messages[place] for place in sorted(messages)), sought) for messages in joined]
