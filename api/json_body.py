"""Reads JSON bodies strictly: values that Postgres cannot store or that exhaust a parser never reach a handler."""

import re
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

import orjson
from fastapi import Request, Response
from pydantic.warnings import UnsupportedFieldAttributeWarning

from nova_workers.base.errors import InvalidInput

from .errors import MalformedRequest, UnsupportedMediaType
from .late_route import LateRoute

# FastAPI ignores it where it builds a body's validator with its route. Ours are built at first use.
warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)

MAX_JSON_DEPTH = 64
"""Nesting of arrays and objects. A tool's schema in an agent's configuration needs about 20."""

MAX_PARTS = 50_000
"""Arrays, objects and items of a body. Parsing and checking 360,000 fields, in 4 MB, held the loop for 0.7 s."""

_NUL = "\x00"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""Also one that never ends, so that each byte is looked at once."""


class StrictRoute(LateRoute):
    """A route whose body is parsed by `parse_json` before FastAPI reads it."""

    max_parts = MAX_PARTS

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, after the strict parser if the route has a body."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def handle_strictly(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            await strict.load(max_parts=self.max_parts)
            return await handle(strict)

        return handle_strictly


class StrictRequest(Request):
    """A request with its parsed JSON, for FastAPI."""

    loaded: Any = None
    """The body, after `load`."""

    async def load(self, *, max_parts: int = MAX_PARTS) -> None:
        """Read and parse the body.

        Raises:
            UnsupportedMediaType: It is declared as something else.
            MalformedRequest: As `parse_json`.
            InvalidInput: As `parse_json`.
        """
        media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise UnsupportedMediaType(f"The body is {media_type!r}; send it as Content-Type: application/json.")
        self.loaded = parse_json(await self.body(), max_parts=max_parts)

    async def json(self) -> Any:
        """Return the parsed body."""
        return self.loaded


def parse_json(body: bytes, *, max_parts: int = MAX_PARTS) -> Any:
    """Parse a body.

    Raises:
        MalformedRequest: It is not JSON in UTF-8 (lone surrogates and infinite numbers are not), too deep, or of too
            many parts.
        InvalidInput: A string holds the NUL character, which Postgres cannot store; names the field.
    """
    # Brackets and commas in texts are no parts, but are rarely so many. Texts beyond a number are not looked for: a
    # million short ones, each with a bracket, would hold the loop for 0.3 s.
    if _parts(body) > max_parts and _parts(_STRING.sub(b"", body, count=max_parts)) > max_parts:
        raise MalformedRequest(f"The body has more than {max_parts} parts: arrays, objects, and their items.")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedRequest(f"The body is not JSON in UTF-8: {error}.") from error
    # Both checks walk the value only if a cheap count of bytes cannot exclude the fault.
    if _brackets(body) > MAX_JSON_DEPTH and _deeper_than(value, MAX_JSON_DEPTH):
        raise MalformedRequest(f"The body nests deeper than {MAX_JSON_DEPTH} levels.")
    if b"\\u0000" in body:
        for path in _paths_with_nul(value, ()):
            raise InvalidInput(
                "A string holds the character U+0000, which cannot be stored; remove it.",
                field=".".join(path) or "body",
            )
    return value


def _parts(body: bytes) -> int:
    return _brackets(body) + body.count(b",")


def _brackets(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def _deeper_than(value: Any, levels: int) -> bool:
    """Walk level by level, so that depth costs no stack."""
    layer = _containers([value])
    for _ in range(levels):
        layer = [inner for outer in layer for inner in _containers(_children(outer))]
    return bool(layer)


def _children(container: list[Any] | dict[str, Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _containers(values: Iterable[Any]) -> list[list[Any] | dict[str, Any]]:
    return [value for value in values if isinstance(value, dict | list)]


def _paths_with_nul(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, str):
        if _NUL in value:
            yield path
    elif isinstance(value, dict):
        for key, child in value.items():
            if _NUL in key:
                yield path
            yield from _paths_with_nul(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _paths_with_nul(child, (*path, str(index)))
