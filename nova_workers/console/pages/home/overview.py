"""Home: what needs a person, what runs and waits now, today's cost, and plots."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import Forbidden
from nova_workers.client.client import NovaClient
from nova_workers.console.access import if_allowed
from nova_workers.console.drawing.charts import Plot
from nova_workers.console.pages.home.plots import PERIODS, plots_by_key, plots_of_all, split
from nova_workers.console.paging import filter_of
from nova_workers.console.queued import REASONS
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of, state_of
from nova_workers.contracts.default_agents import DEFAULT_AGENTS, RESERVED_AGENTS
from nova_workers.contracts.http.fleet import FleetView, QueuedView
from nova_workers.contracts.http.overview.activity import ActivityGrouping
from nova_workers.contracts.http.overview.attention import AttentionGroup, AttentionItem, AttentionView

_ROWS = 6
_GROUPINGS: Final[Mapping[str, ActivityGrouping]] = {"agent": "agent", "model": "model"}


class Needed(NamedTuple):
    """Things of one kind that need a person. `links` are the pages of `items`, in their order."""

    title: str
    tone: str
    total: int
    entries: Sequence[tuple[str, AttentionItem]]
    href: str


class Step(NamedTuple):
    """A step of the first hour with a fleet, its button, and whether it was taken."""

    title: str
    text: str
    button: str
    href: str
    done: bool


class Health(NamedTuple):
    """How the fleet stands, in one sentence, and where that is looked at or changed."""

    tone: str
    text: str
    button: str
    href: str


async def show(request: Request) -> Response:
    """Show the overview."""
    client = client_of(request)
    over, by = _chosen(request, "over", PERIODS) or "day", _chosen(request, "by", _GROUPINGS)
    attention, running, recent, (fleet, queued), budgets, plots = await asyncio.gather(
        client.overview.attention(limit=_ROWS),
        if_allowed(client.runs.list(status="running", media=False, limit=_ROWS), None),
        if_allowed(client.runs.list(media=False, limit=_ROWS), None),
        asyncio.gather(client.fleet.view(), client.fleet.queued()),
        if_allowed(client.tenants.budgets(), None),
        if_allowed(_plots(client, over, by, state_of(request).clock.now()), ()),
    )
    runs = recent.items if recent else ()
    return render(
        request,
        "home/show.html",
        health=health_of(fleet, queued),
        steps=await _first_steps(client, wrote=bool(runs)) if recent and len(runs) < _ROWS else (),
        needed=_needed(attention),
        running=running.items if running else (),
        recent=runs,
        fleet=fleet,
        queued=queued.groups,
        reasons=REASONS,
        own_budget=budgets.items[0] if budgets else None,
        plots=plots,
        over=over,
        by=by,
        periods=[(word, period.title) for word, period in PERIODS.items()],
        may_read_runs=recent is not None,
    )


def health_of(fleet: FleetView, queued: QueuedView) -> Health:
    """Return the worst that is to be said of the fleet."""
    for group in queued.groups:
        words, tone = REASONS[group.reason]
        if tone == "bad":
            text = f"{group.runs:,} queued {'run waits' if group.runs == 1 else 'runs wait'}: {words}."
            return Health("bad", text, "See which", f"/runs?status=queued&queue={group.queue}")
    if not fleet.redis_answers:
        return Health(
            "bad", "Redis does not answer: messages are accepted, and start later.", "See the fleet", "/fleet"
        )
    if fleet.workers is not None and not fleet.workers:
        return Health("bad", "No worker is alive: messages are accepted, and wait.", "See the fleet", "/fleet")
    if fleet.switches:
        return Health("warn", "Something is paused: its runs stay queued.", "See what, and resume", "/fleet")
    if failed := fleet.runs.get("failed", 0):
        ended = "One run" if failed == 1 else f"{failed:,} runs"
        return Health("warn", f"{ended} failed in the last hour.", "See why", "/runs?status=failed&period=hour")
    return Health("good", "All is well: nothing failed in the last hour, and nothing is held up.", "See runs", "/runs")


async def _first_steps(client: NovaClient, *, wrote: bool) -> Sequence[Step]:
    """Return the steps of a fleet with next to no runs; none if all are taken, or if the key may not take them."""
    try:
        agents, triggers, keys = await asyncio.gather(
            client.agents.list(limit=20), client.triggers.list(limit=1), client.keys.list(limit=2)
        )
    except Forbidden:
        return ()
    own = any(agent.id not in DEFAULT_AGENTS and agent.id not in RESERVED_AGENTS for agent in agents.items)
    works, connected = bool(triggers.items), len(keys.items) > 1
    steps = (
        Step("Write to an agent", "The answer appears as it is made.", "Open the chat", "/chat", wrote),
        Step("Make an agent", "Say what it is for, and tick what it may use.", "New agent", "/agents/~new", own),
        Step("Let it work by itself", "A trigger writes to it when you say.", "New trigger", "/triggers/new", works),
        Step("Connect a program", "Copy the lines for it, with a key of its own.", "Connect", "/connect", connected),
    )
    return () if all(step.done for step in steps) else steps


async def _plots(client: NovaClient, over: str, by: str | None, now: datetime) -> Sequence[Plot]:
    period, calls = PERIODS[over], client.overview
    both = calls.activity(period.bucket, since=now - 2 * period.length)
    if by is None:
        return plots_of_all(*split(await both, period))
    activity, grouped = await asyncio.gather(both, calls.activity(period.bucket, group_by=_GROUPINGS[by]))
    shown, past = split(activity, period)
    return plots_by_key(grouped, shown.buckets, past)


def _chosen(request: Request, name: str, words: Collection[str]) -> str | None:
    """Return a choice of the address; None for one that there is not."""
    given = filter_of(request, name)
    return given if given in words else None


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
