"""Runs of threads, and stateless ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

import orjson
from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import AfterValidator
from starlette.responses import StreamingResponse

from nova_workers.base.errors import Conflict, InvalidInput, NovaError, missing
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.http.wire import RunView, ThreadView
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.runs.sql.reads import RunState

from ...errors import NotOffered
from ...json_body import StrictRoute
from ...params import known_form
from ..questions import is_settled, outside_waits
from ..service import AnyDoor, Door, SendingDoor
from .conversations import conversation_of, json, name_of, states_of, thread_of
from .inputs import RunMake, answers_of, refuse_unkept, run_of, said_in
from .messages import interrupts_of
from .threads import LimitQuery, ThreadPath, make_thread

router = APIRouter(prefix="/langgraph", route_class=StrictRoute, include_in_schema=False)

RunPath = Annotated[str, Path(), AfterValidator(known_form("run"))]
RequestId = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=512)]
OffsetQuery = Annotated[int, Query(ge=0, le=1_000)]
StatusQuery = Annotated[Literal["pending", "running", "error", "success", "timeout", "interrupted"] | None, Query()]
_KEPT_ALIVE_S: Final = 15.0
"""How often a client that waits gets a line, so that no proxy gives up."""


class Sent(NamedTuple):
    """A run that a request began or answered.

    Attributes:
        thread_name: The id of its thread as the client knows it.
        after: The event after which the run goes on; the client has what is before it.
        found: The run's state, if it is known.
    """

    run_id: str
    thread_id: str
    thread_name: str
    after: EventCursor = EventCursor()
    found: RunState | None = None

    @property
    def place(self) -> str:
        """Where the run is, below the door."""
        return f"/threads/{self.thread_name}/runs/{self.run_id}"


@router.post("/threads/{thread_id}/runs")
async def create_run(thread_id: ThreadPath, body: RunMake, door: SendingDoor, request_id: RequestId = None) -> Response:
    """Begin a run in the background."""
    return await _begun(door, await send(door, thread_id, body, request_id))


@router.post("/runs")
async def create_stateless_run(body: RunMake, door: SendingDoor, request_id: RequestId = None) -> Response:
    """Begin a run in a thread of its own in the background."""
    return await _begun(door, await send(door, None, body, request_id))


@router.post("/threads/{thread_id}/runs/wait")
async def wait_for_run(
    thread_id: ThreadPath, body: RunMake, door: SendingDoor, request_id: RequestId = None
) -> Response:
    """Begin a run, and respond with the values of its thread when it has ended or asks something."""
    return await _joined(door, await send(door, thread_id, body, request_id))


@router.post("/runs/wait")
async def wait_for_stateless_run(body: RunMake, door: SendingDoor, request_id: RequestId = None) -> Response:
    """Begin a run in a thread of its own, and respond with its values when it has ended or asks something."""
    return await _joined(door, await send(door, None, body, request_id))


@router.get("/threads/{thread_id}/runs")
async def list_runs(
    *,
    thread_id: ThreadPath,
    door: AnyDoor,
    limit: LimitQuery = 10,
    offset: OffsetQuery = 0,
    status: StatusQuery = None,
) -> Response:
    """Return runs of a thread, newest first; with a status those of its newest 1,000 runs."""
    thread = await thread_of(door, thread_id)
    most = 1_000 if status is not None else offset + limit
    runs = [run_document(run, thread) for run in await door.runs_of_thread(thread.id, limit=most)]
    found = [run for run in runs if status in {None, run["status"]}]
    return json(found[offset : offset + limit])


@router.get("/threads/{thread_id}/runs/{run_id}")
async def get_run(thread_id: ThreadPath, run_id: RunPath, door: AnyDoor) -> Response:
    """Return a run as it is now."""
    thread, run = await find_run(door, thread_id, run_id)
    return json(run_document(run, thread))


@router.get("/threads/{thread_id}/runs/{run_id}/join")
async def join_run(thread_id: ThreadPath, run_id: RunPath, door: AnyDoor) -> Response:
    """Return the values of a run's thread when the run has ended or asks something."""
    thread, run = await find_run(door, thread_id, run_id)
    return await _joined(door, Sent(run.id, thread.id, name_of(thread)))


