"""What the palette finds beside the pages of the menu: agents, conversations, runs, and what can be made."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nova_workers.client.client import NovaClient
from nova_workers.console.access import agent_choices, if_allowed
from nova_workers.console.formats import brief
from nova_workers.console.navigation import PageModule
from nova_workers.console.paging import filter_of
from nova_workers.console.rights import may
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.content import text_of

_MOST: Final = 5
"""How many agents, conversations and runs are shown."""
_LEAST_CHARS: Final = 2
_RUN_CHARS: Final = 3
_CHARS: Final = 80
_RECENT: Final = timedelta(days=7)
"""Runs of this time are looked through: no index has their texts, and a person goes on typing."""

_ACTIONS: Final[tuple[tuple[str, str], ...]] = (
    ("New conversation", "/chat"),
    ("New agent", "/agents/~new"),
    ("New trigger", "/triggers/new"),
    ("New task", "/tasks/new"),
    ("New note", "/notes/new"),
    ("New orchestration", "/orchestrations/new"),
    ("Create a key", "/keys"),
)


class Found(NamedTuple):
    """An entry of the palette."""

    title: str
    note: str
    href: str


async def find(request: Request) -> Response:
    """Return the entries that have some words, as JSON: actions and agents first, which are few."""
    words = (filter_of(request, "q") or "").casefold()
    if len(words) < _LEAST_CHARS:
        return JSONResponse([])
    client = client_of(request)
    actions = [Found(title, "action", href) for title, href in _ACTIONS if words in title.casefold() and may(href)]
    since = state_of(request).clock.now() - _RECENT
    agents, threads, runs = await asyncio.gather(
        agent_choices(client), _threads(client, words), _runs(client, words, since)
    )
    fit = ((id_, label) for id_, label in agents or () if words in label.casefold() or words in id_.casefold())
    named = [Found(label, "agent", f"/agents/{id_}") for id_, label in fit]
    return JSONResponse([found._asdict() for found in (*actions, *named[:_MOST], *threads, *runs)])


async def _threads(client: NovaClient, words: str) -> Iterable[Found]:
    """Return conversations among the newest whose title or opening has the words."""
    page = await if_allowed(client.threads.list(limit=200), None)
    titled = [(thread.title or thread.opening or "", thread.id) for thread in (page.items if page else ())]
    fit = [(title, id_) for title, id_ in titled if words in title.casefold()]
    return [Found(brief(title, _CHARS), "conversation", f"/chat/{id_}") for title, id_ in fit[:_MOST]]


async def _runs(client: NovaClient, words: str, since: datetime) -> Iterable[Found]:
    if len(words) < _RUN_CHARS:
        return ()
    page = await if_allowed(client.runs.list(text=words, since=since, media=False, limit=_MOST), None)
    return [
        Found(brief(text_of(tuple(run.message)), _CHARS) or run.id, f"run, {run.status}", f"/runs/{run.id}")
        for run in (page.items if page else ())
    ]


PAGE = PageModule(routes=(Route("/palette", find, methods=["GET"]),))
