"""Streams of runs."""

from __future__ import annotations

from typing import Annotated, TypeGuard

from fastapi import APIRouter, Header, Query, Response

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.events import EventCursor

from ...errors import NotOffered
from ...json_body import StrictRoute
from ..service import AnyDoor, Door, SendingDoor
from ..streams import DoorStream
from .conversations import name_of
from .inputs import RunMake, StreamMode, modes_of
from .runs import RequestId, RunPath, Sent, find_run, send
from .threads import ThreadPath
from .writer import RunWriter

router = APIRouter(prefix="/langgraph", route_class=StrictRoute, include_in_schema=False)

LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=80)]
ModeQuery = Annotated[list[StreamMode] | None, Query()]


@router.post("/threads/{thread_id}/runs/stream")
async def stream_run(thread_id: ThreadPath, body: RunMake, door: SendingDoor, request_id: RequestId = None) -> Response:
    """Begin a run, or answer what it asks, and respond with what it does."""
    return await _stream(door, thread_id, body, request_id)


@router.post("/runs/stream")
async def stream_stateless_run(body: RunMake, door: SendingDoor, request_id: RequestId = None) -> Response:
    """Begin a run in a thread of its own, and respond with what it does."""
    return await _stream(door, None, body, request_id)


@router.get("/threads/{thread_id}/runs/{run_id}/stream")
async def join_stream(
    *,
    thread_id: ThreadPath,
    run_id: RunPath,
    door: AnyDoor,
    stream_mode: ModeQuery = None,
    cancel_on_disconnect: Annotated[bool, Query()] = False,
    last_event_id: LastEventId = None,
) -> Response:
    """Respond with what a run does, from its beginning or after an event that the client has."""
    modes = modes_of(stream_mode)
    if cancel_on_disconnect:
        raise NotOffered(
            "cancel_on_disconnect: a run goes on when its client leaves. Cancel it.", field="cancel_on_disconnect"
        )
    thread, run = await find_run(door, thread_id, run_id)
    sent = Sent(run.id, thread.id, name_of(thread), _cursor(last_event_id))
    writer = RunWriter(door, sent, modes, is_resumed=_is_given(last_event_id))
    return _placed(await door.follow(run.id, writer, after=sent.after), sent, modes)


async def _stream(door: Door, thread_id: str | None, body: RunMake, request_id: str | None) -> Response:
    modes = modes_of(body.stream_mode)
    async with door.stream_permit() as permit:
        sent = await send(door, thread_id, body, request_id)
        writer = RunWriter(door, sent, modes)
        stream = await door.follow(sent.run_id, writer, after=sent.after, found=sent.found, permit=permit)
    return _placed(stream, sent, modes)


def _placed(stream: DoorStream, sent: Sent, modes: frozenset[str]) -> DoorStream:
    """Name the place where a client that loses the connection goes on, with the modes that it asked for."""
    stream.headers["content-location"] = sent.place
    query = "&".join(f"stream_mode={mode}" for mode in sorted(modes))
    stream.headers["location"] = f"{sent.place}/stream?{query}"
    return stream


def _is_given(last_event_id: str | None) -> TypeGuard[str]:
    """Return whether a client has a part of the stream. `-1` is the SDK's form of "from the beginning"."""
    return bool(last_event_id) and last_event_id != "-1"


def _cursor(last_event_id: str | None) -> EventCursor:
    if not _is_given(last_event_id):
        return EventCursor()
    try:
        return EventCursor.parse(last_event_id)
    except ValueError as error:
        raise InvalidInput(f"Last-Event-ID: {error}.", field="Last-Event-ID") from error
