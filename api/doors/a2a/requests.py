"""What both bindings do with a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

from a2a.server.context import ServerCallContext
from a2a.types import SendMessageRequest, SubscribeToTaskRequest
from a2a.utils.version_validator import validate_version
from fastapi import Path, Request
from google.protobuf.message import Message as ProtoMessage
from pydantic import AfterValidator

from ...errors import UnsupportedMediaType
from ...params import AgentIdPath, known_form
from ..streams import DoorStream
from .cards import VERSION
from .exchange import Exchange
from .writer import Frame

_MEDIA_TYPES: Final = frozenset({"application/json", "application/a2a+json"})

Respond = Callable[[Exchange, Any, Frame], Awaitable[DoorStream]]
"""Responds to a request for a stream."""

AgentPath = AgentIdPath
TaskPath = Annotated[str, Path(), AfterValidator(known_form("task"))]


async def send_and_follow(exchange: Exchange, params: SendMessageRequest, frame: Frame) -> DoorStream:
    """Respond to a message."""
    return await exchange.stream(params, frame)


async def subscribe(exchange: Exchange, params: SubscribeToTaskRequest, frame: Frame) -> DoorStream:
    """Respond to a subscription to a task."""
    return await exchange.subscribe(params.id, frame)


async def body_of(request: Request) -> bytes:
    """Return the body of a request.

    Raises:
        UnsupportedMediaType: It is declared as something else than JSON.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _MEDIA_TYPES:
        raise UnsupportedMediaType(f"The body is {media_type!r}; send it as Content-Type: application/json.")
    return await request.body()


async def follow(exchange: Exchange, params: ProtoMessage, frame: Frame, respond: Respond) -> DoorStream:
    """Respond with a stream, to a client of this version of the protocol.

    Raises:
        NovaError: It is refused.
        A2AError: It is refused.
    """

    @validate_version(VERSION)
    async def answer(context: ServerCallContext) -> DoorStream:
        return await respond(exchange, params, frame)

    return await answer(ServerCallContext(state={"headers": dict(exchange.door.request.headers)}))
