"""The HTTP binding, below the address of an agent: ``/a2a/{agent_id}/message:send`` and so on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from a2a.server.routes.rest_dispatcher import RestDispatcher
from a2a.types import SendMessageRequest, SubscribeToTaskRequest
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import A2AError
from a2a.utils.proto_utils import validate_proto_required_fields
from fastapi import APIRouter, Request, Response
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import Message as ProtoMessage
from starlette.responses import JSONResponse

from nova_workers.base.errors import InvalidInput

from ...errors import problem_response
from ...json_body import parse_json
from ..service import AnyDoor, Door, SendingDoor
from .cards import PREFIX
from .exchange import Exchange
from .handler import ContextBuilder, FleetRequestHandler, context_state, refusal_in
from .requests import AgentPath, Respond, TaskPath, body_of, follow, send_and_follow, subscribe

router = APIRouter(prefix=f"{PREFIX}/{{agent_id}}", include_in_schema=False)
_rest = RestDispatcher(FleetRequestHandler(), ContextBuilder())


@router.post("/message:send")
async def send_message(agent_id: AgentPath, request: Request, door: SendingDoor) -> Response:
    """Send a message."""
    parse_json(await body_of(request))
    return await _answer(request, door, agent_id, _rest.on_message_send)


@router.post("/message:stream")
async def stream_message(agent_id: AgentPath, request: Request, door: SendingDoor) -> Response:
    """Send a message, and follow its task."""
    body = await body_of(request)
    parse_json(body)
    params = SendMessageRequest()
    try:
        Parse(body, params, ignore_unknown_fields=True)
    except ParseError as error:
        raise InvalidInput(str(error), field="body") from error
    return await _stream(Exchange(door, agent_id), params, send_and_follow)


@router.get("/tasks/{task_id}:subscribe")
@router.post("/tasks/{task_id}:subscribe")
async def subscribe_to_task(agent_id: AgentPath, task_id: TaskPath, door: AnyDoor) -> Response:
    """Follow a task."""
    return await _stream(Exchange(door, agent_id), SubscribeToTaskRequest(id=task_id), subscribe)


@router.post("/tasks/{id}:cancel")
async def cancel_task(agent_id: AgentPath, request: Request, door: AnyDoor) -> Response:
    """Cancel a task."""
    return await _answer(request, door, agent_id, _rest.on_cancel_task)


@router.get("/tasks/{id}")
async def get_task(agent_id: AgentPath, request: Request, door: AnyDoor) -> Response:
    """Return a task."""
    return await _answer(request, door, agent_id, _rest.on_get_task)


@router.get("/tasks")
async def list_tasks(agent_id: AgentPath, request: Request, door: AnyDoor) -> Response:
    """Return a page of tasks."""
    return await _answer(request, door, agent_id, _rest.list_tasks)


@router.post("/tasks/{id}/pushNotificationConfigs")
async def create_push_config(agent_id: AgentPath, request: Request, door: AnyDoor) -> Response:
    """Let an address get the changes of a task."""
    parse_json(await body_of(request))
    return await _answer(request, door, agent_id, _rest.set_push_notification)


@router.get("/tasks/{id}/pushNotificationConfigs")
async def list_push_configs(agent_id: AgentPath, request: Request, door: AnyDoor) -> Response:
    """Return the push notification configurations of a task."""
    return await _answer(request, door, agent_id, _rest.list_push_notifications)


@router.get("/tasks/{id}/pushNotificationConfigs/{push_id}")
async def get_push_config(agent_id: AgentPath, request: Request, door: AnyDoor) -> Response:
    """Return a push notification configuration."""
    return await _answer(request, door, agent_id, _rest.get_push_notification)


@router.delete("/tasks/{id}/pushNotificationConfigs/{push_id}")
async def delete_push_config(agent_id: AgentPath, request: Request, door: AnyDoor) -> Response:
    """Delete a push notification configuration."""
    return await _answer(request, door, agent_id, _rest.delete_push_notification)


@router.get("/extendedAgentCard")
async def get_extended_card(agent_id: AgentPath, request: Request, door: AnyDoor) -> Response:
    """Return the card of the agent."""
    return await _answer(request, door, agent_id, _rest.handle_authenticated_agent_card)


async def _answer(
    request: Request, door: Door, agent_id: str, dispatch: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Answer with what the SDK makes of a request; errors of ours with their own statuses and headers."""
    context_state(request, Exchange(door, agent_id))
    response = await dispatch(request)
    refusal = refusal_in(request)
    return response if refusal is None else problem_response(refusal, instance=request.url.path)


async def _stream(exchange: Exchange, params: ProtoMessage, respond: Respond) -> Response:
    try:
        validate_proto_required_fields(params)
        return await follow(exchange, params, _bare, respond)
    except A2AError as error:
        payload = build_rest_error_payload(error)
        return JSONResponse(payload, status_code=payload["error"]["code"])


def _bare(result: dict[str, Any]) -> dict[str, Any]:
    return result
