"""``/openai/v1/responses``."""

from __future__ import annotations

from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Header, Path, Query, Response

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.runs.sql.reads import RunState

from ...json_body import StrictRoute
from ..service import AnyDoor, Door, SendingDoor
from .bodies import CreateResponse, agent_of, refuse_unkept, run_of
from .continuing import Begin, answered_part, begin_of, known_run, naming_previous, resolved
from .inputs import given_input
from .responses import ResponseId, input_of, page_of, response_document
from .writer import ResponseWriter, cursor_at

router = APIRouter(prefix="/openai/v1", route_class=StrictRoute, include_in_schema=False)

_MAX_NUMBER = 2**53 - 1
_CANCELED_WITHIN_S = 5.0
RequestId = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=512)]
IdPath = Annotated[str, Path(max_length=80)]
StartingAfter = Annotated[int | None, Query(ge=0, le=_MAX_NUMBER)]
AfterItem = Annotated[str | None, Query(max_length=300)]
LimitQuery = Annotated[int, Query(ge=1, le=100)]


@router.post("/responses")
async def create_response(body: CreateResponse, door: SendingDoor, request_id: RequestId = None) -> Response:
    """Send a message to an agent, or what a response asked for: results of calls, or an answer."""
    refuse_unkept(body)
    key = door.key(request_id, body)
    if body.stream:
        # First, so that a refusal for too many streams changes nothing.
        async with door.stream_permit() as permit:
            response, found = await _begin(door, body, key)
            writer = ResponseWriter(door, response)
            return await door.follow(response.run_id, writer, found=found, permit=permit)
    response, _ = await _begin(door, body, key)
    if not body.background:
        await door.wait(response.run_id)
    return await _document(door, response, is_background=bool(body.background))


async def _begin(door: Door, body: CreateResponse, key: RequestKey | None) -> tuple[ResponseId, RunState | None]:
    """Return the response that a request makes, or that an earlier one made with its key; with a new run's state."""
    earlier = await door.earlier(key)
    if earlier is not None:
        return ResponseId.made(earlier), None
    given = given_input(await resolved(door, body.input))
    with naming_previous(body.previous_response_id):
        part = await answered_part(door, body, given, key)
        if part is not None:
            return part, None
        given = given.without_results()
        begin = await begin_of(door, body, given)
    if given.history and (known := await known_run(door, body, given)) is not None:
        begin = Begin(after_run_id=known)
    message = run_of(body, given, begin.thread_id, is_new=begin.is_new)
    make_thread = None if begin.after_run_id is None else door.after(begin.after_run_id)
    if given.history and begin.is_new:
        make_thread = await door.with_past(agent_of(body), given.past(), ephemeral=body.store is not True)
    with naming_previous(body.previous_response_id):
        begun = await door.submit(message, key=key, make_thread=make_thread)
    return ResponseId(begun.run_id), begun.state


@router.get("/responses/{response_id}")
async def get_response(
    response_id: IdPath, door: AnyDoor, *, stream: bool = False, starting_after: StartingAfter = None
) -> Response:
    """Get a response, or follow it from its beginning or after an event."""
    response = ResponseId.parse(response_id)
    if not stream:
        return await _document(door, response)
    after = None if starting_after is None else cursor_at(starting_after)
    writer = ResponseWriter(door, response, held=starting_after)
    return await door.follow(response.run_id, writer, after=after)


@router.delete("/responses/{response_id}")
async def delete_response(response_id: IdPath, door: AnyDoor) -> Response:
    """Delete a response that is alone in its conversation, with it."""
    await door.delete_run(ResponseId.parse(response_id).run_id)
    return _json({"id": response_id, "object": "response", "deleted": True})


@router.post("/responses/{response_id}/cancel")
async def cancel_response(response_id: IdPath, door: AnyDoor) -> Response:
    """Cancel the run of a response."""
    response = ResponseId.parse(response_id)
    await door.cancel(response.run_id)
    # A running one stops in a moment.
    await door.wait(response.run_id, timeout_s=_CANCELED_WITHIN_S)
    return await _document(door, response)


@router.get("/responses/{response_id}/input_items")
async def list_input_items(
    response_id: IdPath,
    door: AnyDoor,
    *,
    after: AfterItem = None,
    limit: LimitQuery = 20,
    order: Literal["asc", "desc"] = "desc",
) -> Response:
    """List what a response answers, newest first unless `order` is ``asc``."""
    response = ResponseId.parse(response_id)
    await door.facts(response.run_id)
    data = input_of(await door.items(response.run_id), response.first_step)
    return _json(page_of(data if order == "asc" else data[::-1], after, limit))


async def _document(door: Door, response: ResponseId, *, is_background: bool = False) -> Response:
    document = response_document(response, await door.recorded(response.run_id))
    return _json({**document, "background": is_background})


def _json(document: JsonObject) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")
