"""What all pages show: names for ids, of agents and keys, and how much is open, as far as the key may read it.

It is read once for all parts of a page and kept for some seconds. A context variable carries it to the filters of
templates, since macros, which streams render as well, have no request.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Generic, TypeVar
from zlib import crc32

from markupsafe import Markup
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from nova_workers.base.errors import NovaError
from nova_workers.client.client import NovaClient
from nova_workers.console.state import client_of, session_of
from nova_workers.contracts.http.scopes import with_included
from nova_workers.contracts.http.wire import AgentView

T = TypeVar("T")

KEPT_S: Final = 15.0
"""A name is at most this old; what a person changes here is shown at once."""
COUNTED_S: Final = 2.0
"""So is a number of what is open."""
_PATIENCE_S: Final = 1.0
"""A fleet that hangs holds no page up for longer: it shows ids."""
_MOST: Final = 500
"""Of agents, of keys, and of people whose names are kept."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names by id."""

    agents: Mapping[str, str] = field(default_factory=dict[str, str])
    keys: Mapping[str, str] = field(default_factory=dict[str, str])


_LISTED: Final = 200
_HUES: Final = 10
_NONE: Final = Names()
_current: ContextVar[Names] = ContextVar("console_names", default=_NONE)
_open: ContextVar[Mapping[str, int] | None] = ContextVar("console_open", default=None)


def name_filters() -> dict[str, Callable[..., object]]:
    """Return the filters of templates: a name for an id, or the id, and how much is open on a page of the menu."""
    return {
        "agent": _agent,
        "agent_name": agent_name,
        "marked": _marked,
        "mark": _mark,
        "author": _author,
        "author_name": _author_name,
        "open_of": _open_of,
    }


def known_agents(chosen: str | None) -> list[tuple[str, str]] | None:
    """Return the agents for a filter, as ids and labels; None if the key may not read them, or there are too many."""
    agents = _current.get().agents
    if not agents or len(agents) >= _LISTED or (chosen and chosen not in agents):
        return None
    return labelled(list(agents.items()))


def labelled(agents: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return agents, given as ids and names, with their labels: the name, and the id where several have that name."""
    named = Counter(name.casefold() for _, name in agents)
    return [(id_, name if named[name.casefold()] == 1 else f"{name} ({id_})") for id_, name in agents]


def _open_of(path: str) -> int | None:
    return (_open.get() or {}).get(path)


def agent_name(agent_id: str) -> str:
    """Return an agent's name as text, for attributes and titles."""
    return _current.get().agents.get(agent_id, agent_id)


def _agent(agent_id: str) -> Markup:
    """Return an agent's name with a mark by which it is known again: a colour of its id, and its initial."""
    return agent_mark(agent_id, agent_name(agent_id))


def _marked(agent: AgentView) -> Markup:
    return agent_mark(agent.id, agent.spec.name)


def agent_mark(agent_id: str, name: str) -> Markup:
    """Return a name with the mark of its agent. The initial is drawn by the style sheet: the text is the name alone."""
    hue, initial = mark_of(agent_id, name)
    return Markup('<span class="agent hue-{}" data-initial="{}">{}</span>').format(hue, initial, name)


def mark_of(agent_id: str, name: str) -> tuple[int, str]:
    """Return the number of an agent's colour, which its id decides, and the initial of its name."""
    return crc32(agent_id.encode()) % _HUES, next((letter for letter in name if letter.isalnum()), "?").upper()


def _mark(name: str, agent_id: str) -> Markup:
    return agent_mark(agent_id, name)


def _author(who: str) -> str | Markup:
    """Return who made something: a key's name, an agent's with its mark, or a person."""
    return _agent(who) if who in _current.get().agents else _author_name(who)


def _author_name(who: str) -> str:
    """Return who made something as text, for attributes and titles."""
    names = _current.get()
    if who == "person" or who.startswith("per_"):
        return "a person"
    if who == "seed":
        return "the installation"
    return names.keys.get(who) or names.agents.get(who, who)


class _Kept(Generic[T]):
    """Values by who is signed in, each read again once it is old."""

    def __init__(self, read: Callable[[NovaClient, Request], Awaitable[T]], kept_s: float, otherwise: T) -> None:
        self._read = read
        self._kept_s = kept_s
        self._otherwise = otherwise
        self._kept: dict[bytes, tuple[float, T]] = {}

    async def get(self, request: Request) -> T:
        """Return the value; the last known one, or none, if the fleet does not give it in time."""
        owner = _owner(request)
        until, value = self._kept.get(owner, (0.0, self._otherwise))
        if until < time.monotonic():
            kept_s = self._kept_s
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    value = await self._read(client_of(request), request)
            except (NovaError, TimeoutError):
                # The page itself says what is wrong.
                kept_s = _PATIENCE_S
            self._kept.pop(owner, None)
            self._kept[owner] = (time.monotonic() + kept_s, value)
            while len(self._kept) > _MOST:
                del self._kept[next(iter(self._kept))]
        return value

    def forget(self, request: Request) -> None:
        """Read it again for the next page."""
        self._kept.pop(_owner(request), None)


class NamedPages:
    """ASGI middleware behind the guard: gives each page the names and numbers that its key may read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._names = _Kept(_read, KEPT_S, _NONE)
        self._counts: _Kept[Mapping[str, int]] = _Kept(_count, COUNTED_S, {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request with the names set."""
        if scope["type"] != "http" or session_of(request := Request(scope)) is None or not _renders(request):
            await self._app(scope, receive, send)
            return
        names, counts = await asyncio.gather(self._names.get(request), self._counts.get(request))
        named, counted = _current.set(names), _open.set(counts)
        try:
            await self._app(scope, receive, send)
        finally:
            _current.reset(named)
            _open.reset(counted)
            if scope["method"] != "GET":
                self._names.forget(request)
                self._counts.forget(request)


async def _count(client: NovaClient, _: Request) -> Mapping[str, int]:
    """Return how much is open on pages of the menu: what needs a person, and runs that are under way."""
    attention = await client.overview.attention(limit=1)
    asked = [group.count for group in (attention.questions, attention.approvals) if group is not None]
    return {"/inbox": sum(asked), "/runs": attention.running or 0}


async def _read(client: NovaClient, request: Request) -> Names:
    session = session_of(request)
    scopes = with_included(() if session is None or session.scopes is None else session.scopes)
    agents = (
        {a.id: a.spec.name for a in (await client.agents.list(limit=_LISTED)).items} if "agents:read" in scopes else {}
    )
    keys = {k.id: k.name for k in (await client.keys.list(limit=200)).items} if "keys" in scopes else {}
    return Names(agents, keys)


def _renders(request: Request) -> bool:
    """Return whether the answer has parts of a page; the stream of lists has none, and waits for no fleet."""
    return not request.url.path.startswith(("/changes", "/static/"))


def _owner(request: Request) -> bytes:
    session = session_of(request)
    return b"" if session is None else sha256(session.api_key.encode()).digest()
