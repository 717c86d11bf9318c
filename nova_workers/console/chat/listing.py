"""The lists of conversations: those that a person looks for, by the day on which they began, pinned ones first."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Final, NamedTuple, Self
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from starlette.requests import Request

from nova_workers.base.errors import InvalidInput
from nova_workers.client.client import NovaClient
from nova_workers.console.paging import filter_of
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.wire import ThreadView

LISTED: Final = 30
_MOST_PINNED: Final = 50

VIEWS: Final[Mapping[str, str]] = {
    "": "All",
    "mine": "Mine",
    "triggers": "Triggers",
    "channels": "Channels",
    "archived": "Archived",
}
"""The lists by the field `of` of an address, with their titles."""
_FILTERS: Final[Mapping[str, Mapping[str, str]]] = {
    "mine": {"created_by": "me"},
    "triggers": {"origin": "trigger"},
    "channels": {"origin": "channel"},
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which conversations are listed.

    Attributes:
        view: One of `VIEWS`.
        agent: Only those of this agent.
    """

    view: str = ""
    agent: str | None = None

    @classmethod
    def by(cls, request: Request) -> Self:
        """Return the choice that an address names.

        Raises:
            InvalidInput: There is no such list.
        """
        view = filter_of(request, "of") or ""
        if view not in VIEWS:
            raise InvalidInput(f"There is no list {view!r}: choose {', '.join(filter(None, VIEWS))}.", field="of")
        return cls(view, filter_of(request, "agent"))

    @property
    def query(self) -> str:
        """The choice as the query of an address, with its question mark; empty for all conversations."""
        given = {name: value for name, value in (("of", self.view), ("agent", self.agent)) if value}
        return f"?{urlencode(given)}" if given else ""

    def tabs(self) -> list[tuple[str, str]]:
        """Return the titles and addresses of the lists of the same agent."""
        return [(title, f"/chat{type(self)(view, self.agent).query}") for view, title in VIEWS.items()]

    async def page(
        self, client: NovaClient, *, pinned: bool | None, limit: int, cursor: str | None = None
    ) -> Page[ThreadView]:
        """Return a page of the conversations, newest first."""
        return await client.threads.list(
            **_FILTERS.get(self.view, {}),  # pyright: ignore[reportArgumentType] - values of the API's vocabulary
            agent_id=self.agent,
            archived=self.view == "archived",
            pinned=pinned,
            limit=limit,
            cursor=cursor,
        )


class Group(NamedTuple):
    """Conversations under one heading."""

    title: str
    threads: Sequence[ThreadView]


class Listed(NamedTuple):
    """A page of a list.

    Attributes:
        chosen: What it is a list of.
        groups: In their order.
        page: As the API returned it, without those that are pinned.
    """

    chosen: Chosen
    groups: Sequence[Group]
    page: Page[ThreadView]

    @property
    def threads(self) -> list[ThreadView]:
        """All conversations of the page."""
        return [thread for group in self.groups for thread in group.threads]


async def load_list(
    client: NovaClient, chosen: Chosen, now: datetime, *, limit: int = LISTED, cursor: str | None = None
) -> Listed:
    """Return a page of a list; the first one begins with the pinned conversations. The archive has its days only."""
    apart = chosen.view != "archived"
    page, me, pinned = await asyncio.gather(
        chosen.page(client, pinned=False if apart else None, limit=limit, cursor=cursor),
        client.whoami(),
        chosen.page(client, pinned=True, limit=_MOST_PINNED) if apart and cursor is None else _nothing(),
    )
    groups = by_day(page.items, ZoneInfo(me.timezone), now)
    return Listed(chosen, [*([Group("Pinned", pinned.items)] if pinned.items else []), *groups], page)


def by_day(threads: Sequence[ThreadView], zone: ZoneInfo, now: datetime) -> list[Group]:
    """Return conversations, newest first, by the day on which they began in a time zone."""
    today = now.astimezone(zone).date()
    days = groupby(threads, lambda thread: thread.created_at.astimezone(zone).date())
    return [Group(_named(day, today), list(begun)) for day, begun in days]


def _named(day: date, today: date) -> str:
    if day >= today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    return f"{day:%A}, {day.day} {day:%B}" + (f" {day.year}" if day.year != today.year else "")


async def _nothing() -> Page[ThreadView]:
    return Page(items=[], next_cursor=None)
