"""The stream of pages that show many things: that what they show changed, and how much needs a person.

Pages name the subjects of what they show in the address of their stream, ``/changes?of=run&of=task``; one that shows
none of these has ``/changes`` for the rest.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import Unavailable
from nova_workers.client.client import NovaClient
from nova_workers.console.live import Change, renewals, resume_id, stream
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.changes import Changed, ChangeEvent
from nova_workers.contracts.http.overview.attention import AttentionGroup

PAUSE_S: Final = 1.0
"""The page is fetched at most once in this time, however much happens."""


@dataclass(slots=True)
class _News:
    """What has happened since the page was last notified."""

    of: frozenset[str]
    cursor: str | None = None
    is_shown: bool = False
    """Whether something changed that the page shows."""
    is_asked: bool = False
    """Whether what needs a person changed."""

    def note(self, item: tuple[str, ChangeEvent]) -> bool:
        self.cursor, event = item
        # Between the page and its stream something may have changed, as in a break that was too long.
        is_shown = event.subject in self.of if isinstance(event, Changed) else bool(self.of)
        is_asked = event.subject == "wait" if isinstance(event, Changed) else True
        self.is_shown |= is_shown
        self.is_asked |= is_asked
        return is_shown or is_asked


async def follow(request: Request) -> Response:
    """Stream when to fetch the page again, and how much needs a person."""
    of = frozenset(request.query_params.getlist("of"))
    return stream(state_of(request).watch, _changes(client_of(request), of, resume_id(request)))


async def _changes(client: NovaClient, of: frozenset[str], after: str | None) -> AsyncGenerator[Change]:
    news = _News(of, after)
    # The title of a page that was fetched while its stream was away has no number.
    news.is_asked = after is not None
    while True:
        try:
            async with aclosing(_until_lost(client, news)) as changes:
                async for change in changes:
                    yield change
        except Unavailable:
            # The page shows a banner meanwhile, and goes on from here.
            await asyncio.sleep(PAUSE_S)


async def _until_lost(client: NovaClient, news: _News) -> AsyncGenerator[Change]:
    if news.is_asked:
        yield await _needs(client)
        news.is_asked = False
    events = client.changes.follow(after=news.cursor)
    async with aclosing(renewals(events, news.note, pause_s=PAUSE_S)) as due:
        async for _ in due:
            cursor, is_shown, is_asked = news.cursor, news.is_shown, news.is_asked
            news.is_shown = news.is_asked = False
            if is_asked:
                yield await _needs(client)
            if is_shown:
                yield Change("refresh", "", id=cursor)


async def _needs(client: NovaClient) -> Change:
    """Return how many questions and approvals there are, and the newest."""
    view = await client.overview.attention(limit=1)
    asked = [("A question", view.questions), ("Permission needed", view.approvals)]
    groups: list[tuple[str, AttentionGroup]] = [(title, group) for title, group in asked if group is not None]
    newest = max(((item.id, title, item) for title, group in groups for item in group.items), default=None)
    document: dict[str, object] = {"count": sum(group.count for _, group in groups), "newest": None}
    if newest is not None:
        id, title, item = newest
        of = title if item.agent_id is None else f"{title}: {item.agent_id}"
        href = "/inbox" if item.run_id is None else f"/runs/{item.run_id}"
        document["newest"] = {"id": id, "title": of, "text": item.title, "href": href}
    return Change("needs", "", orjson.dumps(document).decode())