@router.post("/threads/{thread_id}/runs/{run_id}/cancel")
async def cancel_run(
    thread_id: ThreadPath,
    run_id: RunPath,
    door: AnyDoor,
    wait: Annotated[bool, Query()] = False,
    action: Annotated[Literal["interrupt", "rollback"], Query()] = "interrupt",
) -> Response:
    """Cancel a run; with `wait`, respond when it has stopped."""
    if action == "rollback":
        raise NotOffered(
            "action: what a run did stays in its thread. Use interrupt, and fork the thread at the turn before.",
            field="action",
        )
    thread, run = await find_run(door, thread_id, run_id)
    await door.cancel(run.id)
    if wait:
        return await _joined(door, Sent(run.id, thread.id, name_of(thread)))
    return json(None)


@router.delete("/threads/{thread_id}/runs/{run_id}")
async def delete_run(thread_id: ThreadPath, run_id: RunPath, door: AnyDoor) -> Response:
    """Refuse to delete a run, since the ledger keeps each run of a thread."""
    await find_run(door, thread_id, run_id)
    raise NotOffered("A run is a part of its thread's history. Delete the thread: DELETE /threads/{thread_id}.")


async def send(door: Door, thread_id: str | None, body: RunMake, request_id: str | None) -> Sent:
    """Begin a run with a request's message, or answer what a run asks.

    Raises:
        NovaError: It is refused; then there is no run, and nothing is answered.
    """
    refuse_unkept(body)
    await _refuse_elsewhere(door, thread_id, body)
    key = door.key(request_id, body)
    if (body.command or {}).get("resume") is not None:
        return await _resume(door, thread_id, body, key)
    said = said_in(body.input)
    now = door.state.services.clock.now()
    if thread_id is None:
        message = run_of(body, said, thread_id=None, now=now)
        make = None
        if said.past:
            make = await door.with_past(body.assistant_id, said.past, ephemeral=message.ephemeral)
        begun = await door.submit(message, key=key, make_thread=make)
        return Sent(begun.run_id, begun.thread_id, begun.thread_id, found=begun.state)
    if said.past:
        raise InvalidInput(
            "input.messages: the thread has what was said before; send new messages of the user only.",
            field="input.messages",
        )
    thread = await _thread_of_run(door, thread_id, body)
    begun = await door.submit(run_of(body, said, thread_id=thread.id, now=now), key=key)
    return Sent(begun.run_id, begun.thread_id, name_of(thread), found=begun.state)


async def _refuse_elsewhere(door: Door, thread_id: str | None, body: RunMake) -> None:
    """Refuse a run that is to continue at an earlier state. Front ends name the newest one with each message."""
    named = body.checkpoint.get("checkpoint_id") if isinstance(body.checkpoint, dict) else body.checkpoint
    wanted = body.checkpoint_id or named
    if not wanted:
        return
    if thread_id is not None:
        newest = states_of(await conversation_of(door, await thread_of(door, thread_id)))[0]
        if wanted == newest["checkpoint"]["checkpoint_id"]:
            return
    raise NotOffered(
        "checkpoint: a run continues at the newest state of its thread; to continue elsewhere, fork at a turn with "
        "POST /v1/threads/{thread_id}/fork.",
        field="checkpoint",
    )


async def find_run(door: Door, thread_id: str, run_id: str) -> tuple[ThreadView, RunView]:
    """Return a run with its thread.

    Raises:
        NotFound: No such run in this thread.
    """
    thread = await thread_of(door, thread_id)
    run = await door.shown_run(run_id)
    if run.thread_id != thread.id:
        raise missing("run", run_id)
    return thread, run


def run_document(run: RunView, thread: ThreadView) -> JsonObject:
    """Return a run in the protocol's form."""
    document: JsonObject = {
        "run_id": run.id,
        "thread_id": name_of(thread),
        "assistant_id": run.agent_id,
        "created_at": run.created_at,
        "updated_at": run.finished_at or run.started_at or run.created_at,
        "status": _status(run),
        "metadata": run.metadata,
        "multitask_strategy": run.on_busy,
        "kwargs": {},
    }
    if run.status == "canceled":
        document["cancel_reason"] = "canceled"
    return document


