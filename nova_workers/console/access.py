"""What a page shows only if the signed-in key may read it."""

from collections.abc import Awaitable
from typing import TypeVar

from nova_workers.base.errors import Forbidden, Gone, NotFound
from nova_workers.client.client import NovaClient
from nova_workers.client.paging import iterate
from nova_workers.console.formats import brief
from nova_workers.console.names import labelled
from nova_workers.contracts.content import text_of

T = TypeVar("T")
D = TypeVar("D")

_PAGE = 200
_NAME_CHARS = 80


async def if_allowed(call: Awaitable[T], otherwise: D) -> T | D:
    """Return the result of a call of the API, or `otherwise` if the key lacks the scope for it."""
    try:
        return await call
    except Forbidden:
        return otherwise


async def name_of_thread(client: NovaClient, thread_id: str | None) -> str | None:
    """Return a conversation's title or opening words; None if there are none, or the key may not read them."""
    if thread_id is None:
        return None
    try:
        thread = await client.threads.get(thread_id)
    except (Forbidden, NotFound, Gone):
        return None
    return brief(thread.title or thread.opening, _NAME_CHARS) or None


async def name_of_run(client: NovaClient, run_id: str | None) -> str | None:
    """Return the beginning of a run's message; None if there is none, or the key may not read it."""
    if run_id is None:
        return None
    try:
        run = await client.runs.get(run_id)
    except (Forbidden, NotFound, Gone):
        return None
    return brief(text_of(tuple(run.message)), _NAME_CHARS) or None


async def agent_choices(client: NovaClient) -> list[tuple[str, str]] | None:
    """Return every agent's id and label, for a field that names one; None for a key that may not read agents."""
    return await if_allowed(_agents(client), None)


async def model_choices(client: NovaClient) -> list[str]:
    """Return the names of models that a message may ask for, as suggestions; none for a key that may not read them."""
    page = await if_allowed(client.orchestration_models.list(), None)
    usable = [] if page is None else [model for model in page.items if model.enabled and model.unavailable is None]
    return sorted({name for model in usable for name in (model.model_id, *model.names)})


async def _agents(client: NovaClient) -> list[tuple[str, str]]:
    return labelled([(agent.id, agent.spec.name) async for agent in iterate(client.agents.list, limit=_PAGE)])
