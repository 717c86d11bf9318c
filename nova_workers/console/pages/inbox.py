"""The inbox: what agents ask, and what they handed over."""

from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.vocabulary import DeliveryKind, DeliveryStatus
from nova_workers.console.actions import act, answer_run
from nova_workers.console.forms import read_form
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of

_KINDS = ("question", "approval", "notification", "file", "note")


async def show_list(request: Request) -> Response:
    """Show a page of the inbox, newest first: what is open, unless another state is asked for."""
    status = filter_of(request, "status") or "pending"
    page = await client_of(request).deliveries.list(
        # The API refuses other words, with a message that lists these.
        kind=cast(DeliveryKind | None, filter_of(request, "kind")),
        status=cast(DeliveryStatus, status),
        agent_id=filter_of(request, "agent"),
        limit=PAGE_SIZE,
        cursor=cursor_of(request),
    )
    return render(request, "inbox/list.html", items=page.items, pager=pager(request, page), kinds=_KINDS, state=status)


async def answer(request: Request) -> Response:
    """Answer a question, or decide on a call."""
    client, form = client_of(request), await read_form(request)
    item = await client.deliveries.get(request.path_params["item"])
    wait_id = item.payload.get("wait_id")
    return await act(
        request,
        "/inbox",
        lambda: answer_run(client.runs, str(item.run_id), None if wait_id is None else str(wait_id), form),
        "The answer was sent; the run continues.",
    )


async def close(request: Request) -> Response:
    """Close a notification, file or note."""
    calls, item_id = client_of(request).deliveries, request.path_params["item"]
    return await act(request, "/inbox", lambda: calls.close(item_id), "Closed.")


PAGE = PageModule(
    routes=(
        Route("/inbox", show_list),
        Route("/inbox/{item:id}/answer", answer, methods=["POST"]),
        Route("/inbox/{item:id}/close", close, methods=["POST"]),
    ),
    nav=(NavEntry("Work", "Inbox", "/inbox", "inbox", key="i", scope="workspace:read", main=4),),
)
