"""The instant of a local time, shown beside the field that it is typed into."""

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from nova_workers.console.local_times import show_instant
from nova_workers.console.navigation import PageModule
from nova_workers.console.state import state_of


async def show(request: Request) -> Response:
    """Return a part of a page for `static/js/local_times.js`."""
    given = request.query_params
    return HTMLResponse(show_instant(given.get("at", ""), given.get("timezone", ""), state_of(request).clock))


PAGE = PageModule(routes=(Route("/local-time", show),))
