"""``/v1/threads``: conversations."""

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import StringConstraints

from nova_workers.base.vocabulary import RunSource
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.overview.forks import ForkTreeView
from nova_workers.contracts.http.wire import (
    MessageView,
    RestoredContent,
    RunView,
    ThreadCreate,
    ThreadFork,
    ThreadPatch,
    ThreadView,
    TurnView,
)
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.idempotency.sql import name_made, once
from nova_workers.domain.keys.sql.keys import ids_of_principal
from nova_workers.domain.runs.sql import reads as run_reads
from nova_workers.domain.threads.rules.past import turns_of
from nova_workers.domain.threads.sql import lineage, lists
from nova_workers.domain.threads.sql import records as ledger
from nova_workers.domain.threads.sql.forks import read_fork_tree
from nova_workers.domain.threads.sql.importing import ImportedTurn, import_turns
from nova_workers.domain.threads.sql.lists import ThreadFilter
from nova_workers.ledger.database import Connection

from ...auth import RunsCaller, RunsReader
from ...json_body import StrictRoute
from ...openapi import problems
from ...pagination import PageQuery
from ...params import AgentIdQuery, Flag, MediaQuery, ThreadIdPath, TurnIdPath
from ...repeats import RepeatableRequest
from ...state import State
from .past_messages import checked_messages, scaled_messages

IMPORT_PATH = "/v1/threads"


class _ImportRoute(StrictRoute):
    """A route that takes as many parts as `MAX_PAST_MESSAGES` messages with calls of tools have."""

    max_parts = 250_000


creation = APIRouter(prefix=IMPORT_PATH, tags=["threads"], route_class=_ImportRoute)
router = APIRouter(prefix=IMPORT_PATH, tags=["threads"], route_class=StrictRoute)

LabelQuery = Annotated[
    str | None, Query(min_length=1, max_length=200, pattern=r"^[^\x00]+$", description="The thread with this label.")
]

DepthQuery = Annotated[int | None, Query(ge=0, le=2**31 - 2)]
FromDepth = Annotated[DepthQuery, Query(description="Only turns of this depth or more.")]
ToDepth = Annotated[DepthQuery, Query(description="Only turns of this depth or less.")]
AfterQuery = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")] | None,
    Query(description="Only messages after this one, which is of this conversation."),
]
ForkedFromQuery = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")] | None,
    Query(description="Only forks of this thread."),
]

MYSELF = "me"
"""Names the key of the request, with those that it replaced, as the creator of threads."""
OriginQuery = Annotated[RunSource | None, Query(description="Only those that this began.")]
CreatorQuery = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")] | None,
    Query(description="Only those that this API key or person created; `me` is that of the request."),
]
PinnedQuery = Annotated[Flag | None, Query(description="Only those that are pinned; false, only the others.")]
ArchivedQuery = Annotated[Flag | None, Query(description="Only those that are archived; false, only the others.")]


@creation.post("", status_code=201, responses=problems(404, 409, 410, body=True))
async def create_thread(body: ThreadCreate, caller: RunsCaller, state: State, repeats: RepeatableRequest) -> ThreadView:
    """Create a thread: empty, or with the `messages` of a conversation that took place elsewhere.

    Messages are imported whole or not at all. They are history from then on: the next run continues from them. No run
    is made for them, no usage is counted, and nothing follows but what `effects` names.
    """
    services = state.services
    messages = await scaled_messages(body.messages)

    def check() -> tuple[RequestKey | None, list[ImportedTurn]]:
        said = checked_messages(messages, max_chars=services.settings.api.max_message_chars, now=services.clock.now())
        return repeats.bound_to(body), turns_of(said)

    # A long conversation takes some 0.1 s.
    key, turns = await asyncio.to_thread(check) if messages else (repeats.bound_to(body), [])

    async def insert(connection: Connection) -> ThreadView:
        return await ledger.create_thread(
            connection,
            caller.tenant_id,
            body.agent_id,
            title=body.title,
            label=body.label,
            metadata=body.metadata,
            ephemeral=body.ephemeral,
            created_by=caller.principal,
        )

    if key is None and not turns:
        async with services.database.connection() as connection:
            return await insert(connection)

    async def create(transaction: Connection) -> ThreadView:
        thread = await insert(transaction)
        await name_made(transaction, caller.tenant_id, key, thread.id)
        if not turns:
            return thread
        embed = "embeddings" in body.effects
        await import_turns(transaction, caller.tenant_id, thread.id, thread.agent_id, turns, embed=embed)
        return await ledger.get_thread(transaction, caller.tenant_id, thread.id)

    async def write() -> tuple[ThreadView, bool]:
        async with services.database.transaction() as transaction:
            return await once(
                transaction,
                caller.tenant_id,
                key,
                lambda: create(transaction),
                lambda made_id: ledger.get_thread(transaction, caller.tenant_id, made_id),
            )

    return await repeats.once("the thread", write)


