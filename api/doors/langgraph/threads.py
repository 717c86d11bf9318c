"""Threads."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import AfterValidator, Field

from nova_workers.base.errors import Conflict, missing
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import Metadata, ThreadView

from ...json_body import StrictRoute
from ...params import known_form
from ..service import AnyDoor, Door
from .bodies import MAX_LISTED, Read, has_metadata, refuse_given
from .conversations import (
    conversation_of,
    json,
    label_of,
    metadata_of,
    name_of,
    states_of,
    thread_document,
    thread_of,
    thread_status,
)

router = APIRouter(prefix="/langgraph", route_class=StrictRoute, include_in_schema=False)

ThreadPath = Annotated[str, Path(max_length=128)]
CheckpointPath = Annotated[str, Path(), AfterValidator(known_form("checkpoint"))]
LimitQuery = Annotated[int, Query(ge=1, le=MAX_LISTED)]

_DEFAULT_AGENT: Final = "nova"
_SEARCHED: Final = 1_000
"""Threads that a search with a filter looks through, the newest ones."""
_AT_ONCE: Final = 200
_KEPT: Final = {
    "ttl": "how long threads are kept is a setting of the agent (`retention`); leave it out.",
    "supersteps": "the messages of an existing conversation are imported with POST /v1/threads.",
}
_NO_FILTER: Final = {
    "values": "threads are not found by their values; use GET /v1/search for what was said.",
    "extract": "read the values of each thread with GET /threads/{thread_id}.",
}


class ThreadMake(Read):
    """The body that makes a thread."""

    thread_id: Annotated[str, Field(max_length=128)] | None = None
    metadata: Metadata | None = None
    if_exists: Literal["raise", "do_nothing"] = "raise"
    ttl: Any = None
    supersteps: Any = None


class ThreadChange(Read):
    """The body that changes a thread."""

    metadata: Metadata | None = None
    ttl: Any = None


class ThreadSearch(Read):
    """The body of a search of threads."""

    metadata: JsonObject | None = None
    values: JsonObject | None = None
    ids: Annotated[list[str], Field(max_length=MAX_LISTED)] | None = None
    status: Literal["idle", "busy", "interrupted", "error"] | None = None
    extract: JsonObject | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = 10
    offset: Annotated[int, Field(ge=0, le=_SEARCHED)] = 0
    sort_by: Literal["thread_id", "status", "created_at", "updated_at", "state_updated_at"] | None = None
    sort_order: Literal["asc", "desc"] | None = None


class HistorySearch(Read):
    """The body that asks for earlier states."""

    limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = 10
    before: Any = None
    checkpoint: Any = None
    metadata: JsonObject | None = None


class CheckpointRead(Read):
    """The body that asks for the state at a checkpoint."""

    checkpoint: JsonObject


@router.post("/threads")
async def create_thread(body: ThreadMake, door: AnyDoor) -> Response:
    """Make a thread of the agent that its metadata names as `graph_id`, or of the agent `nova`.

    The first run decides: it may name another agent.
    """
    refuse_given(body, _KEPT)
    made = await make_thread(door, body.thread_id, body.metadata or {}, is_shared=body.if_exists == "do_nothing")
    return json(thread_document(made))


@router.post("/threads/search")
async def search_threads(body: ThreadSearch, door: AnyDoor) -> Response:
    """Return threads, newest first, without their values."""
    found = await _found(door, body, body.offset + body.limit)
    end = body.offset + body.limit
    more = {"X_Pagination_Next": str(end)} if end < len(found) else {}
    return json([thread_document(thread) for thread in found[body.offset : end]], **more)


@router.post("/threads/count")
async def count_threads(body: ThreadSearch, door: AnyDoor) -> Response:
    """Return how many of the newest threads a search finds."""
    return json(len(await _found(door, body, _SEARCHED)))


@router.get("/threads/{thread_id}")
async def get_thread(thread_id: ThreadPath, door: AnyDoor) -> Response:
    """Return a thread with its values."""
    thread = await thread_of(door, thread_id)
    return json(thread_document(thread, await conversation_of(door, thread)))


@router.patch("/threads/{thread_id}")
async def update_thread(thread_id: ThreadPath, body: ThreadChange, door: AnyDoor) -> Response:
    """Set keys of a thread's metadata."""
    refuse_given(body, {"ttl": _KEPT["ttl"]})
    thread = await thread_of(door, thread_id)
    return json(thread_document(await door.merge_metadata(thread.id, body.metadata or {})))


@router.delete("/threads/{thread_id}", status_code=204)
async def delete_thread(thread_id: ThreadPath, door: AnyDoor) -> None:
    """Delete a thread, and cancel its open runs."""
    thread = await thread_of(door, thread_id)
    await door.delete_thread(thread.id)


@router.post("/threads/{thread_id}/copy")
async def copy_thread(thread_id: ThreadPath, door: AnyDoor) -> Response:
    """Make a thread that continues after the last finished turn of this one."""
    thread = await thread_of(door, thread_id)
    if thread.head_turn_id is None:
        return json(thread_document(await door.new_thread(thread.agent_id, thread.metadata)))
    fork = await door.fork(thread.id)
    return json(thread_document(await door.merge_metadata(fork.id, thread.metadata)))


