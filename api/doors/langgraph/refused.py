"""Operations of the protocol that the fleet has not, and what to do instead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import APIRouter, Response

from ...errors import NotOffered
from ..service import AnyDoor

router = APIRouter(prefix="/langgraph", include_in_schema=False)

_GRAPHS: Final = "An agent is configuration and no graph of nodes; GET /v1/agents/{agent_id} returns it."
_AGENTS: Final = "An assistant is an agent: create and change it with /v1/agents, `nova agents`, or the console."
_STORE: Final = (
    "There is no store of objects by namespace and key. Agents remember with memories and notes: /v1/memories and "
    "/v1/notes read and write them."
)
_RUNS: Final = "Send the message with POST /threads/{thread_id}/runs/stream."
_REFUSED: Final[tuple[tuple[str, str, str], ...]] = (
    ("POST", "/assistants", _AGENTS),
    ("PATCH", "/assistants/{assistant_id}", _AGENTS),
    ("DELETE", "/assistants/{assistant_id}", _AGENTS),
    ("POST", "/assistants/{assistant_id}/versions", "GET /v1/agents/{agent_id}/versions lists the versions."),
    ("POST", "/assistants/{assistant_id}/latest", "`nova agents rollback` makes an earlier version the newest."),
    ("GET", "/assistants/{assistant_id}/graph", _GRAPHS),
    ("GET", "/assistants/{assistant_id}/schemas", _GRAPHS),
    ("GET", "/assistants/{assistant_id}/subgraphs", _GRAPHS),
    ("GET", "/assistants/{assistant_id}/subgraphs/{namespace}", _GRAPHS),
    ("POST", "/threads/prune", "How long threads are kept is a setting of the agent: `retention`."),
    (
        "POST",
        "/threads/{thread_id}/state",
        "A state cannot be edited: send a message, or fork at a turn with POST /v1/threads/{thread_id}/fork.",
    ),
    ("GET", "/threads/{thread_id}/stream", "Follow a run: GET /threads/{thread_id}/runs/{run_id}/stream."),
    ("POST", "/threads/{thread_id}/stream/events", "Follow a run: GET /threads/{thread_id}/runs/{run_id}/stream."),
    ("POST", "/threads/{thread_id}/commands", _RUNS),
    ("PUT", "/store/items", _STORE),
    ("GET", "/store/items", _STORE),
    ("DELETE", "/store/items", _STORE),
    ("POST", "/store/items/search", _STORE),
    ("POST", "/store/namespaces", _STORE),
    ("POST", "/runs/batch", "Send the messages one by one with POST /runs, or use POST /v1/runs/batch."),
    ("POST", "/runs/cancel", "Cancel each run, or use POST /v1/runs/cancel."),
)


def _refusal(advice: str) -> Callable[[AnyDoor], Awaitable[Response]]:
    async def refuse(door: AnyDoor) -> Response:
        raise NotOffered(advice)

    return refuse


for _method, _path, _advice in _REFUSED:
    router.add_api_route(_path, _refusal(_advice), methods=[_method])
