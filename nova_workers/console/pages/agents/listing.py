"""The list of agents."""

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.console.paging import PAGE_SIZE, cursor_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of


async def show(request: Request) -> Response:
    """Show a page of agents, by id."""
    page = await client_of(request).agents.list(limit=PAGE_SIZE, cursor=cursor_of(request))
    return render(request, "agents/list.html", agents=page.items, pager=pager(request, page))
