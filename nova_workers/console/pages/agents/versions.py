"""An agent's versions: who changed what and when, the difference between two, and going back."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import Gone, InvalidInput, NotFound
from nova_workers.client.client import NovaClient
from nova_workers.console.access import if_allowed
from nova_workers.console.actions import Done, act
from nova_workers.console.diffs import field_diffs
from nova_workers.console.drawing.charts import Plot
from nova_workers.console.drawing.feedback import plots_of
from nova_workers.console.drawing.sampling import plot_of
from nova_workers.console.forms import read_form
from nova_workers.console.paging import cursor_of, pager
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.http.feedback import RATING
from nova_workers.contracts.http.sampling import SamplingView
from nova_workers.contracts.http.wire import AgentView

_PAGE = 30


async def show_list(request: Request) -> Response:
    """List the versions, newest first, each with the fields that it changed."""
    client, agent_id = client_of(request), request.path_params["agent"]
    agent, report, sampling, page = await asyncio.gather(
        client.agents.get(agent_id),
        if_allowed(client.feedback.report(agent_id), None),
        _sampling(client, agent_id),
        # One more than is shown: what the last one changed follows from the one before it.
        client.agents.versions(agent_id, limit=_PAGE, cursor=cursor_of(request)),
    )
    earlier = list(page.items[1:])
    if page.items and page.items[-1].version > 1:
        earlier.append(await client.agents.version(agent_id, page.items[-1].version - 1))
    changes = {
        after.version: [diff.field for diff in field_diffs(_value(before), _value(after))]
        for after, before in zip(page.items, earlier, strict=False)
    }
    return render(
        request,
        "agents/versions.html",
        agent=agent,
        versions=page.items,
        changes=changes,
        ratings={} if report is None else {one.agent_version: one for one in report.figures if one.name == RATING},
        plots=[*([] if report is None else plots_of(report)), *_scores(sampling)],
        sampling=sampling,
        pager=pager(request, page),
    )


async def show(request: Request) -> Response:
    """Show what the configuration was, and what this version changed."""
    client, agent_id = client_of(request), request.path_params["agent"]
    number: int = request.path_params["version"]
    agent, version = await asyncio.gather(client.agents.get(agent_id), client.agents.version(agent_id, number))
    before = await client.agents.version(agent_id, number - 1) if number > 1 else None
    return render(
        request,
        "agents/version.html",
        agent=agent,
        version=version,
        value=_value(version),
        diffs=[] if before is None else field_diffs(_value(before), _value(version)),
    )


async def compare(request: Request) -> Response:
    """Show the difference between two versions, field by field."""
    client, agent_id = client_of(request), request.path_params["agent"]
    numbers = [_version(request, name) for name in ("from", "to")]
    agent, before, after = await asyncio.gather(
        client.agents.get(agent_id), *(client.agents.version(agent_id, number) for number in numbers)
    )
    return render(
        request,
        "agents/compare.html",
        agent=agent,
        before=before,
        after=after,
        diffs=field_diffs(_value(before), _value(after)),
    )


async def roll_back(request: Request) -> Response:
    """Make an earlier version's configuration the newest."""
    agent_id: str = request.path_params["agent"]
    form = await read_form(request)
    number = form.value("version")
    if not number.isdecimal():
        raise InvalidInput(f"There is no version {number!r}.", field="version")
    calls = client_of(request).agents
    return await act(
        request,
        f"/agents/{agent_id}/versions",
        lambda: calls.rollback(agent_id, int(number)),
        lambda made: Done(f"Version {made.version} has the configuration of version {number}."),
    )


def _scores(sampling: SamplingView | None) -> list[Plot]:
    return [] if sampling is None or not sampling.periods else [plot_of(sampling)]


async def _sampling(client: NovaClient, agent_id: str) -> SamplingView | None:
    """Return the sampling of an agent; None if it has none, or the key may not read it."""
    try:
        return await if_allowed(client.sampling.get(agent_id), None)
    except (NotFound, Gone):
        return None


def _version(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not text.isdecimal():
        raise InvalidInput(f"{name} is {text!r}; it takes a version's number.", field=name, status=422)
    return int(text)


def _value(agent: AgentView) -> dict[str, object]:
    return agent.spec.model_dump(mode="json")
