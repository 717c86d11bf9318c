"""Files that agents sent to people."""

import asyncio
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.console.access import name_of_run, name_of_thread
from nova_workers.console.actions import Done, act
from nova_workers.console.chat.messages import IMAGES
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of


async def show_list(request: Request) -> Response:
    """Show a page of files, newest first."""
    page = await client_of(request).files.list(
        agent_id=filter_of(request, "agent"),
        thread_id=filter_of(request, "thread"),
        limit=PAGE_SIZE,
        cursor=cursor_of(request),
    )
    return render(request, "files/list.html", files=page.items, pager=pager(request, page), shown=IMAGES)


async def show(request: Request) -> Response:
    """Show a file: an image itself, and what is known of any."""
    client = client_of(request)
    file = await client.files.get(request.path_params["file"])
    conversation, run = await asyncio.gather(name_of_thread(client, file.thread_id), name_of_run(client, file.run_id))
    return render(
        request,
        "files/show.html",
        file=file,
        is_shown=file.media_type in IMAGES,
        conversation=conversation,
        run=run,
    )


async def content(request: Request) -> Response:
    """Return the bytes of a file: an image for the page, anything else as a download."""
    client, file_id = client_of(request), request.path_params["file"]
    file = await client.files.get(file_id)
    shown = file.media_type in IMAGES and "download" not in request.query_params
    return Response(
        await client.files.read(file_id),
        media_type=file.media_type if shown else "application/octet-stream",
        headers={
            "Content-Disposition": f"{'inline' if shown else 'attachment'}; filename*=UTF-8''{quote(file.name)}",
            "Cache-Control": "private, max-age=3600",
        },
    )


async def delete(request: Request) -> Response:
    """Delete a file."""
    calls, file_id = client_of(request).files, request.path_params["file"]
    deleted = Done("The file was deleted.", "/files")
    return await act(request, f"/files/{file_id}", lambda: calls.delete(file_id), deleted)


PAGE = PageModule(
    routes=(
        Route("/files", show_list),
        Route("/files/{file:id}", show),
        Route("/files/{file:id}/content", content),
        Route("/files/{file:id}/delete", delete, methods=["POST"]),
    ),
    nav=(NavEntry("Build", "Files", "/files", "files", key="f", id_prefix="file_", scope="workspace:read"),),
)
