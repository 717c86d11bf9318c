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


def pager(request: Request, page: Page[T], *, begun: str | None = None) -> Pager:
    """Return the links below a list.

    Args:
        request: The page's.
        page: The API's.
        begun: When its first page was asked for, of a list whose filter depends on that: the field `begun`.
    """
    of_page = ("cursor", "begun")
    kept = [(name, value) for name, value in request.query_params.multi_items() if name not in of_page and value]

    def address(**more: str) -> str:
        query = urlencode([*kept, *more.items()])
        return f"{request.url.path}?{query}" if query else request.url.path

    first = {} if begun is None else {"begun": begun}
    return Pager(
        first=address() if cursor_of(request) else None,
        next=address(cursor=page.next_cursor, **first) if page.next_cursor else None,
    )
