"""Runs: the list, with filters."""

from typing import get_args

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.vocabulary import OPEN_RUNS, FinishStatus
from nova_workers.console.pages.runs.filters import PERIODS, RunQuery
from nova_workers.console.paging import PAGE_SIZE, cursor_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.http.wire import RunQueue

STATUSES: tuple[str, ...] = ("queued", "running", "waiting", "scheduled", *get_args(FinishStatus), "merged")
"""Open states first, in the order of a run's life."""


async def show(request: Request) -> Response:
    """Show a page of runs, newest first."""
    which = RunQuery.of(request.query_params)
    page = await client_of(request).runs.list(
        thread_id=which.thread,
        agent_id=which.agent,
        status=which.statuses or None,
        queue=which.queue,
        trigger_id=which.trigger,
        parent_run_id=which.parent,
        since=which.since,
        until=which.until,
        media=False,
        limit=PAGE_SIZE,
        cursor=cursor_of(request),
    )
    now = state_of(request).clock.now()
    return render(
        request,
        "runs/list.html",
        runs=page.items,
        which=which,
        periods=[(title, which.within(period, now).address()) for title, period in PERIODS.items()],
        pager=pager(request, page),
        statuses=STATUSES,
        open_statuses=OPEN_RUNS,
        queues=get_args(RunQueue),
    )
