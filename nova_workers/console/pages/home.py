"""Home: what needs a person, what runs now, the fleet, today's cost, and the last day as plots."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.console.access import if_allowed
from nova_workers.console.drawing.charts import Series, stacked_bars
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.http.overview.activity import ActivityBucket, ActivityView
from nova_workers.contracts.http.overview.attention import AttentionGroup, AttentionItem, AttentionView

__all__ = ["PAGE"]

_ROWS = 6
_GOOD = frozenset({"succeeded"})
_BAD = frozenset({"failed", "timed_out"})


class Needed(NamedTuple):
    """Things of one kind that need a person. `links` are the pages of `items`, in their order."""

    title: str
    tone: str
    total: int
    entries: Sequence[tuple[str, AttentionItem]]
    href: str


async def show(request: Request) -> Response:
    """Show the overview."""
    client = client_of(request)
    attention, running, recent, fleet, budgets, activity = await asyncio.gather(
        client.overview.attention(limit=_ROWS),
        if_allowed(client.runs.list(status="running", limit=_ROWS), None),
        if_allowed(client.runs.list(limit=_ROWS), None),
        client.fleet.view(),
        if_allowed(client.tenants.budgets(), None),
        if_allowed(client.overview.activity("hour"), None),
    )
    return render(
        request,
        "home.html",
        needed=_needed(attention),
        running=running.items if running else (),
        recent=recent.items if recent else (),
        fleet=fleet,
        own_budget=budgets.items[0] if budgets else None,
        plots=_plots(activity) if activity else (),
        may_read_runs=recent is not None,
    )


def _needed(attention: AttentionView) -> list[Needed]:
    """Return the groups that have something; questions and approvals first."""
    return [
        Needed(title, tone, group.count, [(f"{base}{_id(item, by)}", item) for item in group.items], href)
        for title, tone, group, base, by, href in _groups(attention)
        if group is not None and group.count
    ]


def _groups(view: AttentionView) -> Sequence[tuple[str, str, AttentionGroup | None, str, str, str]]:
    return (
        ("Questions", "warn", view.questions, "/runs/", "run_id", "/inbox?kind=question"),
        ("Approvals", "warn", view.approvals, "/runs/", "run_id", "/inbox?kind=approval"),
        ("Paused triggers", "bad", view.triggers, "/triggers/", "id", "/triggers"),
        ("Parked tasks", "warn", view.tasks, "/tasks/", "id", "/tasks"),
        ("Failing webhooks", "bad", view.webhooks, "/webhooks/", "id", "/webhooks"),
    )


def _id(item: AttentionItem, by: str) -> str:
    return (item.run_id or item.id) if by == "run_id" else item.id


def _plots(activity: ActivityView) -> list[tuple[str, Markup, Sequence[tuple[str, str]]]]:
    """Return titles, plots and legends."""
    buckets = activity.buckets
    labels = [f"{bucket.since:%H:%M}" for bucket in buckets]

    def plot(title: str, unit: str, *series: Series) -> tuple[str, Markup, Sequence[tuple[str, str]]]:
        return title, stacked_bars(title, labels, series, unit), [(each.kind, each.title) for each in series]

    return [
        plot(
            "Runs that ended, by hour",
            "runs",
            Series("succeeded", "good", [_ended(bucket, _GOOD) for bucket in buckets]),
            Series("failed", "bad", [_ended(bucket, _BAD) for bucket in buckets]),
        ),
        plot("Median time of a run", "s", Series("s", "main", [_median(bucket) for bucket in buckets])),
        plot(
            "Tokens",
            "tokens",
            Series("input", "main", [float(bucket.input_tokens) for bucket in buckets]),
            Series("output", "second", [float(bucket.output_tokens) for bucket in buckets]),
        ),
        plot("Cost", "USD", Series("USD", "main", [bucket.cost_usd or 0.0 for bucket in buckets])),
    ]


def _ended(bucket: ActivityBucket, statuses: frozenset[str]) -> float:
    return float(sum(count for status, count in (bucket.ended or {}).items() if status in statuses))


def _median(bucket: ActivityBucket) -> float:
    return bucket.duration_s.p50 if bucket.duration_s else 0.0


PAGE = PageModule(
    routes=(Route("/", show),),
    nav=(NavEntry("Work", "Home", "/", "home", key="h"),),
)
