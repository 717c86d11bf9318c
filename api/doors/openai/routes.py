"""``/openai/v1``: responses and models."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import APIRouter, Header, Path, Query, Response

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.content import JsonObject

from ...json_body import StrictRoute
from ..service import AnyDoor, Begun, Door, SendingDoor
from ..streams import DoorStream
from .bodies import CreateResponse, Given, given_input, run_of
from .responses import ResponseId, item_documents, part_of, response_document, thread_of
from .writer import ResponseWriter, cursor_at

router = APIRouter(prefix="/openai/v1", route_class=StrictRoute, include_in_schema=False)

_MAX_NUMBER = 2**53 - 1
RequestId = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=512)]
ClientRequestId = Annotated[str | None, Header(alias="X-Client-Request-Id", min_length=1, max_length=512)]
IdPath = Annotated[str, Path(max_length=80)]
StartingAfter = Annotated[int | None, Query(ge=0, le=_MAX_NUMBER)]


@router.get("/models")
async def list_models(door: AnyDoor) -> Response:
    """List the agents, each as a model."""
    return _json({"object": "list", "data": [_model(agent_id) for agent_id in await door.agents()]})


@router.get("/models/{model_id}")
async def get_model(model_id: IdPath, door: AnyDoor) -> Response:
    """Get an agent as a model."""
    return _json(_model(await door.agent(model_id)))


@router.post("/responses")
async def create_response(
    body: CreateResponse, door: SendingDoor, request_id: RequestId = None, client_request_id: ClientRequestId = None
) -> Response:
    """Send a message to an agent, or results of calls to a response that ended with them."""
    given = given_input(body)
    if given.results:
        return await _continue(door, body, given)
    key = door.key(request_id or client_request_id, body)
    thread_id, after_run_id = _continued(body)
    message = run_of(body, given, thread_id, is_new=thread_id is None and after_run_id is None)
    if body.stream and not body.background:
        return await door.submit_and_follow(
            message, lambda begun: _writer(door, begun), key=key, after_run_id=after_run_id
        )
    begun = await door.submit(message, key=key, after_run_id=after_run_id)
    return await _respond(door, ResponseId(begun.run_id), body)


@router.get("/responses/{response_id}")
async def get_response(
    response_id: IdPath, door: AnyDoor, *, stream: bool = False, starting_after: StartingAfter = None
) -> Response:
    """Get a response, or follow it from its beginning or after an event."""
    response = ResponseId.parse(response_id)
    return await _follow(door, response, starting_after) if stream else await _document(door, response)


@router.post("/responses/{response_id}/cancel")
async def cancel_response(response_id: IdPath, door: AnyDoor) -> Response:
    """Cancel the run of a response."""
    response = ResponseId.parse(response_id)
    await door.cancel(response.run_id)
    return await _document(door, response)


@router.get("/responses/{response_id}/input_items")
async def list_input_items(response_id: IdPath, door: AnyDoor) -> Response:
    """List what a response answers."""
    response = ResponseId.parse(response_id)
    items = await door.items(response.run_id)
    last = part_of(items, response.first_step)[1]
    # Results of calls are the input of the response after that of their calls.
    own = [
        item
        for item in items
        if not part_of([item], -1)[0] and response.first_step - 1 <= item.step and (last is None or item.step < last)
    ]
    data = [document for item in own for document in item_documents(item)]
    first, final = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return _json({"object": "list", "data": data, "first_id": first, "last_id": final, "has_more": False})


def _continued(body: CreateResponse) -> tuple[str | None, str | None]:
    """Return the thread and the run that a request names as what it continues."""
    if body.previous_response_id is not None and body.conversation is not None:
        raise InvalidInput("Give previous_response_id or conversation, not both.", field="conversation")
    if body.previous_response_id is not None:
        return None, ResponseId.parse(body.previous_response_id).run_id
    if body.conversation is None:
        return None, None
    return thread_of(body.conversation if isinstance(body.conversation, str) else body.conversation.id), None


async def _continue(door: Door, body: CreateResponse, given: Given) -> Response:
    """Give results to a run that waits for them; the response after that of the calls answers."""
    if body.previous_response_id is None:
        raise InvalidInput(
            "A function_call_output belongs to a response: give its id as previous_response_id.",
            field="previous_response_id",
        )
    if given.message:
        raise InvalidInput("Send the results of calls first, and a message when they are answered.", field="input")
    previous = ResponseId.parse(body.previous_response_id)
    asked_step = part_of(await door.items(previous.run_id), previous.first_step)[1]
    if asked_step is None:
        raise InvalidInput(
            f"Response {body.previous_response_id!r:.80} has no calls of your functions.", field="previous_response_id"
        )
    await door.give_results(previous.run_id, given.results)
    response = ResponseId(previous.run_id, asked_step + 1)
    return await _follow(door, response, None) if body.stream else await _respond(door, response, body)


async def _respond(door: Door, response: ResponseId, body: CreateResponse) -> Response:
    if body.stream:
        return await _follow(door, response, None)
    if not body.background:
        await door.wait(response.run_id)
    return await _document(door, response)


async def _follow(door: Door, response: ResponseId, starting_after: int | None) -> DoorStream:
    after = None if starting_after is None else cursor_at(starting_after)
    return await door.follow(response.run_id, ResponseWriter(door, response, after), after=after)


async def _document(door: Door, response: ResponseId) -> Response:
    run = await door.run(response.run_id)
    return _json(response_document(run, response, await door.items(response.run_id)))


def _writer(door: Door, begun: Begun) -> ResponseWriter:
    return ResponseWriter(door, ResponseId(begun.run_id))


def _model(agent_id: str) -> JsonObject:
    return {"id": agent_id, "object": "model", "created": 0, "owned_by": "nova-workers"}


def _json(document: JsonObject) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")
