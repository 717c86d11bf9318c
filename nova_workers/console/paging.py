"""Lists in pages: the API's cursors as addresses, with the same filters."""

from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode

from starlette.requests import Request

from nova_workers.contracts.bodies import Page

T = TypeVar("T")

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class Pager:
    """Addresses of the first and the next page; None where this is it, or where there is none."""

    first: str | None
    next: str | None


def cursor_of(request: Request) -> str | None:
    """Return the cursor that the page was asked for."""
    return request.query_params.get("cursor") or None


def filter_of(request: Request, name: str) -> str | None:
    """Return a filter's value; None if it is missing or blank, as an unset field of a form is."""
    return request.query_params.get(name, "").strip() or None


def pager(request: Request, page: Page[T]) -> Pager:
    """Return the links below a list."""
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor" and value]

    def address(**more: str) -> str:
        query = urlencode([*kept, *more.items()])
        return f"{request.url.path}?{query}" if query else request.url.path

    return Pager(
        first=address() if cursor_of(request) else None,
        next=address(cursor=page.next_cursor) if page.next_cursor else None,
    )
