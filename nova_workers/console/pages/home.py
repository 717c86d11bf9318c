"""Home: what needs a person, what runs now, the fleet, and today's cost."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of

__all__ = ["PAGE"]

_ROWS = 8


async def show(request: Request) -> Response:
    """Show the overview."""
    client = client_of(request)
    waits, running, recent, fleet, usage = await asyncio.gather(
        client.runs.waits(limit=_ROWS),
        client.runs.list(status="running", limit=_ROWS),
        client.runs.list(limit=_ROWS),
        client.fleet.view(),
        client.usage.report("day", days=7),
    )
    today = next((group for group in usage.groups if group.key == usage.until.date().isoformat()), None)
    return render(
        request,
        "home.html",
        waits=waits.items,
        running=running.items,
        recent=recent.items,
        fleet=fleet,
        usage=usage,
        today=today,
    )


PAGE = PageModule(
    routes=(Route("/", show),),
    nav=(NavEntry("Work", "Home", "/", "home", key="h"),),
)
