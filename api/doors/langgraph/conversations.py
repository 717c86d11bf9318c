"""Threads by the ids of clients, and what they have: values, states and interrupts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import orjson
from fastapi import Response

from nova_workers.base.errors import InvalidInput, missing
from nova_workers.base.vocabulary import EXTERNAL_WAITS
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.wire import RunView, ThreadView
from nova_workers.contracts.waits import describe_waits

from ...params import known_form
from ..items import Item
from ..service import Door
from .messages import AGENT, interrupts_of, messages_of

MOST_TURNS: Final = 200
"""Turns of a conversation that its values have, the newest ones: they are sent whole each time."""

_PAGE_TURNS: Final = 100
_PREFIX: Final = "langgraph/"
_OWN_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_ASKING: Final = frozenset(describe_waits([kind]) for kind in EXTERNAL_WAITS)


class Conversation(NamedTuple):
    """A thread with what was said in it.

    Attributes:
        active: The run that executes or waits, if there is one.
        items: Those of the newest turns, oldest first.
    """

    thread: ThreadView
    active: RunView | None
    items: Sequence[Item]

    @property
    def values(self) -> JsonObject:
        """The values of the thread's state, as those of a graph with messages."""
        return {"messages": messages_of(self.items)}

    @property
    def interrupts(self) -> list[JsonObject]:
        """What its run asks."""
        return [] if self.active is None else interrupts_of(self.active)


def json(document: Any, **headers: str) -> Response:
    """Return a response; underscores in names of headers are hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(orjson.dumps(document), media_type="application/json", headers=named)


def label_of(thread_id: str) -> str:
    """Return the label of the thread that a client knows by an id of its own.

    Raises:
        InvalidInput: It is no id that a thread may have.
    """
    if _OWN_ID.fullmatch(thread_id) is None or thread_id.startswith("thr_"):
        raise InvalidInput(
            "thread_id: give 1 to 128 letters, digits, or any of _ . : - that do not begin with thr_, such as a UUID.",
            field="thread_id",
        )
    return f"{_PREFIX}{thread_id}"


def name_of(thread: ThreadView) -> str:
    """Return the id by which clients know a thread."""
    label = thread.label or ""
    return label.removeprefix(_PREFIX) if label.startswith(_PREFIX) else thread.id


async def thread_of(door: Door, thread_id: str) -> ThreadView:
    """Return the thread with an id of ours or of a client's.

    Raises:
        NotFound: No such thread in this tenant.
        Gone: It was deleted.
    """
    if thread_id.startswith("thr_"):
        return await door.thread(known_form("thread")(thread_id))
    found = await door.labelled_thread(f"{_PREFIX}{thread_id}") if _OWN_ID.fullmatch(thread_id) else None
    if found is None:
        raise missing("thread", thread_id[:128])
    return found


async def conversation_of(door: Door, thread: ThreadView) -> Conversation:
    """Return a thread with its newest turns, and what its run has so far."""
    items = await _newest_items(door, thread.id)
    active = await door.open_run(thread.id)
    if active is not None and not active.attempt:
        # It has not begun: the state is the one before it.
        active = None
    if active is not None:
        items = [*(item for item in items if item.run_id != active.id), *await door.items(active.id)]
    return Conversation(thread, active, items)


async def items_before(door: Door, thread_id: str, run_id: str) -> list[Item]:
    """Return the items of the newest turns before a run."""
    items = await _newest_items(door, thread_id)
    place = next((at for at, item in enumerate(items) if item.run_id == run_id), len(items))
    return items[:place]


def thread_document(thread: ThreadView, conversation: Conversation | None = None) -> JsonObject:
    """Return a thread in the protocol's form; without its conversation it has no values."""
    interrupts = [] if conversation is None else conversation.interrupts
    document: JsonObject = {
        "thread_id": name_of(thread),
        "created_at": thread.created_at,
        "updated_at": thread.updated_at,
        "metadata": metadata_of(thread),
        "status": "busy" if _is_queued(thread, conversation) else thread_status(thread),
        "config": {},
        "values": None if conversation is None else conversation.values,
        "interrupts": {},
    }
    if conversation is not None and conversation.active is not None and interrupts:
        document["interrupts"] = {conversation.active.id: interrupts}
    return document


def _is_queued(thread: ThreadView, conversation: Conversation | None) -> bool:
    """Return whether the run of a conversation waits for another worker."""
    return thread.active_run_id is None and conversation is not None and conversation.active is not None


def metadata_of(thread: ThreadView) -> JsonObject:
    """Return a thread's metadata, with the agent as clients name it."""
    return {**thread.metadata, "graph_id": thread.agent_id, "assistant_id": thread.agent_id}


def thread_status(thread: ThreadView) -> str:
    """Return the status of a thread: `interrupted` where its run asks its caller or a person."""
    if thread.active_run_id is None:
        return "idle"
    return "interrupted" if any(phrase in (thread.waiting_for or "") for phrase in _ASKING) else "busy"


def states_of(conversation: Conversation) -> list[JsonObject]:
    """Return the states after each run of a conversation, newest first; one without messages for an empty thread.

    A checkpoint has the id of the run that it follows.
    """
    ends = list(_ends(conversation.items))
    states: list[JsonObject] = []
    for number, end in enumerate(ends or [0]):
        before = ends[number - 1] if number else 0
        states.append(_state(conversation, end, before, is_newest=end == len(conversation.items)))
    return states[::-1]


def _state(conversation: Conversation, end: int, before: int, *, is_newest: bool) -> JsonObject:
    thread, items = conversation.thread, conversation.items
    interrupts = conversation.interrupts if is_newest else []
    is_open = is_newest and conversation.active is not None
    task = {
        "id": None if conversation.active is None else conversation.active.id,
        "name": AGENT,
        "path": [],
        "error": None,
        "interrupts": interrupts,
        "checkpoint": None,
        "state": None,
        "result": None,
    }
    return {
        "values": {"messages": messages_of(items[:end])},
        "next": [AGENT] if is_open else [],
        "tasks": [task] if is_open else [],
        "interrupts": interrupts,
        "metadata": metadata_of(thread),
        "created_at": thread.updated_at if is_newest else None,
        "checkpoint": _checkpoint(thread, items[end - 1]) if end else _checkpoint(thread, None),
        "parent_checkpoint": _checkpoint(thread, items[before - 1]) if before else None,
    }


def _checkpoint(thread: ThreadView, last: Item | None) -> JsonObject:
    checkpoint_id = "" if last is None else last.run_id or last.id
    return {
        "thread_id": name_of(thread),
        "checkpoint_ns": "",
        "checkpoint_id": checkpoint_id,
        "checkpoint_map": {},
    }


def _ends(items: Sequence[Item]) -> Iterator[int]:
    """Yield the places after the last item of each run."""
    for at, item in enumerate(items, start=1):
        if at == len(items) or items[at].run_id != item.run_id:
            yield at


async def _newest_items(door: Door, thread_id: str) -> list[Item]:
    pages: list[tuple[Item, ...]] = []
    at: int | None = None
    for _ in range(MOST_TURNS // _PAGE_TURNS):
        page = await door.items_of_thread(thread_id, at=at, turns=_PAGE_TURNS)
        pages.append(page.items)
        at = page.goes_on_at
        if at is None:
            break
    return [item for items in reversed(pages) for item in items]
