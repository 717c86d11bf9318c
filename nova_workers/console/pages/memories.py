"""Memories: facts that all agents of the tenant share."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import Rejected
from nova_workers.console.actions import act
from nova_workers.console.forms import Form, build, read_form
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.http.memories import MemoryCreate


async def show_list(request: Request) -> Response:
    """Show a page of memories, newest first, and save a new one."""
    form = Form()
    if request.method == "POST":
        form = await read_form(request)
        try:
            await client_of(request).memories.create(build(MemoryCreate, {"content": form.value("content")}))
        except Rejected as error:
            form = form.refused(error)
        else:
            return see_other(request, "/memories", flash="Saved. Every agent can recall it.")
    page = await client_of(request).memories.list(
        contains=filter_of(request, "contains"), limit=PAGE_SIZE, cursor=cursor_of(request)
    )
    return render(
        request,
        "memories/list.html",
        status=422 if form.problem else 200,
        form=form,
        memories=page.items,
        pager=pager(request, page),
    )


async def delete(request: Request) -> Response:
    """Delete a memory."""
    calls, memory_id = client_of(request).memories, request.path_params["memory"]
    return await act(request, "/memories", lambda: calls.delete(memory_id), "Forgotten.")


PAGE = PageModule(
    routes=(
        Route("/memories", show_list, methods=["GET", "POST"]),
        Route("/memories/{memory:id}/delete", delete, methods=["POST"]),
    ),
    nav=(NavEntry("Build", "Memories", "/memories", "memories", key="m", scope="workspace:read"),),
)
