"""``/v1/runs/{id}/events``: a run's events, past and live, after the client's last one."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from nova_workers.contracts.events import EventCursor

from ...acceptance import open_stream
from ...auth import RunsReader
from ...errors import InvalidCursor
from ...openapi import EVENT_STREAM, event_stream, problems
from ...params import RunIdPath
from ...state import State
from ...streaming.following import Target

router = APIRouter(prefix="/v1/runs", tags=["runs"])

EVENTS = event_stream(
    "RunEvent",
    "Server-sent events: `id` is `<attempt>-<seq>`, `event` the type, `data` the event as JSON. Comments are "
    "heartbeats. The last event is a `stream_end` whose `final` is true.",
)
_NO_MORE = {204: {"description": "The client has the final event; a browser's EventSource stops asking."}}

_CURSOR_CHARS = 40
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", max_length=_CURSOR_CHARS, description="Id of the last event that the client has."),
]
After = Annotated[
    str | None, Query(max_length=_CURSOR_CHARS, description="As Last-Event-ID, which wins, for a first request.")
]


@router.get(
    "/{run_id}/events",
    response_class=Response,
    responses={**EVENTS, **_NO_MORE, **problems(400, 404, 422, 429)},
)
async def follow_run(
    run_id: RunIdPath, caller: RunsReader, state: State, last_event_id: LastEventId = None, after: After = None
) -> Response:
    """Follow a run from the start or after an event, to its end. No event is missed, whenever the client connects."""
    target = Target(caller.tenant_id, run_id, _cursor(last_event_id or after))
    found = await state.follower.find(target)
    if found.ended and target.after == found.final_event:
        return Response(status_code=204, media_type=EVENT_STREAM)
    async with state.permits.hold(caller.key_id) as permit:
        return open_stream(state, target, found, permit.handed_over(), {})


def _cursor(text: str | None) -> EventCursor:
    if text is None:
        return EventCursor()
    try:
        return EventCursor.parse(text)
    except ValueError as error:
        raise InvalidCursor(
            f"{text!r} is not an event id; give the id of an event of this run, such as '1-42'.", field="Last-Event-ID"
        ) from error
