"""``/a2a/{agent_id}``: an agent's address for JSON-RPC; and the cards."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import orjson
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import AgentCard, SendMessageRequest, SubscribeToTaskRequest
from a2a.utils.errors import A2AError, InvalidParamsError
from a2a.utils.proto_utils import validate_proto_required_fields
from fastapi import APIRouter, Request, Response
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message as ProtoMessage
from redis.exceptions import RedisError
from starlette.routing import BaseRoute, Route

from nova_workers.base.errors import NovaError

from ...errors import outcome_of, problem
from ...json_body import StrictRequest, parse_json
from ..service import AnyDoor, SendingDoor
from . import rest
from .cards import CARD_PATH, PREFIX, card_of, fleets_card
from .errors import error_of, rpc_error
from .exchange import Exchange
from .handler import ContextBuilder, FleetRequestHandler, context_state
from .requests import AgentPath, Respond, body_of, follow, send_and_follow, subscribe

_ENVELOPE: Final = frozenset({"jsonrpc", "id", "method", "params"})
_CARD_KEPT_S: Final = 60
_STREAMS: Final[dict[str, tuple[type[ProtoMessage], Respond]]] = {
    "SendStreamingMessage": (SendMessageRequest, send_and_follow),
    "SubscribeToTask": (SubscribeToTaskRequest, subscribe),
}

router = APIRouter(prefix=PREFIX, include_in_schema=False)
_rpc = JsonRpcDispatcher(FleetRequestHandler(), ContextBuilder())


@router.post("/{agent_id}")
@router.post("/{agent_id}/")
async def call(agent_id: AgentPath, request: Request, door: SendingDoor) -> Response:
    """Answer a call of JSON-RPC."""
    body = parse_json(await body_of(request))
    exchange = Exchange(door, agent_id)
    if isinstance(body, dict):
        # What the protocol does not describe is passed over.
        body = {name: value for name, value in body.items() if name in _ENVELOPE}
        if body.get("method") in _STREAMS and body.get("jsonrpc") == "2.0":
            return await _stream(exchange, body)
    strict = StrictRequest(request.scope, request.receive)
    strict.loaded = body
    context_state(strict, exchange)
    return await _rpc.handle_requests(strict)


@router.get("/{agent_id}" + CARD_PATH)
async def get_card(agent_id: AgentPath, request: Request, door: AnyDoor) -> Response:
    """Return the card of an agent."""
    return _card_response(request, card_of(request, await door.agent(agent_id)), "private")


async def get_fleets_card(request: Request) -> Response:
    """Return the card of the fleet, without a key."""
    return _card_response(request, fleets_card(request), "public")


async def _stream(exchange: Exchange, body: dict[str, Any]) -> Response:
    """Answer a call with a stream, or with its refusal."""
    request_id = body.get("id")
    if not isinstance(request_id, str | int | None) or isinstance(request_id, bool):
        request_id = None
    kind, respond = _STREAMS[body["method"]]

    def frame(result: dict[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": request_id, "result": result}

    try:
        params = _parsed(body.get("params", {}), kind())
        validate_proto_required_fields(params)
        return await follow(exchange, params, frame, respond)
    except A2AError as error:
        refusal = error
    except (NovaError, RedisError) as error:
        refusal = error_of(problem(outcome_of(error, path=exchange.door.request.url.path)))
    return Response(orjson.dumps(rpc_error(request_id, refusal)), media_type="application/json")


def _parsed(params: Any, into: ProtoMessage) -> ProtoMessage:
    try:
        return ParseDict(params, into, ignore_unknown_fields=True)
    except (ParseError, TypeError, AttributeError, ValueError) as error:
        raise InvalidParamsError(f"Invalid params: {error}") from error


def _card_response(request: Request, card: AgentCard, audience: str) -> Response:
    content = orjson.dumps(MessageToDict(card))
    headers = {
        "cache-control": f"{audience}, max-age={_CARD_KEPT_S}",
        "etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    }
    if request.headers.get("if-none-match") == headers["etag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/json", headers=headers)


ROUTES: Final[tuple[BaseRoute, ...]] = (
    *rest.router.routes,
    *router.routes,
    Route(CARD_PATH, get_fleets_card, methods=["GET"]),
)