@router.get("", responses=problems(400, 410, 422))
async def list_threads(
    *,
    caller: RunsReader,
    state: State,
    agent_id: AgentIdQuery = None,
    label: LabelQuery = None,
    forked_from: ForkedFromQuery = None,
    origin: OriginQuery = None,
    created_by: CreatorQuery = None,
    pinned: PinnedQuery = None,
    archived: ArchivedQuery = None,
    paging: PageQuery,
) -> Page[ThreadView]:
    """List threads, newest first."""
    which = ThreadFilter(
        agent_id=agent_id,
        label=label,
        forked_from=forked_from,
        origin=origin,
        created_by=created_by,
        pinned=pinned,
        archived=archived,
    )
    listing = paging.of(caller.tenant_id, "threads", str, *which.given().items())
    async with state.services.database.connection() as connection:
        await refuse_former_id(connection, caller.tenant_id, agent_id)
        if created_by == MYSELF:
            mine = await ids_of_principal(connection, caller.tenant_id, caller.principal)
            by = {"created_by": mine[0]} if len(mine) == 1 else {"created_by": None, "created_by_any": mine}
            which = replace(which, **by)
        rows = await lists.list_threads(connection, caller.tenant_id, which, before=listing.key, limit=listing.rows)
    return listing.page(rows, lambda thread: thread.id)


@router.get("/{thread_id}", responses=problems(404, 410))
async def get_thread(thread_id: ThreadIdPath, caller: RunsReader, state: State) -> ThreadView:
    """Get a thread."""
    async with state.services.database.connection() as connection:
        return await ledger.get_thread(connection, caller.tenant_id, thread_id)


@router.patch("/{thread_id}", responses=problems(404, 409, 410, body=True))
async def patch_thread(thread_id: ThreadIdPath, body: ThreadPatch, caller: RunsCaller, state: State) -> ThreadView:
    """Change the given fields; null clears one."""
    async with state.services.database.connection() as connection:
        return await ledger.patch_thread(
            connection, caller.tenant_id, thread_id, body.model_dump(include=body.model_fields_set)
        )


@router.delete("/{thread_id}", status_code=204, responses=problems(404, 410))
async def delete_thread(thread_id: ThreadIdPath, caller: RunsCaller, state: State) -> None:
    """Delete a thread, and cancel its open runs. Forks of it keep their history, but no search finds it."""
    await state.services.canceller.delete_thread(caller.tenant_id, thread_id)


@router.post("/{thread_id}/fork", status_code=201, responses=problems(404, 409, 410, body=True))
async def fork_thread(
    thread_id: ThreadIdPath, body: ThreadFork, caller: RunsCaller, state: State, repeats: RepeatableRequest
) -> ThreadView:
    """Create a thread that continues from a finished turn of this one."""
    key, tenant_id = repeats.bound_to(body), caller.tenant_id

    async def fork(transaction: Connection) -> ThreadView:
        made = await ledger.fork_thread(
            transaction,
            tenant_id,
            thread_id,
            turn_id=body.turn_id,
            title=body.title,
            label=body.label,
            created_by=caller.principal,
        )
        await name_made(transaction, tenant_id, key, made.id)
        return made

    async def write() -> tuple[ThreadView, bool]:
        async with state.services.database.transaction() as transaction:
            return await once(
                transaction,
                tenant_id,
                key,
                lambda: fork(transaction),
                lambda made_id: ledger.get_thread(transaction, tenant_id, made_id),
            )

    return await repeats.once("the fork", write)


