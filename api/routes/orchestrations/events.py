"""``/v1/orchestrations/{id}/events``: one stream of what all agents of an orchestration do."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from nova_workers.contracts.orchestration.events import TreeCursor

from ...auth import RunsReader
from ...errors import InvalidCursor
from ...openapi import EVENT_STREAM, event_stream, problems
from ...params import OrchestrationIdPath
from ...state import State
from ...streaming.sse import TreeEventStream
from ...streaming.tree_delivery import TreeTarget

router = APIRouter(prefix="/v1/orchestrations", tags=["orchestrations"])

_EVENTS = event_stream(
    "OrchestrationEvent",
    "Server-sent events: `id` is `<ms>-<seq>-<number>`, `event` the type, `data` a JSON object with the event in "
    "`event`, and its source: `agent_id`, `run_id`, and `event_id` on the stream of that run. Comments are heartbeats. "
    "The stream ends after `orchestration_end`.",
)
_RESPONSES: dict[int | str, dict[str, Any]] = {
    **_EVENTS,
    204: {"description": "The client has the last event; a browser's EventSource stops asking."},
}
_CURSOR_CHARS = 60
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", max_length=_CURSOR_CHARS, description="Id of the last event that the client has."),
]
After = Annotated[
    str | None, Query(max_length=_CURSOR_CHARS, description="As Last-Event-ID, which wins, for a first request.")
]


@router.get(
    "/{orchestration_id}/events", response_class=Response, responses={**_RESPONSES, **problems(400, 404, 422, 429)}
)
async def follow_orchestration(
    orchestration_id: OrchestrationIdPath,
    caller: RunsReader,
    state: State,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """Follow all agents of an orchestration, from the start or after an event, to its end."""
    target = TreeTarget(caller.tenant_id, orchestration_id, _cursor(last_event_id or after))
    head = await state.tree_follower.find(target)
    if head.finished_at is not None and target.after.ms > 0 and not await state.tree_follower.has_more(target):
        return Response(status_code=204, media_type=EVENT_STREAM)
    async with state.permits.hold(caller.key_id) as permit:
        return TreeEventStream(
            target,
            head,
            follower=state.tree_follower,
            permit=permit.handed_over(),
            metrics=state.services.metrics,
            heartbeat_s=state.services.settings.api.heartbeat_s,
        )


def _cursor(text: str | None) -> TreeCursor:
    if text is None:
        return TreeCursor()
    try:
        return TreeCursor.parse(text)
    except ValueError as error:
        raise InvalidCursor(
            f"{text!r} is not an event id; give the id of an event of this orchestration.", field="Last-Event-ID"
        ) from error
