"""Modules of routes that are imported with the first request below their paths, beside other requests.

They are of kinds that many fleets never use. With what only they need they are 4 MB of an idle process.
"""

import re
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from fastapi import FastAPI
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from nova_workers.base.deferred import Deferred

_PARAMETER: Final = re.compile(r"\\\{\w+\\\}")
_REPLACING: Final = threading.Lock()
"""The document of all routes is made in a thread, beside requests."""


class LateModule(BaseRoute):
    """Stands for the routes of a module until they are imported, and then gives its place to them.

    Args:
        name: The module's name below ``api.routes``.
        paths: Where its routes are, at these paths and below; no other routes are there.
        routers: The names of its routers.
    """

    def __init__(self, name: str, *paths: str, routers: Sequence[str] = ("router",)) -> None:
        self.name = name
        self.paths = paths
        self._routers = routers
        below = "|".join(_PARAMETER.sub("[^/]+", re.escape(path)) + "(?:/.*)?" for path in paths)
        # A parameter of a route takes line breaks too.
        self._pattern = re.compile(below, re.DOTALL)
        self._module = Deferred(f"routes {name!r}", lambda: import_module(f"{__package__}.routes.{name}"))

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match all paths of the module, also those that it does not have."""
        fits = scope["type"] == "http" and self._pattern.fullmatch(scope["path"]) is not None
        return (Match.FULL if fits else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Import the module, and let the application find the route among its routes."""
        app: FastAPI = scope["app"]
        await self._module.get()
        self.load(app)
        await app.router(scope, receive, send)

    def load(self, app: FastAPI) -> None:
        """Import the module, and put its routes into the place of this one in an application."""
        module = self._module.make()
        routes: list[BaseRoute] = [route for name in self._routers for route in getattr(module, name).routes]
        with _REPLACING:
            # Another list: a request may be looking for its route in this one.
            app.router.routes = [each for old in app.routes for each in (routes if old is self else [old])]


def load_all(app: FastAPI) -> FastAPI:
    """Import all routes of an application, and return it."""
    for route in app.routes:
        if isinstance(route, LateModule):
            route.load(app)
    return app
