"""Runs: the list, with filters."""

from typing import cast, get_args

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.http.wire import RunQueue, RunStatus
from nova_workers.vocabulary import FinishStatus

__all__ = ["show"]

# Open states first, in the order of a run's life.
STATUSES: tuple[str, ...] = ("queued", "running", "waiting", "scheduled", *get_args(FinishStatus), "merged")


async def show(request: Request) -> Response:
    """Show a page of runs, newest first."""
    page = await client_of(request).runs.list(
        thread_id=filter_of(request, "thread"),
        agent_id=filter_of(request, "agent"),
        # The API refuses other words, with a message that lists these.
        status=cast(RunStatus | None, filter_of(request, "status")),
        queue=cast(RunQueue | None, filter_of(request, "queue")),
        limit=PAGE_SIZE,
        cursor=cursor_of(request),
    )
    return render(
        request,
        "runs/list.html",
        runs=page.items,
        pager=pager(request, page),
        statuses=STATUSES,
        queues=get_args(RunQueue),
    )
