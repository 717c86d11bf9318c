"""The `history` capability: message search in the agent's earlier conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from nova_workers.contracts.content import storable
from nova_workers.contracts.http.history import Moment, SaidMessage, SearchQuery
from nova_workers.domain.capabilities.rules.seam import (
    Capability,
    CapabilityContext,
    CapabilityParts,
    ToolCapability,
    ToolDeclaration,
    ToolInput,
)
from nova_workers.domain.search.rules import Excerpt, History
from nova_workers.domain.search.sql.messages import MessageFilter
from nova_workers.ledger.visibility import all_tenants

_MAX_HITS = 20
_MAX_WINDOW = 5
_MAX_READ = 50
_SEARCH_CHARS = 700
"""The limit of each message of a search; history_read shows more around a hit."""
_READ_CHARS = 6_000


_Id = Annotated[str, StringConstraints(min_length=1, max_length=80), AfterValidator(storable)]


class _Search(ToolInput):
    query: Annotated[SearchQuery, Field(description="Words that were used, or what it was about, in a sentence.")]
    limit: Annotated[int, Field(ge=1, le=_MAX_HITS, description="Most messages to find.")] = 5
    since: Annotated[Moment | None, Field(description="Only from this date or time on, as 2026-01-31; UTC.")] = None
    until: Annotated[Moment | None, Field(description="Only before this date or time; UTC.")] = None
    around: Annotated[
        int, Field(ge=0, le=_MAX_WINDOW, description="How many messages to show before and after each.")
    ] = 1


class _Read(ToolInput):
    thread_id: Annotated[_Id, Field(description="As history_search gives it.")]
    message_id: Annotated[
        _Id | None, Field(description="Read around this message. Left out: the thread's newest messages.")
    ] = None
    before: Annotated[int, Field(ge=0, le=_MAX_READ, description="How many messages before it.")] = 10
    after: Annotated[int, Field(ge=0, le=_MAX_READ, description="How many messages after it.")] = 10


class _HistoryTools:
    """An agent sees its own threads except the current one, which is in its model context."""

    def __init__(self, history: History) -> None:
        self._history = history

    def declare(self) -> tuple[ToolDeclaration[Any], ...]:
        return (
            ToolDeclaration(
                name="history_search",
                description=(
                    "Search your past conversations, by words and by meaning, with what was said around each hit. "
                    "Use it when somebody refers to something that is not in this conversation."
                ),
                input=_Search,
                run=self._search,
                idempotent=True,
                read_only=True,
            ),
            ToolDeclaration(
                name="history_read",
                description="Read more of a past conversation of yours, around a message that history_search found.",
                input=_Read,
                run=self._read,
                idempotent=True,
                read_only=True,
            ),
        )

    async def _search(self, context: CapabilityContext, given: _Search) -> str:
        which = MessageFilter(
            context.tenant_id,
            context.agent_id,
            since=given.since,
            until=given.until,
            except_thread_id=context.thread_id,
        )
        # Under a policy, Postgres does not use the index of words.
        with all_tenants():
            hits = (await self._history.search(which, given.query, limit=given.limit)).items
        if not hits:
            return f"Nothing was found for {given.query!r}. Try other words, or a longer period."
        around = await self._history.around(context.tenant_id, hits, before=given.around, after=given.around)
        titles = {hit.thread_id: hit.thread_title for hit in hits}
        excerpts = {hit.message_id: hit.excerpt for hit in hits}
        parts: list[str] = []
        for thread_id, found in around.items():
            parts.append(_heading(thread_id, titles[thread_id]))
            parts += _lines(found, _SEARCH_CHARS, excerpts)
        return "\n".join(parts)

    async def _read(self, context: CapabilityContext, given: _Read) -> str:
        read = await self._history.read(
            context.tenant_id,
            context.agent_id,
            given.thread_id,
            message_id=given.message_id,
            before=given.before,
            after=given.after,
        )
        if not read.excerpt.messages:
            return f"Nothing was said in thread {given.thread_id} yet."
        return "\n".join([_heading(given.thread_id, read.title), *_lines([read.excerpt], _READ_CHARS, {})])


def _heading(thread_id: str, title: str | None) -> str:
    return f"# {title or 'Untitled'} (thread {thread_id})"


def _lines(excerpts: Sequence[Excerpt], chars: int, shown: dict[str, str]) -> list[str]:
    """Return one line per message; hits are marked and named by id, so that the agent can read on from them."""
    lines: list[str] = []
    for at, excerpt in enumerate(excerpts):
        if at:
            lines.append("[…]")
        lines += [_line(message, message.message_id in excerpt.sought, chars, shown) for message in excerpt.messages]
    return lines


def _line(message: SaidMessage, sought: bool, chars: int, shown: dict[str, str]) -> str:
    who = "you" if message.role == "assistant" else "user"
    text = message.text
    if len(text) > chars:
        text = f"{shown.get(message.message_id, text)[:chars]} […]"
    mark = f"→ {message.message_id} " if sought else ""
    return f"{mark}{message.said_at:%Y-%m-%d %H:%M} {who}: {text}"


def capability(parts: CapabilityParts) -> Capability:
    """Return the capability."""
    return ToolCapability(
        "history",
        "Search and read the agent's own past conversations.",
        _HistoryTools(History(parts.database, parts.embedder)).declare(),
    )
