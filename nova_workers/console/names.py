"""Names for ids: of agents and keys, as far as the signed-in key may read them.

They are read once for all parts of a page and kept for some seconds. A context variable carries them to the filters of
templates, since macros, which streams render as well, have no request.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from nova_workers.base.errors import NovaError
from nova_workers.client.client import NovaClient
from nova_workers.console.state import client_of, session_of

KEPT_S: Final = 15.0
"""A name is at most this old; what a person changes here is shown at once."""
_PATIENCE_S: Final = 1.0
"""A fleet that hangs holds no page up for longer: it shows ids."""
_MOST: Final = 500
"""Of agents, of keys, and of people whose names are kept."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names by id."""

    agents: Mapping[str, str] = field(default_factory=dict[str, str])
    keys: Mapping[str, str] = field(default_factory=dict[str, str])


_NONE: Final = Names()
_current: ContextVar[Names] = ContextVar("console_names", default=_NONE)


def name_filters() -> dict[str, Callable[..., object]]:
    """Return the filters of templates that write a name for an id, and the id where no name is known."""
    return {"agent": _agent, "author": _author}


def _agent(agent_id: str) -> str:
    return _current.get().agents.get(agent_id, agent_id)


def _author(who: str) -> str:
    names = _current.get()
    return "a person" if who == "person" else names.keys.get(who) or names.agents.get(who, who)


class NamedPages:
    """ASGI middleware behind the guard: gives each page the names that its key may read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: dict[bytes, tuple[float, Names]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request with the names set."""
        if scope["type"] != "http" or session_of(request := Request(scope)) is None or not _renders(request):
            await self._app(scope, receive, send)
            return
        before = _current.set(await self._names_for(request))
        try:
            await self._app(scope, receive, send)
        finally:
            _current.reset(before)
            if scope["method"] != "GET":
                self._kept.pop(_owner(request), None)

    async def _names_for(self, request: Request) -> Names:
        owner = _owner(request)
        until, names = self._kept.get(owner, (0.0, _NONE))
        if until < time.monotonic():
            kept_s = KEPT_S
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    names = await _read(client_of(request), request)
            except (NovaError, TimeoutError):
                # The page itself says what is wrong.
                kept_s = _PATIENCE_S
            self._kept.pop(owner, None)
            self._kept[owner] = (time.monotonic() + kept_s, names)
            while len(self._kept) > _MOST:
                del self._kept[next(iter(self._kept))]
        return names


async def _read(client: NovaClient, request: Request) -> Names:
    session = session_of(request)
    scopes = () if session is None or session.scopes is None else session.scopes
    agents = {a.id: a.spec.name for a in (await client.agents.list(limit=200)).items} if "agents" in scopes else {}
    keys = {k.id: k.name for k in (await client.keys.list(limit=200)).items} if "keys" in scopes else {}
    return Names(agents, keys)


def _renders(request: Request) -> bool:
    """Return whether the answer has parts of a page; the stream of lists has none, and waits for no fleet."""
    return not request.url.path.startswith(("/changes", "/static/"))


def _owner(request: Request) -> bytes:
    session = session_of(request)
    return b"" if session is None else sha256(session.api_key.encode()).digest()
