"""``/v1/events``: what changes of a tenant's things, as it does."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from nova_workers.base.errors import Unauthenticated
from nova_workers.base.vocabulary import ChangeSubject
from nova_workers.contracts.changes import SCOPE_OF
from nova_workers.domain.keys.sql.keys import is_valid_key

from ...auth import AnyCaller, Caller
from ...errors import InvalidCursor
from ...openapi import event_stream, problems
from ...state import ApiState, State
from ...streaming.following_changes import Admit, ChangeCursor, ChangeEventStream, ChangeTarget

router = APIRouter(prefix="/v1/events", tags=["events"])

_EVENTS = event_stream(
    "ChangeEvent",
    "Server-sent events without an end: `id` is where to resume, `event` the type, `data` the event as JSON. Comments "
    "are heartbeats, whose ids count too. A `reset` says that changes were missed.",
)
_CURSOR_CHARS = 60
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", max_length=_CURSOR_CHARS, description="The last id that this stream sent."),
]
After = Annotated[
    str | None, Query(max_length=_CURSOR_CHARS, description="As Last-Event-ID, which wins, for a first request.")
]
Subjects = Annotated[
    list[ChangeSubject] | None,
    Query(max_length=len(SCOPE_OF), description="Only changes of these; without any, of all that the key may read."),
]


@router.get("", response_class=Response, responses={**_EVENTS, **problems(400, 422)})
async def follow_changes(
    *,
    request: Request,
    caller: AnyCaller,
    state: State,
    subject: Subjects = None,
    last_event_id: LastEventId = None,
    after: After = None,
) -> Response:
    """Follow what changes: runs and their questions, threads, orchestrations, tasks, triggers, the inbox, pauses.

    An event names the thing and its new state; read the thing for the rest. Changes arrive in the order of their
    transactions, each once, also after a reconnection within 24 hours.
    """
    target = ChangeTarget(caller.tenant_id, _readable(caller, subject), _cursor(last_event_id or after))
    begins = await state.change_follower.begin()
    async with state.permits.hold(caller.key_id) as permit:
        return ChangeEventStream(
            target,
            begins,
            follower=state.change_follower,
            admit=_admission(request, state, caller),
            permit=permit.handed_over(),
            metrics=state.services.metrics,
            heartbeat_s=state.services.settings.api.heartbeat_s,
        )


def _admission(request: Request, state: ApiState, caller: Caller) -> Admit:
    """Return the check that a request is still of a valid key, and of a session that goes on if it names one."""

    async def admit() -> None:
        async with state.services.database.connection() as connection:
            if not await is_valid_key(connection, caller.tenant_id, caller.key_id):
                raise Unauthenticated("The API key was revoked or has expired.", key_id=caller.key_id)
        await state.sign_ins.check(request.scope, caller)

    return admit


def _readable(caller: Caller, named: list[ChangeSubject] | None) -> frozenset[ChangeSubject]:
    """Return the subjects to send.

    Raises:
        Forbidden: The key may not read one that the request names.
    """
    for subject in named or ():
        if (scope := SCOPE_OF[subject]) is not None:
            caller.need(scope)
    return frozenset(
        subject for subject in named or SCOPE_OF if (scope := SCOPE_OF[subject]) is None or caller.may(scope)
    )


def _cursor(text: str | None) -> ChangeCursor | None:
    if text is None:
        return None
    try:
        return ChangeCursor.parse(text)
    except ValueError as error:
        raise InvalidCursor(
            f"{text!r} is not an event id of this stream; give the last id that it sent, or none to begin now.",
            field="Last-Event-ID",
        ) from error
