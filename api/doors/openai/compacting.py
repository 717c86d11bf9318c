"""``POST /responses/compact``: a client that keeps its conversation gets a summary of it, to send in its place.

The fleet keeps nothing of it: the summary is written by a run on an ephemeral thread, and the client sends it back.
"""

from __future__ import annotations

from typing import Final

import orjson
from fastapi import APIRouter, Response

from nova_workers.base.errors import InvalidInput, Unavailable
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.http.wire import StatelessRunCreate

from ...json_body import StrictRoute
from ..service import SendingDoor
from .bodies import CreateResponse, agent_of
from .continuing import resolved
from .inputs import given_input, sealed_summary
from .responses import ResponseId, response_document

router = APIRouter(prefix="/openai/v1", route_class=StrictRoute, include_in_schema=False)

_ASK: Final = (
    "Summarize the conversation so far, so that it can continue from the summary alone: what was asked, decided and "
    "done, with all names and numbers, and what is open. Write nothing but the summary."
)


@router.post("/responses/compact")
async def compact_response(body: CreateResponse, door: SendingDoor) -> Response:
    """Summarize an input."""
    agent_id = agent_of(body)
    if body.previous_response_id is not None:
        raise InvalidInput(
            "A conversation that the fleet keeps is compacted by it. Send the input of one that you keep.",
            field="previous_response_id",
        )
    given = given_input(await resolved(door, body.input)).without_results()
    if given.message:
        given.history.append(("user", given.message))
    if not given.history:
        raise InvalidInput("input has nothing to summarize.", field="input")
    make_thread = await door.with_past(agent_id, given.past(), ephemeral=True)
    message = StatelessRunCreate(message=_ASK, agent_id=agent_id, instructions=body.instructions or None)
    begun = await door.submit(message, make_thread=make_thread)
    run = await door.wait(begun.run_id)
    if run.status != "succeeded" or not run.text:
        problem = f"has {run.status}" if run.status in ENDED_RUNS else "takes too long"
        raise Unavailable(f"The run {run.id!r}, which summarizes the input, {problem}. Try again.")
    response = ResponseId(run.id)
    made = response_document(response, await door.recorded(run.id))
    name = str(response).removeprefix("resp_")
    summary = {"type": "compaction", "id": f"cmp_{name}", "encrypted_content": sealed_summary(run.text)}
    document = {
        "id": str(response),
        "object": "response.compaction",
        "created_at": made["created_at"],
        "output": [summary],
        "usage": made["usage"],
    }
    return Response(orjson.dumps(document), media_type="application/json")
