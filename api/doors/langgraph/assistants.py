"""What a server is, and agents as assistants."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Final

from fastapi import APIRouter, Response
from pydantic import Field

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import AgentView

from ...json_body import StrictRoute
from ...params import AgentIdPath
from ..service import AnyDoor, Door
from .bodies import MAX_LISTED, Read, has_metadata
from .conversations import json

router = APIRouter(prefix="/langgraph", route_class=StrictRoute, include_in_schema=False)

AssistantPath = AgentIdPath
_METADATA: Final = {"created_by": "system"}
"""What clients find assistants by that a server made itself."""


class AssistantSearch(Read):
    """The body of a search of assistants."""

    metadata: JsonObject | None = None
    graph_id: str | None = None
    name: str | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = 10
    offset: Annotated[int, Field(ge=0)] = 0


@router.get("/ok")
async def check(door: AnyDoor) -> Response:
    """Say that the server serves this key."""
    return json({"ok": True})


@router.get("/info")
async def get_info(door: AnyDoor) -> Response:
    """Return the version and the abilities of the server."""
    flags = {"assistants": True, "crons": True, "langsmith": False, "langsmith_tracing_replicas": False}
    return json({"version": version("nova-workers"), "langgraph_py_version": None, "flags": flags, "metadata": {}})


@router.post("/assistants/search")
async def search_assistants(body: AssistantSearch, door: AnyDoor) -> Response:
    """Return agents as assistants, by their ids."""
    found = await _found(door, body)
    end = body.offset + body.limit
    more = {"X_Pagination_Next": str(end)} if end < len(found) else {}
    return json([_document(agent) for agent in found[body.offset : end]], **more)


@router.post("/assistants/count")
async def count_assistants(body: AssistantSearch, door: AnyDoor) -> Response:
    """Return how many assistants a search finds."""
    return json(len(await _found(door, body)))


@router.get("/assistants/{assistant_id}")
async def get_assistant(assistant_id: AssistantPath, door: AnyDoor) -> Response:
    """Return an agent as an assistant."""
    return json(_document(await door.agent(assistant_id)))


async def _found(door: Door, body: AssistantSearch) -> list[AgentView]:
    return [
        agent
        for agent in await door.agents()
        if body.graph_id in {None, agent.id}
        and (body.name or "").lower() in agent.spec.name.lower()
        and has_metadata(_METADATA, body.metadata)
    ]


def _document(agent: AgentView) -> JsonObject:
    return {
        "assistant_id": agent.id,
        "graph_id": agent.id,
        "name": agent.spec.name,
        "description": agent.spec.description or None,
        "config": {},
        "context": {},
        "metadata": _METADATA,
        "version": agent.version,
        "created_at": agent.created_at,
        "updated_at": agent.updated_at,
    }
