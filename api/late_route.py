"""Routes of which FastAPI builds the tree of dependencies and the types with the first request.

They are 30 KB for each of more than 200 routes, most of which a process never serves, and a tenth of its import.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import compile_path, get_name

_BUILDING = threading.RLock()
"""The document of all routes is made in a thread, beside requests."""


class LateRoute(APIRoute):
    """A route that has what a router needs to find it. The first use of anything else builds it.

    A mistake in an endpoint's parameters is found then too: a test builds all routes.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._build_by: Callable[[], None] | None = partial(super().__init__, path, endpoint, **options)
        self.path = path
        self.endpoint = endpoint
        self.name = options.get("name") or get_name(endpoint)
        self.methods = {method.upper() for method in options.get("methods") or ("GET",)}
        self.include_in_schema = options.get("include_in_schema", True)
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)

    def build(self) -> None:
        """Build the route, unless it is built."""
        with _BUILDING:
            build, self._build_by = self._build_by, None
            if build is not None:
                build()

    def __getattr__(self, name: str) -> Any:
        """Build the route. Python calls this for attributes that are not there."""
        self.build()
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"A route has no attribute {name!r}.", name=name, obj=self) from None
