"""Keyset pagination: opaque cursors that work only for the list, the filters and the tenant they came from.

A cursor has the sort key of the last returned row. Its tag detects mistakes (a cursor edited, truncated, or used with
another list), not an attack: the tenant in every query bounds what a cursor can reach.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import orjson
from fastapi import Query

from nova_workers.contracts.bodies import Page

from .errors import InvalidCursor

__all__ = ["Cursor", "Limit", "Pager", "Position"]

_TAG_BYTES = 12
_MAX_CURSOR_CHARS = 512

Cursor = Annotated[str | None, Query(max_length=_MAX_CURSOR_CHARS, description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=200, description="Most items of a page.")]

Position = Sequence[str | int]
"""The sort key of a row, after which the next page starts."""

T = TypeVar("T")


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

    def read_text(self, cursor: str | None) -> str | None:
        """Return the position of a cursor of a list whose sort key is one text. Raises as `read`."""
        position = self.read(cursor)
        return None if position is None else str(position[0])

    def read_number(self, cursor: str | None) -> int | None:
        """Return the position of a cursor of a list whose sort key is one number. Raises as `read`."""
        position = self.read(cursor)
        return None if position is None else int(position[0])

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