@router.get("/{thread_id}/forks", responses=problems(404, 410), name="list_thread_forks")
async def list_forks(thread_id: ThreadIdPath, caller: RunsReader, state: State) -> ForkTreeView:
    """List the threads that were forked from each other and of which this is one, up to 200."""
    async with state.services.database.connection() as connection:
        await ledger.get_thread(connection, caller.tenant_id, thread_id)
        return await read_fork_tree(connection, caller.tenant_id, thread_id)


@router.get("/{thread_id}/messages", responses=problems(400, 404, 410, 422), name="list_thread_messages")
async def list_messages(
    *,
    thread_id: ThreadIdPath,
    caller: RunsReader,
    state: State,
    from_depth: FromDepth = None,
    to_depth: ToDepth = None,
    after: AfterQuery = None,
    paging: PageQuery,
) -> Page[MessageView]:
    """List the messages of a conversation, oldest first, with those inherited by a fork."""
    listing = paging.of_pairs(caller.tenant_id, "messages", int, int, thread_id, from_depth, to_depth, after)
    async with state.services.database.connection() as connection:
        await ledger.get_thread(connection, caller.tenant_id, thread_id)
        begin = listing.key
        if begin is None and after is not None:
            begin = await lineage.place_of_message(connection, caller.tenant_id, thread_id, after)
        rows = await lineage.list_messages(
            connection,
            caller.tenant_id,
            thread_id,
            after=begin,
            limit=listing.rows,
            from_depth=from_depth or 0,
            to_depth=to_depth,
        )
    page = listing.page(rows, lambda row: row[1])
    return Page(items=[message for message, _ in page.items], next_cursor=page.next_cursor)


@router.get("/{thread_id}/turns", responses=problems(400, 404, 410, 422), name="list_thread_turns")
async def list_turns(
    *,
    thread_id: ThreadIdPath,
    caller: RunsReader,
    state: State,
    to_depth: ToDepth = None,
    paging: PageQuery,
) -> Page[TurnView]:
    """List the turns of a conversation, newest first, with those inherited by a fork."""
    listing = paging.of(caller.tenant_id, "turns", int, thread_id, to_depth)
    below_depth = listing.key
    if below_depth is None and to_depth is not None:
        below_depth = to_depth + 1
    async with state.services.database.connection() as connection:
        await ledger.get_thread(connection, caller.tenant_id, thread_id)
        rows = await lineage.list_turns(
            connection,
            caller.tenant_id,
            thread_id,
            below_depth=below_depth,
            limit=listing.rows,
        )
    return listing.page(rows, lambda turn: turn.depth)


@router.post("/{thread_id}/turns/{turn_id}/restore", responses=problems(404, 410), name="restore_turn_content")
async def restore_content(
    thread_id: ThreadIdPath, turn_id: TurnIdPath, caller: RunsCaller, state: State
) -> RestoredContent:
    """Give the model again what was left out of the conversation in this turn, from the next turn on.

    If the provider refuses it again, it is left out again.
    """
    async with state.services.database.connection() as connection:
        await ledger.get_thread(connection, caller.tenant_id, thread_id)
        return RestoredContent(restored=await lineage.restore_content(connection, caller.tenant_id, thread_id, turn_id))


@router.get("/{thread_id}/runs", responses=problems(400, 404, 410, 422))
async def list_thread_runs(
    *,
    thread_id: ThreadIdPath,
    caller: RunsReader,
    state: State,
    media: MediaQuery = True,
    paging: PageQuery,
) -> Page[RunView]:
    """List the runs of a thread in reverse order of its queue."""
    listing = paging.of(caller.tenant_id, "thread_runs", int, thread_id)
    async with state.services.database.connection() as connection:
        await ledger.get_thread(connection, caller.tenant_id, thread_id)
        rows = await run_reads.list_thread_runs(
            connection,
            caller.tenant_id,
            thread_id,
            before_seq=listing.key,
            limit=listing.rows,
            media=media,
        )
    page = listing.page(rows, lambda row: row[1])
    return Page(items=[run for run, _ in page.items], next_cursor=page.next_cursor)
