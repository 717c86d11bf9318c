"""All items of a list, across its pages."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import ParamSpec, TypeVar

from nova_workers.contracts.bodies import Page

P = ParamSpec("P")
T = TypeVar("T")


async def iterate(list_page: Callable[P, Awaitable[Page[T]]], *args: P.args, **filters: P.kwargs) -> AsyncGenerator[T]:
    """Yield every item of a list, one page at a time, as in ``iterate(nova.runs.list, status="failed")``.

    Args:
        list_page: A method of the client that returns a page.
        args: Its arguments.
        filters: Its named arguments: `limit` is the size of a page, `cursor` the page to begin with.
    """
    while True:
        page = await list_page(*args, **filters)
        for item in page.items:
            yield item
        if page.next_cursor is None:
            return
        filters["cursor"] = page.next_cursor
