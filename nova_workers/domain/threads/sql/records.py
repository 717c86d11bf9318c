"""Creates, changes, deletes and forks threads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import asyncpg

from nova_workers.base.errors import Conflict, NotFound, deleted, existing, missing
from nova_workers.base.ids import new_id
from nova_workers.contracts.http.wire import OPENING_CHARS, ThreadView
from nova_workers.contracts.waits import describe_waits
from nova_workers.domain.agents.sql.former_ids import refuse_former_id
from nova_workers.domain.datasets.sql import forget_examples
from nova_workers.domain.runs.sql.cancel import CancelRequest, request_cancel_on_thread
from nova_workers.domain.search.sql.embeddings import forget_thread
from nova_workers.ledger.database import Connection, Row

OPENING = f"""
CASE WHEN t.title IS NULL AND t.imported_at IS NULL
     THEN (SELECT left(jsonb_path_query_first(r.content, '$[*] ? (@.type == "text").text') #>> '{{}}', {OPENING_CHARS})
             FROM runs r WHERE r.thread_id = t.id ORDER BY r.seq LIMIT 1)
     WHEN t.title IS NULL
     THEN (SELECT left(jsonb_path_query_first(m.content, '$[*] ? (@.type == "text").text') #>> '{{}}', {OPENING_CHARS})
             FROM turns v JOIN messages m ON m.turn_id = v.id AND m.seq = 0
            WHERE v.thread_id = t.id ORDER BY v.depth LIMIT 1)
 END
"""
"""The beginning of the first message of a thread ``t`` without a title, of its first run or of its first imported turn.
To read it Postgres unpacks the message, which may have megabytes."""

THREAD_COLUMNS = f"""
t.id, t.agent_id, t.title, t.label, t.head_turn_id, t.active_run_id, t.turn_count, t.forked_from_thread_id,
t.forked_from_turn_id, t.orchestration_id, t.ephemeral, t.origin, t.created_by, t.pinned, t.archived, t.imported_at,
t.meta AS metadata, t.created_at, t.updated_at,
{OPENING} AS opening,
ARRAY(SELECT w.kind FROM run_waits w WHERE w.run_id = t.active_run_id AND w.status = 'open' ORDER BY w.id) AS awaits
"""

_CREATE = f"""
INSERT INTO threads AS t (id, tenant_id, agent_id, title, label, meta, ephemeral, origin, created_by)
SELECT :thread_id, a.tenant_id, a.id, :title, :label, :metadata, :ephemeral,
       CASE WHEN :metadata::jsonb ? 'channel' THEN 'channel' ELSE 'api' END, :created_by
  FROM agents a
 WHERE a.tenant_id = :tenant_id AND a.id = :agent_id AND a.deleted_at IS NULL
RETURNING {THREAD_COLUMNS}
"""

_GET = f"SELECT {THREAD_COLUMNS}, t.deleted_at FROM threads t WHERE t.tenant_id = :tenant_id AND t.id = :thread_id"

_OPENINGS = f"""
SELECT t.id, {OPENING} AS opening
  FROM threads t
 WHERE t.tenant_id = :tenant_id AND t.id = ANY(:thread_ids::text[]) AND t.title IS NULL
"""

# Sets only the columns that `changed` names.
_PATCH = f"""
UPDATE threads t
   SET title = CASE WHEN 'title' = ANY(:changed::text[]) THEN :title ELSE t.title END,
       label = CASE WHEN 'label' = ANY(:changed::text[]) THEN :label ELSE t.label END,
       meta = CASE WHEN 'metadata' = ANY(:changed::text[]) THEN :metadata ELSE t.meta END,
       pinned = CASE WHEN 'pinned' = ANY(:changed::text[]) THEN :pinned ELSE t.pinned END,
       archived = CASE WHEN 'archived' = ANY(:changed::text[]) THEN :archived ELSE t.archived END,
       updated_at = now()
 WHERE t.tenant_id = :tenant_id AND t.id = :thread_id AND t.deleted_at IS NULL
RETURNING {THREAD_COLUMNS}
"""

# One statement, so that two clients that set different keys at once both find theirs.
_MERGE_METADATA = f"""
UPDATE threads t SET meta = t.meta || :metadata, updated_at = now()
 WHERE t.tenant_id = :tenant_id AND t.id = :thread_id AND t.deleted_at IS NULL
RETURNING {THREAD_COLUMNS}
"""

# Only of a thread that has and had no run: a submit raises next_seq in the statement that locks the thread's row, so
# one of the two sees the other.
_READDRESS = f"""
UPDATE threads t SET agent_id = a.id, updated_at = now()
  FROM agents a
 WHERE t.tenant_id = :tenant_id AND t.id = :thread_id AND t.deleted_at IS NULL
   AND t.next_seq = 1 AND t.head_turn_id IS NULL AND t.orchestration_id IS NULL
   AND a.tenant_id = t.tenant_id AND a.id = :agent_id AND a.deleted_at IS NULL
RETURNING {THREAD_COLUMNS}
"""

_DELETE = """
UPDATE threads SET deleted_at = now(), updated_at = now()
 WHERE tenant_id = :tenant_id AND id = :thread_id AND deleted_at IS NULL
RETURNING id
"""

# Forks at `turn_id`, or at the head if it is null. The lock on the thread orders the fork before or after retention,
# which deletes turns without forks. The walk from the head towards the root finds the turn only if it is in the
# thread's lineage, and counts turns from there on.
_FORK = f"""
WITH RECURSIVE source AS (
    SELECT * FROM threads WHERE tenant_id = :tenant_id AND id = :thread_id AND deleted_at IS NULL FOR KEY SHARE
), line AS (
    SELECT u.id, u.parent_turn_id, u.type, u.id = COALESCE(:turn_id, s.head_turn_id) AS kept
      FROM source s JOIN turns u ON u.id = s.head_turn_id
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.type, l.kept OR u.id = :turn_id
      FROM line l JOIN turns u ON u.id = l.parent_turn_id
), fork AS (
    SELECT COALESCE(:turn_id, s.head_turn_id) AS turn_id, s.id AS thread_id, s.agent_id, s.ephemeral,
           (SELECT count(*) FROM line WHERE kept AND type = 'normal')::int AS turn_count
      FROM source s
     WHERE EXISTS (SELECT 1 FROM line WHERE kept)
), made AS (
    INSERT INTO threads AS t (id, tenant_id, agent_id, title, label, head_turn_id, turn_count,
                              forked_from_thread_id, forked_from_turn_id, ephemeral, created_by)
    SELECT :new_thread_id, :tenant_id, f.agent_id, :title, :label, f.turn_id, f.turn_count, f.thread_id, f.turn_id,
           f.ephemeral, :created_by
      FROM fork f
    RETURNING {THREAD_COLUMNS}
), moved AS (
    INSERT INTO thread_heads (tenant_id, thread_id, turn_id, move)
    SELECT :tenant_id, m.id, m.head_turn_id, 'fork' FROM made m
), stated AS (
    INSERT INTO thread_states (thread_id, tenant_id, state, version)
    SELECT m.id, s.tenant_id, s.state, s.version
      FROM made m JOIN thread_states s ON s.thread_id = m.forked_from_thread_id
)
SELECT * FROM made
"""


async def create_thread(
    connection: Connection,
    tenant_id: str,
    agent_id: str,
    *,
    title: str | None = None,
    label: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    ephemeral: bool = False,
    created_by: str | None = None,
) -> ThreadView:
    """Make an empty thread: of an inbound channel, if its metadata names one.

    Args:
        created_by: The API key of the request.

    Raises:
        NotFound: There is no such agent.
        AgentRenamed: It has another id now.
        Conflict: Another thread has the label.
    """
    try:
        row = await connection.fetchrow(
            _CREATE,
            thread_id=new_id("thr"),
            tenant_id=tenant_id,
            agent_id=agent_id,
            title=title,
            label=label,
            metadata=dict(metadata or {}),
            ephemeral=ephemeral,
            created_by=created_by,
        )
    except asyncpg.UniqueViolationError as error:
        raise _label_taken(label) from error
    if row is None:
        await refuse_former_id(connection, tenant_id, agent_id)
        raise missing("agent", agent_id, field="agent_id")
    return view_of_thread(row)


async def get_thread(connection: Connection, tenant_id: str, thread_id: str) -> ThreadView:
    """Return a thread.

    Raises:
        NotFound: There is no such thread.
        Gone: It was deleted.
    """
    row = existing(await connection.fetchrow(_GET, tenant_id=tenant_id, thread_id=thread_id), "thread", thread_id)
    if row["deleted_at"] is not None:
        raise deleted("thread", thread_id)
    return view_of_thread(row)


async def read_openings(connection: Connection, tenant_id: str, thread_ids: Collection[str]) -> dict[str, str]:
    """Return the beginning of the first message of each of these threads that has no title, by the thread's id."""
    rows = await connection.fetch(_OPENINGS, tenant_id=tenant_id, thread_ids=list(thread_ids))
    return {row["id"]: row["opening"] for row in rows if row["opening"]}


async def patch_thread(
    connection: Connection, tenant_id: str, thread_id: str, changes: Mapping[str, Any]
) -> ThreadView:
    """Set those of the fields of `ThreadPatch` that `changes` has; None clears.

    Raises:
        NotFound: There is no such thread.
        Gone: It was deleted.
        Conflict: Another thread has the label.
    """
    try:
        row = await connection.fetchrow(
            _PATCH,
            tenant_id=tenant_id,
            thread_id=thread_id,
            changed=list(changes),
            title=changes.get("title"),
            label=changes.get("label"),
            metadata=changes.get("metadata") or {},
            pinned=changes.get("pinned"),
            archived=changes.get("archived"),
        )
    except asyncpg.UniqueViolationError as error:
        raise _label_taken(changes.get("label")) from error
    return await get_thread(connection, tenant_id, thread_id) if row is None else view_of_thread(row)


async def merge_thread_metadata(
    connection: Connection, tenant_id: str, thread_id: str, metadata: Mapping[str, Any]
) -> ThreadView:
    """Set keys of a thread's metadata; the others stay.

    Raises:
        NotFound: There is no such thread.
        Gone: It was deleted.
    """
    row = await connection.fetchrow(_MERGE_METADATA, tenant_id=tenant_id, thread_id=thread_id, metadata=dict(metadata))
    return await get_thread(connection, tenant_id, thread_id) if row is None else view_of_thread(row)


async def readdress_thread(connection: Connection, tenant_id: str, thread_id: str, agent_id: str) -> ThreadView | None:
    """Make a thread without a run that of another agent. None if it has one by now, or if there is no such agent."""
    row = await connection.fetchrow(_READDRESS, tenant_id=tenant_id, thread_id=thread_id, agent_id=agent_id)
    return None if row is None else view_of_thread(row)


async def delete_thread(transaction: Connection, tenant_id: str, thread_id: str) -> list[CancelRequest]:
    """Delete a thread: it accepts no more runs, its open runs are canceled, and no search finds it.

    Its search index rows are deleted at once, its turns after a while (`purge`), except those that forks continue from.

    Args:
        transaction: A transaction, so that all of it happens or nothing.

    Returns:
        Cancel requests of its open runs, to apply after the commit.

    Raises:
        NotFound: There is no such thread.
        Gone: It was deleted before.
    """
    if await transaction.fetchval(_DELETE, tenant_id=tenant_id, thread_id=thread_id) is None:
        await get_thread(transaction, tenant_id, thread_id)
    await forget_thread(transaction, tenant_id, thread_id)
    await forget_examples(transaction, tenant_id, thread_id)
    # A submit locks the thread's row, so no run is added after this statement, and it sees all that came before.
    return await request_cancel_on_thread(transaction, tenant_id, thread_id)


async def fork_thread(
    connection: Connection,
    tenant_id: str,
    thread_id: str,
    *,
    turn_id: str | None = None,
    title: str | None = None,
    label: str | None = None,
    created_by: str | None = None,
) -> ThreadView:
    """Insert a thread that continues from a finished turn of this one, or from its head. No turn is copied.

    It has a copy of the state document as it is now, with its version, whichever turn it continues from.

    Raises:
        NotFound: There is no such thread, or no such turn in its history.
        Gone: The thread was deleted.
        Conflict: Another thread has the label, or there is no turn yet to continue from.
    """
    try:
        row = await connection.fetchrow(
            _FORK,
            tenant_id=tenant_id,
            thread_id=thread_id,
            turn_id=turn_id,
            new_thread_id=new_id("thr"),
            title=title,
            label=label,
            created_by=created_by,
        )
    except asyncpg.UniqueViolationError as error:
        raise _label_taken(label) from error
    if row is not None:
        return view_of_thread(row)
    await get_thread(connection, tenant_id, thread_id)
    if turn_id is None:
        raise Conflict(f"Thread {thread_id!r} has no finished turn to fork at.", thread_id=thread_id)
    raise NotFound(
        f"There is no finished turn {turn_id!r} in the history of thread {thread_id!r}.",
        kind="turn",
        id=turn_id,
        field="turn_id",
        thread_id=thread_id,
    )


def _label_taken(label: object) -> Conflict:
    return Conflict(f"Another thread has the label {label!r}; labels are unique in a tenant.", field="label")


def view_of_thread(row: Row) -> ThreadView:
    """Return a thread of `THREAD_COLUMNS`."""
    return ThreadView(**row, waiting_for=describe_waits(row["awaits"]) or None)
