"""Crons: triggers of the kind `cron` that start a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Response
from pydantic import AfterValidator, Field

from nova_workers.base.errors import Gone, NotFound, missing
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.triggers import TriggerCreate, TriggerPatch, TriggerView

from ...errors import NotOffered
from ...json_body import StrictRoute
from ...params import known_form
from ..triggers import SchedulingDoor, TriggerDoor
from .bodies import MAX_LISTED, Read, named_by, refuse_given
from .conversations import json, name_of, thread_of
from .inputs import said_in
from .runs import RequestId, addressed
from .threads import ThreadPath

router = APIRouter(prefix="/langgraph", route_class=StrictRoute, include_in_schema=False)

CronPath = Annotated[str, Path(), AfterValidator(known_form("cron"))]

_SEARCHED: Final = 1_000
"""Triggers that a search looks through, the newest ones."""
_AT_ONCE: Final = 200
_REFUSED: Final = {
    "config": "a trigger has no options of its runs; its agent has them (`model`, `max_turns`).",
    "context": "a trigger has no options of its runs; its agent has them.",
    "metadata": "a trigger's runs have no metadata; leave it out.",
    "webhook": "webhooks are of the tenant: POST /v1/webhooks, for one agent or all.",
    "interrupt_before": "approval rules of the agent say before which tools it asks (`permissions`).",
    "interrupt_after": "approval rules of the agent say before which tools it asks (`permissions`).",
    "on_run_completed": "the threads of a trigger's runs stay, as `keep`; the agent's `retention` is how long.",
    "multitask_strategy": (
        "an occurrence waits for the run of the one before it, as `enqueue`; `overlap` of /v1/triggers can be set to "
        "skip it or to cancel that run."
    ),
}
_ASKED_FOR_NOTHING: Final = (None, False, "", [], {}, "keep", "enqueue")
_SORTED: Final = {
    "cron_id": "id",
    "assistant_id": "agent_id",
    "next_run_date": "next_fire_at",
    "end_time": "ends_at",
}
_NAMES: Final = {"prompt": "input.messages", "agent_id": "assistant_id", "ends_at": "end_time"}


class _CronFields(Read):
    """What a cron is given. What concerns graphs alone, such as `durability`, is passed over."""

    timezone: str | None = None
    end_time: datetime | None = None
    enabled: bool | None = None
    input: Any = None
    config: JsonObject | None = None
    context: JsonObject | None = None
    metadata: JsonObject | None = None
    webhook: Any = None
    interrupt_before: Any = None
    interrupt_after: Any = None
    on_run_completed: Literal["delete", "keep"] | None = None
    multitask_strategy: Literal["reject", "enqueue", "interrupt", "rollback"] | None = None


class CronMake(_CronFields):
    """The body that makes a cron."""

    assistant_id: Annotated[str, Field(min_length=1, max_length=80)]
    schedule: str


class CronChange(_CronFields):
    """The body that changes a cron."""

    schedule: str | None = None


class CronSearch(Read):
    """The body of a search of crons."""

    assistant_id: Annotated[str, Field(max_length=80)] | None = None
    thread_id: Annotated[str, Field(max_length=128)] | None = None
    enabled: bool | None = None
    metadata: JsonObject | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = 10
    offset: Annotated[int, Field(ge=0, le=_SEARCHED)] = 0
    sort_by: Literal[
        "cron_id", "assistant_id", "thread_id", "created_at", "updated_at", "next_run_date", "end_time"
    ] = "created_at"
    sort_order: Literal["asc", "desc"] = "desc"


@router.post("/runs/crons")
async def create_cron(body: CronMake, door: SchedulingDoor, request_id: RequestId = None) -> Response:
    """Make a trigger whose runs have a thread each."""
    return json(_document(await _make(door, body, request_id, None), None))


@router.post("/threads/{thread_id}/runs/crons")
async def create_cron_for_thread(
    thread_id: ThreadPath, body: CronMake, door: SchedulingDoor, request_id: RequestId = None
) -> Response:
    """Make a trigger whose runs continue a thread."""
    thread = await addressed(door, await thread_of(door, thread_id), body.assistant_id)
    return json(_document(await _make(door, body, request_id, thread.id), name_of(thread)))


@router.post("/runs/crons/search")
async def search_crons(body: CronSearch, door: SchedulingDoor) -> Response:
    """Return those of the newest triggers that are crons, newest first."""
    found = await _found(door, body)
    names = await _thread_names(door, page := found[body.offset : body.offset + body.limit])
    return json([_document(trigger, names.get(trigger.thread_id or "")) for trigger in page])


@router.post("/runs/crons/count")
async def count_crons(body: CronSearch, door: SchedulingDoor) -> Response:
    """Return how many crons a search finds."""
    return json(len(await _found(door, body)))


@router.patch("/runs/crons/{cron_id}")
async def update_cron(cron_id: CronPath, body: CronChange, door: SchedulingDoor) -> Response:
    """Change the given fields of a cron. A null `end_time` removes it."""
    await _cron_of(door, cron_id)
    given = named_by(TriggerPatch, _changes(body), _NAMES)
    changed = await door.patch_trigger(cron_id, given)
    names = await _thread_names(door, [changed])
    return json(_document(changed, names.get(changed.thread_id or "")))


@router.delete("/runs/crons/{cron_id}", status_code=204)
async def delete_cron(cron_id: CronPath, door: SchedulingDoor) -> None:
    """Delete a cron. Its runs stay."""
    await _cron_of(door, cron_id)
    await door.delete_trigger(cron_id)


async def _make(door: TriggerDoor, body: CronMake, request_id: str | None, thread_id: str | None) -> TriggerView:
    fields: JsonObject = {
        "agent_id": body.assistant_id,
        "kind": "cron",
        "prompt": _prompt(body.input),
        "thread_id": thread_id,
        "overlap": "queue",
        # The protocol's default; that of triggers is the fleet's.
        "timezone": "UTC",
    }
    given = named_by(TriggerCreate, fields | _changes(body), _NAMES)
    return await door.create_trigger(given, key=door.key(request_id, body))


def _changes(body: CronMake | CronChange) -> JsonObject:
    """Return the fields of a trigger that a body gives.

    Raises:
        NotOffered: It gives what no trigger has.
    """
    refuse_given(body, _REFUSED, but=_ASKED_FOR_NOTHING)
    fields: JsonObject = {
        "schedule": body.schedule,
        "timezone": body.timezone,
        "enabled": body.enabled,
        "prompt": None if body.input is None else _prompt(body.input),
    }
    changes = {name: value for name, value in fields.items() if value is not None}
    if "end_time" in body.model_fields_set:
        changes["ends_at"] = _moment(body.end_time)
    return changes


def _prompt(given: Any) -> str:
    """Return the text of an input, which a trigger has in place of messages.

    Raises:
        InvalidInput: It has no message.
        NotOffered: It has more than a text of the user.
    """
    said = said_in(given)
    if said.past or said.instructions or any(block.get("type") != "text" for block in said.message):
        raise NotOffered(
            "input.messages: a cron sends one text of the user each time. Put instructions into the agent, and what "
            "was said before into a thread (`create_for_thread`).",
            field="input.messages",
        )
    return "\n\n".join(str(block["text"]) for block in said.message)


def _moment(given: datetime | None) -> datetime | None:
    return given.replace(tzinfo=UTC) if given is not None and given.tzinfo is None else given


async def _cron_of(door: TriggerDoor, cron_id: str) -> TriggerView:
    trigger = await door.trigger(cron_id)
    if not _is_cron(trigger):
        raise missing("cron", cron_id)
    return trigger


def _is_cron(trigger: TriggerView) -> bool:
    return trigger.kind == "cron" and trigger.action == "run"


async def _found(door: TriggerDoor, body: CronSearch) -> list[TriggerView]:
    thread_id = None if body.thread_id is None else (await thread_of(door, body.thread_id)).id
    found: list[TriggerView] = []
    before: str | None = None
    for _ in range(_SEARCHED // _AT_ONCE):
        page = await door.triggers(agent_id=body.assistant_id, before=before, limit=_AT_ONCE)
        found += [
            trigger
            for trigger in page
            if _is_cron(trigger)
            and thread_id in {None, trigger.thread_id}
            and body.enabled in {None, trigger.enabled}
            # None has metadata.
            and not body.metadata
        ]
        if len(page) < _AT_ONCE:
            break
        before = page[-1].id
    field = _SORTED.get(body.sort_by, body.sort_by)
    found.sort(key=lambda trigger: _sort_key(getattr(trigger, field)), reverse=body.sort_order == "desc")
    return found


def _sort_key(value: Any) -> tuple[bool, Any]:
    return (False, "") if value is None else (True, value)


async def _thread_names(door: TriggerDoor, triggers: Sequence[TriggerView]) -> dict[str, str]:
    """Return the ids by which clients know the threads of triggers."""
    names: dict[str, str] = {}
    for thread_id in {trigger.thread_id for trigger in triggers if trigger.thread_id is not None}:
        try:
            names[thread_id] = name_of(await door.thread(thread_id))
        except (Gone, NotFound):
            names[thread_id] = thread_id
    return names


def _document(trigger: TriggerView, thread_name: str | None) -> JsonObject:
    """Return a trigger in the protocol's form."""
    said = {"messages": [{"role": "user", "content": trigger.prompt}]}
    return {
        "cron_id": trigger.id,
        "assistant_id": trigger.agent_id,
        "thread_id": thread_name,
        "on_run_completed": None if thread_name else "keep",
        "schedule": trigger.schedule,
        "timezone": trigger.timezone,
        "end_time": trigger.ends_at,
        "enabled": trigger.enabled,
        "next_run_date": trigger.next_fire_at,
        "payload": {"assistant_id": trigger.agent_id, "input": said, "schedule": trigger.schedule},
        "metadata": {},
        "user_id": None,
        "created_at": trigger.created_at,
        "updated_at": trigger.updated_at,
    }