def error_of(run: RunView) -> JsonObject | None:
    """Return why a run failed; None if it did not."""
    if run.status != "failed":
        return None
    kind, message = ("failed", "The run failed.") if run.error is None else (run.error.kind, run.error.message)
    return {"error": kind, "message": message}


def _status(run: RunView) -> str:
    match run.status:
        case "succeeded":
            return "success"
        case "failed":
            return "error"
        case "canceled":
            return "interrupted"
        case "waiting" if outside_waits(run):
            return "interrupted"
        case "queued":
            return "pending"
        case _:
            return "running"


async def addressed(door: Door, thread: ThreadView, assistant_id: str) -> ThreadView:
    """Return a thread as one of the assistant that a request names.

    Raises:
        NotFound: No such agent in this tenant.
        Gone: It was deleted or renamed.
        InvalidInput: The thread has runs of another agent.
    """
    if thread.agent_id == assistant_id:
        return thread
    # Unknown, deleted and renamed ones are named as such.
    await door.agent(assistant_id)
    moved = await door.readdress(thread.id, assistant_id)
    if moved is None:
        raise InvalidInput(
            f"assistant_id: the thread has runs of the agent {thread.agent_id!r}, and stays with it.",
            field="assistant_id",
        )
    return moved


async def _thread_of_run(door: Door, thread_id: str, body: RunMake) -> ThreadView:
    if body.if_not_exists == "create" and not thread_id.startswith("thr_"):
        thread = await make_thread(door, thread_id, {"graph_id": body.assistant_id}, is_shared=True)
    else:
        thread = await thread_of(door, thread_id)
    return await addressed(door, thread, body.assistant_id)


async def _resume(door: Door, thread_id: str | None, body: RunMake, key: RequestKey | None) -> Sent:
    if thread_id is None:
        raise InvalidInput("command.resume: name the thread whose run is answered.", field="command.resume")
    thread = await thread_of(door, thread_id)
    if (earlier := await door.earlier(key)) is not None:
        after, _, run_id = earlier.partition("@")
        return Sent(run_id, thread.id, name_of(thread), EventCursor.parse(after))
    run = None if thread.active_run_id is None else await door.run(thread.active_run_id)
    waits = [] if run is None else outside_waits(run)
    if run is None or not waits:
        raise Conflict(f"Nothing is asked in the thread {thread_id!r} now: it was answered, or its run has ended.")
    answers = answers_of(run, waits, (body.command or {})["resume"])
    after = await door.newest_event(run.id)
    await door.give(run.id, results=answers.results, answers=answers.questions, key=key, made=f"{after}@{run.id}")
    return Sent(run.id, thread.id, name_of(thread), after)


async def _begun(door: Door, sent: Sent) -> Response:
    run, thread = await door.shown_run(sent.run_id), await door.thread(sent.thread_id)
    return json(run_document(run, thread), Content_Location=sent.place)


async def _joined(door: Door, sent: Sent) -> Response:
    """Respond with the values of a run's thread when the run has ended or asks something.

    A client that loses the connection repeats it at the place that the response names.
    """
    headers = {"content-location": sent.place, "location": f"{sent.place}/join"}
    run = await door.wait(sent.run_id, timeout_s=_KEPT_ALIVE_S)
    if is_settled(run):
        return Response(await _values(door, run), media_type="application/json", headers=headers)
    return StreamingResponse(_kept_alive(door, sent.run_id), media_type="application/json", headers=headers)


async def _kept_alive(door: Door, run_id: str) -> AsyncGenerator[bytes]:
    """Yield spaces, which JSON may begin with, until the run is over, and then the values."""
    try:
        while True:
            yield b"\n"
            run = await door.wait(run_id, timeout_s=_KEPT_ALIVE_S)
            if is_settled(run):
                yield await _values(door, run)
                return
    except NovaError as error:
        # The status was already sent.
        yield orjson.dumps({"__error__": {"error": error.code, "message": str(error)}})


async def _values(door: Door, run: RunView) -> bytes:
    if (error := error_of(run)) is not None:
        return orjson.dumps({"__error__": error})
    conversation = await conversation_of(door, await door.thread(run.thread_id))
    values: Mapping[str, Any] = conversation.values
    asked = interrupts_of(run)
    return orjson.dumps({**values, "__interrupt__": asked} if asked else values)
