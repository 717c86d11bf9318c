"""Runs: the list, with filters and an order."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import get_args

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.vocabulary import OPEN_RUNS, FinishStatus, Rating, RunSort, RunSource
from nova_workers.console.access import agent_choices
from nova_workers.console.pages.runs.filters import PERIODS, SORTS, RunQuery, read_moment
from nova_workers.console.pages.runs.saved import load_tabs
from nova_workers.console.paging import PAGE_SIZE, cursor_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.http.wire import RunQueue

STATUSES: tuple[str, ...] = ("queued", "running", "waiting", "scheduled", *get_args(FinishStatus), "merged")
"""Open states first, in the order of a run's life."""
_SORTED: dict[RunSort, str] = {
    "created": "Created",
    "queue_time": "Queued",
    "duration": "Took",
    "tokens": "Tokens",
    "cost": "Cost",
}
"""The headings by which the list is sorted."""


async def show(request: Request) -> Response:
    """Show a page of runs, newest first or in the order that was chosen."""
    client, now = client_of(request), state_of(request).clock.now()
    which = RunQuery.of(request.query_params)
    choices, tabs = await asyncio.gather(agent_choices(client), load_tabs(client))
    agents = _by_name(choices or ())
    which = which.with_agent(agents)
    cursor = cursor_of(request)
    # A period until now ends for all pages of a list when its first one was asked for.
    begun = read_moment("begun", request.query_params.get("begun")) if cursor else None
    page = await which.page(client, begun or now, limit=PAGE_SIZE, cursor=cursor)
    return render(
        request,
        "runs/list.html",
        runs=page.items,
        page=page,
        which=which,
        tabs=tabs,
        tab=next((tab for tab in tabs if tab.href == which.address()), None),
        agents=agents,
        agent_label=dict(agents).get(which.agent or "", which.agent),
        heads=[(title, sort, which.sorted_by(sort).address()) for sort, title in _SORTED.items()],
        periods=list(PERIODS.items()),
        sorts=[(sort, title) for sort, title in SORTS.items() if sort],
        pager=pager(request, page, begun=(begun or now).isoformat() if which.period else None),
        statuses=STATUSES,
        open_statuses=OPEN_RUNS,
        queues=get_args(RunQueue),
        sources=get_args(RunSource),
        ratings=get_args(Rating),
        now=now,
    )


def _by_name(choices: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return agents with their names alone, as long as no other one has the same."""
    named = [(id_, label.removesuffix(f" ({id_})"), label) for id_, label in choices]
    times = Counter(name.casefold() for _, name, _ in named)
    return [(id_, name if times[name.casefold()] == 1 else label) for id_, name, label in named]
