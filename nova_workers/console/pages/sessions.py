"""Sessions of people: who is signed in, and ending a session."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.console.actions import act
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of, session_of


async def show_list(request: Request) -> Response:
    """Show a page of sessions, newest first."""
    own = session_of(request)
    page = await client_of(request).keys.sign_ins(limit=PAGE_SIZE, cursor=cursor_of(request))
    return render(
        request,
        "sessions/list.html",
        sessions=page.items,
        own_id=None if own is None else own.id,
        pager=pager(request, page),
    )


async def end(request: Request) -> Response:
    """End a session."""
    client, session_id = client_of(request), request.path_params["session"]
    return await act(
        request,
        "/sessions",
        lambda: client.sign_out(session_id),
        "The session is ended; the API refuses it within seconds.",
    )


PAGE = PageModule(
    routes=(
        Route("/sessions", show_list, methods=["GET"]),
        Route("/sessions/{session:id}/end", end, methods=["POST"]),
    ),
    nav=(NavEntry("Account", "Sessions", "/sessions", "keys", scope="keys"),),
)
