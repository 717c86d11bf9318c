"""All items of a list, across its pages."""

from collections.abc import Callable, Generator
from typing import ParamSpec, TypeVar

from nova_workers.contracts.bodies import Page

P = ParamSpec("P")
T = TypeVar("T")


def sync_iterate(list_page: Callable[P, Page[T]], *args: P.args, **filters: P.kwargs) -> Generator[T]:
    """Yield every item of a list, one page at a time, as in ``sync_iterate(nova.runs.list, status="failed")``.

    Args:
        list_page: A method of the sync client that returns a page.
        args: Its arguments.
        filters: Its named arguments: `limit` is the size of a page, `cursor` the page to begin with.
    """
    while True:
        page = list_page(*args, **filters)
        yield from page.items
        if page.next_cursor is None:
            return
        filters["cursor"] = page.next_cursor
