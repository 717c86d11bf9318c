"""``/openai/v1/models``: agents, each as a model."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Path, Response
from pydantic import AfterValidator

from nova_workers.base.errors import Gone, NotFound
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import AgentView

from ...json_body import StrictRoute
from ...params import known_form
from ..service import AnyDoor

router = APIRouter(prefix="/openai/v1/models", route_class=StrictRoute, include_in_schema=False)

ModelPath = Annotated[str, Path(), AfterValidator(known_form("model"))]


@router.get("")
async def list_models(door: AnyDoor) -> Response:
    """List the agents that the key may send messages to, in one page, as the protocol has it."""
    return _json({"object": "list", "data": [_model(agent) for agent in await door.agents()]})


@router.get("/{model_id}")
async def get_model(model_id: ModelPath, door: AnyDoor) -> Response:
    """Get an agent as a model."""
    try:
        return _json(_model(await door.agent(model_id)))
    except (Gone, NotFound) as error:
        raise no_model(model_id, "GET /openai/v1/models lists them.") from error


def no_model(name: str, hint: str) -> NotFound:
    """Return the error that there is no such model. A deleted agent is none."""
    return NotFound(f"There is no model {name!r:.80}. {hint}", kind="model", id=name[:80], field="model")


def _model(agent: AgentView) -> JsonObject:
    return {
        "id": agent.id,
        "object": "model",
        "created": int(agent.created_at.timestamp()),
        "owned_by": "nova-workers",
        # Front ends show it.
        "name": agent.spec.name,
    }


def _json(document: JsonObject) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")