@router.get("/threads/{thread_id}/state")
async def get_state(thread_id: ThreadPath, door: AnyDoor) -> Response:
    """Return the state of a thread."""
    thread = await thread_of(door, thread_id)
    return json(states_of(await conversation_of(door, thread))[0])


@router.get("/threads/{thread_id}/state/{checkpoint_id}")
async def get_state_at(thread_id: ThreadPath, checkpoint_id: CheckpointPath, door: AnyDoor) -> Response:
    """Return the state of a thread after a run."""
    return json(await _state_at(door, thread_id, checkpoint_id))


@router.post("/threads/{thread_id}/state/checkpoint")
async def get_state_of_checkpoint(thread_id: ThreadPath, body: CheckpointRead, door: AnyDoor) -> Response:
    """Return the state of a thread after a run; the newest one for a checkpoint without an id."""
    checkpoint_id = body.checkpoint.get("checkpoint_id")
    return (
        await get_state_at(thread_id, str(checkpoint_id), door) if checkpoint_id else await get_state(thread_id, door)
    )


@router.post("/threads/{thread_id}/history")
async def search_history(thread_id: ThreadPath, body: HistorySearch, door: AnyDoor) -> Response:
    """Return the states after each run, newest first."""
    thread = await thread_of(door, thread_id)
    states = states_of(await conversation_of(door, thread))
    if (before := _checkpoint_id(body.before)) is not None:
        ids = [state["checkpoint"]["checkpoint_id"] for state in states]
        states = states[ids.index(before) + 1 :] if before in ids else []
    return json(states[: body.limit])


@router.get("/threads/{thread_id}/history")
async def list_history(thread_id: ThreadPath, door: AnyDoor, limit: LimitQuery = 10) -> Response:
    """Return the states after each run, newest first."""
    thread = await thread_of(door, thread_id)
    return json(states_of(await conversation_of(door, thread))[:limit])


async def make_thread(door: Door, thread_id: str | None, metadata: JsonObject, *, is_shared: bool) -> ThreadView:
    """Make a thread with the id of a client, or with one of ours.

    Args:
        thread_id: The client's id; None for one of ours.
        metadata: Its `graph_id` or `assistant_id` is the agent.
        is_shared: Return the thread that has the id already.

    Raises:
        Conflict: A thread has the id.
    """
    named = metadata.get("graph_id") or metadata.get("assistant_id")
    agent_id = named if isinstance(named, str) else _DEFAULT_AGENT
    if thread_id is None:
        return await door.new_thread(agent_id, metadata)
    label = label_of(thread_id)
    try:
        return await door.new_thread(agent_id, metadata, label=label)
    except Conflict as error:
        found = await door.labelled_thread(label) if is_shared else None
        if found is None:
            raise Conflict(f"There is a thread {thread_id!r}; `if_exists: do_nothing` returns it.") from error
        return found


async def _state_at(door: Door, thread_id: str, checkpoint_id: str) -> JsonObject:
    thread = await thread_of(door, thread_id)
    for state in states_of(await conversation_of(door, thread)):
        if state["checkpoint"]["checkpoint_id"] == checkpoint_id:
            return state
    raise missing("checkpoint", checkpoint_id)


def _checkpoint_id(before: Any) -> str | None:
    match before:
        case str():
            return before
        case {"checkpoint_id": str(name)} | {"configurable": {"checkpoint_id": str(name)}}:
            return name
        case _:
            return None


async def _found(door: Door, body: ThreadSearch, most: int) -> list[ThreadView]:
    """Return threads up to one more than is asked for, of the newest ones where there is a filter."""
    refuse_given(body, _NO_FILTER)
    wanted = dict(body.metadata or {})
    named = wanted.get("graph_id") or wanted.get("assistant_id")
    agent_id = named if isinstance(named, str) else None
    found: list[ThreadView] = []
    before: str | None = None
    for _ in range(_SEARCHED // _AT_ONCE):
        page = await door.threads(agent_id=agent_id, before=before, limit=_AT_ONCE)
        found += [thread for thread in page if _matches(thread, body, wanted)]
        is_enough = body.sort_by is None and body.sort_order is None and len(found) > most
        if len(page) < _AT_ONCE or is_enough:
            break
        before = page[-1].id
    if body.sort_by is not None or body.sort_order is not None:
        found.sort(key=lambda thread: _sort_key(thread, body.sort_by), reverse=body.sort_order != "asc")
    return found


def _matches(thread: ThreadView, body: ThreadSearch, wanted: JsonObject) -> bool:
    return (
        has_metadata(metadata_of(thread), wanted)
        and (body.ids is None or name_of(thread) in body.ids)
        and body.status in {None, thread_status(thread)}
    )


def _sort_key(thread: ThreadView, sort_by: str | None) -> Any:
    match sort_by:
        case "thread_id":
            return name_of(thread)
        case "status":
            return thread_status(thread)
        case "updated_at" | "state_updated_at":
            return thread.updated_at
        case _:
            return thread.created_at
