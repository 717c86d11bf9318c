"""What a page shows only if the signed-in key may read it."""

from collections.abc import Awaitable
from typing import TypeVar

from nova_workers.base.errors import Forbidden
from nova_workers.client.client import NovaClient
from nova_workers.client.paging import iterate

T = TypeVar("T")
D = TypeVar("D")

_PAGE = 200


async def if_allowed(call: Awaitable[T], otherwise: D) -> T | D:
    """Return the result of a call of the API, or `otherwise` if the key lacks the scope for it."""
    try:
        return await call
    except Forbidden:
        return otherwise


async def agent_choices(client: NovaClient) -> list[tuple[str, str]] | None:
    """Return every agent's id and label, for a field that names one; None for a key that may not read agents."""
    return await if_allowed(_agents(client), None)


async def _agents(client: NovaClient) -> list[tuple[str, str]]:
    return [
        (agent.id, agent.id if agent.spec.name == agent.id else f"{agent.spec.name} ({agent.id})")
        async for agent in iterate(client.agents.list, limit=_PAGE)
    ]
