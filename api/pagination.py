"""Keyset pagination: opaque cursors that work only for the list, the filters and the tenant they came from.

A cursor has the sort key of the last returned row. Its tag detects mistakes (a cursor edited, truncated, or used with
another list), not an attack: the tenant in every query bounds what a cursor can reach.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import orjson
from fastapi import Depends, Query

from nova_workers.contracts.bodies import Page

from .errors import InvalidCursor

_TAG_BYTES = 12
_MAX_CURSOR_CHARS = 512

_Cursor = Annotated[str | None, Query(max_length=_MAX_CURSOR_CHARS, description="`next_cursor` of the page before.")]
_Limit = Annotated[int, Query(ge=1, le=200, description="Most items of a page.")]

Position = Sequence[str | int]
"""The sort key of a row, after which the next page starts."""

T = TypeVar("T")
K = TypeVar("K")
A = TypeVar("A", str, int)
B = TypeVar("B", str, int)


@dataclass(frozen=True, slots=True)
class Pager:
    """Reads and writes the cursors of one list.

    Attributes:
        tenant_id: The tenant of the list.
        name: Name of the list, such as ``runs``.
        shape: Types of the sort key's parts.
        filters: The filters of this request; a cursor belongs to one set of them.
    """

    tenant_id: str
    name: str
    shape: tuple[type[str] | type[int], ...]
    filters: tuple[object, ...] = ()

    def read(self, cursor: str | None) -> Position | None:
        """Return the position of a cursor; None is the start.

        Raises:
            InvalidCursor: It is not from this list.
        """
        if cursor is None:
            return None
        try:
            raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
            tag, body = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
            # Base64 has spare bits: only the spelling that `write` returns is valid.
            genuine = hmac.compare_digest(tag, self._tag(body)) and self._encode(body) == cursor
            position = orjson.loads(body) if genuine else None
        except ValueError:
            position = None
        if not self._fits(position):
            raise InvalidCursor(
                f"{cursor!r} is not a cursor of this list with these filters. "
                "Give `next_cursor` of the page before, with the same filters, or leave it out to start anew.",
                field="cursor",
            )
        return position

    def page(self, rows: Sequence[T], limit: int, position_of: Callable[[T], Position]) -> Page[T]:
        """Return a page of rows that were read with ``limit + 1``: the extra row shows that there are more."""
        items = list(rows[:limit])
        more = len(rows) > limit
        return Page(items=items, next_cursor=self.write(position_of(items[-1])) if more else None)

    def write(self, position: Position) -> str:
        """Return the cursor for a position."""
        return self._encode(orjson.dumps(position))

    def _encode(self, body: bytes) -> str:
        return urlsafe_b64encode(self._tag(body) + body).rstrip(b"=").decode("ascii")

    def _tag(self, body: bytes) -> bytes:
        scope = orjson.dumps([self.name, *self.filters], default=str)
        key = hashlib.sha256(b"nova.cursor\0" + self.tenant_id.encode()).digest()
        return hmac.digest(key, scope + b"\0" + body, "sha256")[:_TAG_BYTES]

    def _fits(self, position: object) -> bool:
        return (
            isinstance(position, list)
            and len(position) == len(self.shape)
            and all(type(part) is kind for part, kind in zip(position, self.shape, strict=True))
        )


@dataclass(frozen=True, slots=True)
class Listing(Generic[K]):
    """A request for one page of a list.

    Attributes:
        key: The sort key of the last row of the page before; None for the first page.
        rows: How many rows to read: one more than the page has shows that there are more.
    """

    pager: Pager
    key: K | None
    rows: int

    def page(self, rows: Sequence[T], key_of: Callable[[T], K]) -> Page[T]:
        """Return the page of the rows that were read."""

        def position_of(row: T) -> Position:
            key: Any = key_of(row)
            return tuple(key) if isinstance(key, tuple) else (key,)

        return self.pager.page(rows, self.rows - 1, position_of)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What each request for a list may have: the cursor and the limit."""

    cursor: str | None
    limit: int

    def of(self, tenant_id: str, name: str, kind: type[A], *filters: object) -> Listing[A]:
        """Return the request for a list that is sorted by one text or number.

        Args:
            tenant_id: The tenant of the list.
            name: Name of the list, such as ``runs``.
            kind: Type of the sort key.
            filters: The filters of this request; a cursor belongs to one set of them.

        Raises:
            InvalidCursor: The cursor is not from this list.
        """
        pager = Pager(tenant_id, name, (kind,), filters)
        position = pager.read(self.cursor)
        return Listing(pager, None if position is None else kind(position[0]), self.limit + 1)

    def of_pairs(
        self, tenant_id: str, name: str, first: type[A], second: type[B], *filters: object
    ) -> Listing[tuple[A, B]]:
        """Return the request for a list that is sorted by two values; as `of`."""
        pager = Pager(tenant_id, name, (first, second), filters)
        position = pager.read(self.cursor)
        key = None if position is None else (first(position[0]), second(position[1]))
        return Listing(pager, key, self.limit + 1)

    def of_parts(
        self, tenant_id: str, name: str, shape: tuple[type[str] | type[int], ...], *filters: object
    ) -> Listing[tuple[Any, ...]]:
        """Return the request for a list whose key has the parts of a shape; as `of`."""
        pager = Pager(tenant_id, name, shape, filters)
        position = pager.read(self.cursor)
        return Listing(pager, None if position is None else tuple(position), self.limit + 1)


async def _page_request(cursor: _Cursor = None, limit: _Limit = 50) -> PageRequest:
    return PageRequest(cursor, limit)


PageQuery = Annotated[PageRequest, Depends(_page_request)]
