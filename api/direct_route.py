"""Routes of the hot path, which skip FastAPI for a request that is valid.

FastAPI solves the dependencies of each request anew, in 110 µs for a message. Here the tree of dependencies is laid out
once, and FastAPI gets what is not valid: so errors, and the OpenAPI document, are its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, get_type_hints

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.security import SecurityScopes
from starlette.types import Message, Receive, Scope, Send

from .json_body import StrictRequest, StrictRoute

_UNSUPPORTED: Final = (
    "cookie_params",
    "http_connection_param_name",
    "websocket_param_name",
    "response_param_name",
    "background_tasks_param_name",
)


class DirectRoute(StrictRoute):
    """A route whose endpoint returns a response. Its dependencies are coroutine functions and have no side effects."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Make the route as `APIRoute` does.

        Raises:
            TypeError: The endpoint, or a dependency, is of a kind that only FastAPI serves.
        """
        super().__init__(path, endpoint, **options)
        if get_type_hints(endpoint)["return"] is not Response:
            raise TypeError(f"{endpoint!r} must return a Response: use StrictRoute for others.")
        self._steps = _steps(self.dependant)
        self._by_fastapi = self.app
        self.app = self._serve

    def prepare(self) -> None:
        """Build the type of the body now, and not with the first request."""
        for step in self._steps:
            step.prepare()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = StrictRequest(scope, receive)
        if self.body_field is not None:
            await request.load()
        try:
            arguments = [step.read(request) for step in self._steps]
        except _InvalidError:
            await self._by_fastapi(scope, await _from_the_start(request), send)
            return
        results: list[Any] = []
        for step, given in zip(self._steps, arguments, strict=True):
            for name, at in step.uses:
                given[name] = results[at]
            results.append(await step.function(**given))
        await results[-1](scope, receive, send)


class _InvalidError(Exception):
    """FastAPI says what is wrong."""


class _Step:
    """One function of the tree of dependencies, and where its arguments are."""

    __slots__ = ("_body", "_fields", "_fixed", "_request_name", "function", "uses")

    def __init__(self, dependant: Dependant, uses: tuple[tuple[str, int], ...]) -> None:
        function: Callable[..., Awaitable[Any]] | None = dependant.call
        called = function if inspect.isfunction(function) else getattr(function, "__call__", None)  # noqa: B004
        if function is None or not inspect.iscoroutinefunction(called):
            raise TypeError(f"{function!r} must be a coroutine function: use StrictRoute for others.")
        if any(getattr(dependant, name) for name in _UNSUPPORTED) or len(dependant.body_params) > 1:
            raise TypeError(f"{function!r} has parameters that only FastAPI serves: use StrictRoute for others.")
        self.function = function
        self.uses = uses
        """Its parameters that are results of earlier steps."""
        self._fields = [
            *((field, _in_path) for field in dependant.path_params),
            *((field, _in_query) for field in dependant.query_params),
            *((field, _in_headers) for field in dependant.header_params),
        ]
        self._body = next(iter(dependant.body_params), None)
        self._request_name = dependant.request_param_name
        scopes = dict.fromkeys([*(dependant.parent_oauth_scopes or ()), *(dependant.own_oauth_scopes or ())])
        name = dependant.security_scopes_param_name
        self._fixed: Mapping[str, Any] = {} if name is None else {name: SecurityScopes(list(scopes))}

    def prepare(self) -> None:
        """Build the type of the body."""
        if self._body is not None:
            self._body.validate({}, {}, loc=())

    def read(self, request: StrictRequest) -> dict[str, Any]:
        """Return the arguments that the request has.

        Raises:
            _InvalidError: One is missing or not valid.
        """
        arguments = dict(self._fixed)
        for field, read in self._fields:
            value = read(request, field.validation_alias or field.alias)
            if value is not None:
                arguments[field.name] = _valid(field, value)
            elif field.field_info.is_required():
                raise _InvalidError
            else:
                arguments[field.name] = field.get_default()
        if self._body is not None:
            arguments[self._body.name] = _valid(self._body, request.loaded)
        if self._request_name is not None:
            arguments[self._request_name] = request
        return arguments


def _steps(dependant: Dependant) -> list[_Step]:
    """Return the functions of a tree of dependencies in the order of their calls; the last is the endpoint."""
    steps: list[_Step] = []

    def add(node: Dependant) -> int:
        uses = [(each.name, add(each)) for each in node.dependencies]
        steps.append(_Step(node, tuple((name, at) for name, at in uses if name is not None)))
        return len(steps) - 1

    add(dependant)
    return steps


def _valid(field: Any, value: object) -> Any:
    valid, errors = field.validate(value, {}, loc=())
    if errors:
        raise _InvalidError
    return valid


def _in_path(request: Request, name: str) -> str | None:
    return request.path_params.get(name)


def _in_query(request: Request, name: str) -> str | None:
    return request.query_params.get(name) if request.scope["query_string"] else None


def _in_headers(request: Request, name: str) -> str | None:
    wanted = name.lower().encode()
    return next((value.decode("latin-1") for key, value in request.scope["headers"] if key == wanted), None)


async def _from_the_start(request: StrictRequest) -> Receive:
    """Return the function that receives a request whose body was read already."""
    body: Message = {"type": "http.request", "body": await request.body(), "more_body": False}
    first = [body]

    async def receive() -> Message:
        return first.pop() if first else await request.receive()

    return receive
