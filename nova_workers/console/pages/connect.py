"""Connect: the lines by which programs that people have reach this fleet, for an agent."""

import asyncio
import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import NotFound
from nova_workers.console.access import agent_choices
from nova_workers.console.client_lines import clients_of, doors_with, setup
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.rendering import render
from nova_workers.console.state import client_of
from nova_workers.contracts.agents import AGENT_ID_PATTERN

_USUAL_AGENT = "nova"


async def show(request: Request) -> Response:
    """Show the lines for the clients of open doors, and how the others are opened. No page has a key."""
    client = client_of(request)
    key, found, agents = await asyncio.gather(client.whoami(), client.fleet.doors(), agent_choices(client))
    is_open = [door.name for door in found.doors if door.state == "open"]
    return render(
        request,
        "connect/show.html",
        key=key,
        url=found.public_url or client.base_url,
        is_public=found.public_url is not None,
        agent=_agent(request.query_params.get("agent"), agents),
        agents=agents,
        setup=setup,
        clients=clients_of([None, *is_open]),
        closed=[
            (door, clients_of([door.name]), doors_with(*is_open, door.name))
            for door in found.doors
            if door.state != "open"
        ],
    )


def _agent(given: str | None, agents: list[tuple[str, str]] | None) -> str:
    """Return the agent of the lines.

    Raises:
        NotFound: There is no such agent, or it is no id: a link must not put commands into the lines.
    """
    ids = None if agents is None else [agent_id for agent_id, _ in agents]
    if not given:
        return _USUAL_AGENT if not ids or _USUAL_AGENT in ids else ids[0]
    if re.fullmatch(AGENT_ID_PATTERN, given) is None or (ids is not None and given not in ids):
        raise NotFound(f"There is no agent {given!r}.", status=404)
    return given


PAGE = PageModule(
    routes=(Route("/connect", show),),
    nav=(NavEntry("Account", "Connect", "/connect", "connect", key="x"),),
)
