"""Conversations: made, named, deleted and forked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg

from nova_workers.contracts.wire import ThreadView
from nova_workers.errors import Conflict, Gone, NotFound
from nova_workers.ids import new_id
from nova_workers.ledger.cancel import CancelRequest, request_cancel_on_thread
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.embeddings import forget_thread

__all__ = ["create_thread", "delete_thread", "fork_thread", "get_thread", "list_threads", "patch_thread"]

_COLUMNS = """
t.id, t.agent_id, t.title, t.label, t.head_turn_id, t.active_run_id, t.turn_count, t.forked_from_thread_id,
t.forked_from_turn_id, t.meta, t.created_at, t.updated_at
"""

_CREATE = f"""
INSERT INTO threads AS t (id, tenant_id, agent_id, title, label, meta)
SELECT $1, a.tenant_id, a.id, $4, $5, $6
  FROM agents a
 WHERE a.tenant_id = $2 AND a.id = $3 AND a.deleted_at IS NULL
RETURNING {_COLUMNS}
"""

_GET = f"SELECT {_COLUMNS}, t.deleted_at FROM threads t WHERE t.tenant_id = $1 AND t.id = $2"

# One statement a set of filters, so that each has a plan of its own on the index that fits it.
_LIST = f"""
SELECT {_COLUMNS} FROM threads t
 WHERE t.tenant_id = $1 AND t.deleted_at IS NULL AND ($2::text IS NULL OR t.id < $2)
 ORDER BY t.id DESC
 LIMIT $3
"""
_LIST_OF_AGENT = f"""
SELECT {_COLUMNS} FROM threads t
 WHERE t.tenant_id = $1 AND t.agent_id = $4 AND t.deleted_at IS NULL AND ($2::text IS NULL OR t.id < $2)
 ORDER BY t.id DESC
 LIMIT $3
"""
_LIST_OF_LABEL = f"""
SELECT {_COLUMNS} FROM threads t
 WHERE t.tenant_id = $1 AND t.label = $4 AND t.deleted_at IS NULL AND ($2::text IS NULL OR t.id < $2)
   AND ($5::text IS NULL OR t.agent_id = $5)
 LIMIT $3
"""

# $3 names the columns to change.
_PATCH = f"""
UPDATE threads t
   SET title = CASE WHEN 'title' = ANY($3::text[]) THEN $4 ELSE t.title END,
       label = CASE WHEN 'label' = ANY($3::text[]) THEN $5 ELSE t.label END,
       meta = CASE WHEN 'metadata' = ANY($3::text[]) THEN $6 ELSE t.meta END,
       updated_at = now()
 WHERE t.tenant_id = $1 AND t.id = $2 AND t.deleted_at IS NULL
RETURNING {_COLUMNS}
"""

_DELETE = """
UPDATE threads SET deleted_at = now(), updated_at = now()
 WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL
RETURNING id
"""

# $3 the turn to fork at; null forks at the head. The thread is held, so that retention, which deletes turns that nobody
# goes on from, comes before the fork or after it. Walks from the head towards the root: a turn is in the thread's
# lineage if the walk meets it, and from there on the walk counts what the new thread holds.
_FORK = f"""
WITH RECURSIVE source AS (
    SELECT * FROM threads WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL FOR KEY SHARE
), line AS (
    SELECT u.id, u.parent_turn_id, u.type, u.id = COALESCE($3, s.head_turn_id) AS kept
      FROM source s JOIN turns u ON u.id = s.head_turn_id
    UNION ALL
    SELECT u.id, u.parent_turn_id, u.type, l.kept OR u.id = $3
      FROM line l JOIN turns u ON u.id = l.parent_turn_id
), fork AS (
    SELECT COALESCE($3, s.head_turn_id) AS turn_id, s.id AS thread_id, s.agent_id,
           (SELECT count(*) FROM line WHERE kept AND type = 'normal')::int AS turn_count
      FROM source s
     WHERE EXISTS (SELECT 1 FROM line WHERE kept)
), made AS (
    INSERT INTO threads AS t (id, tenant_id, agent_id, title, label, head_turn_id, turn_count,
                              forked_from_thread_id, forked_from_turn_id)
    SELECT $4, $1, f.agent_id, $5, $6, f.turn_id, f.turn_count, f.thread_id, f.turn_id FROM fork f
    RETURNING {_COLUMNS}
), moved AS (
    INSERT INTO thread_heads (tenant_id, thread_id, turn_id, move) SELECT $1, m.id, m.head_turn_id, 'fork' FROM made m
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
) -> ThreadView:
    """Make an empty thread.

    Raises:
        NotFound: There is no such agent.
        Conflict: Another thread has the label.
    """
    try:
        row = await connection.fetchrow(_CREATE, new_id("thr"), tenant_id, agent_id, title, label, dict(metadata or {}))
    except asyncpg.UniqueViolationError as error:
        raise _label_taken(label) from error
    if row is None:
        raise NotFound(f"There is no agent {agent_id!r}.", field="agent_id", agent_id=agent_id)
    return _view(row)


async def get_thread(connection: Connection, tenant_id: str, thread_id: str) -> ThreadView:
    """Return a thread as it stands.

    Raises:
        NotFound: There is no such thread.
        Gone: It was deleted.
    """
    row = await connection.fetchrow(_GET, tenant_id, thread_id)
    if row is None:
        raise NotFound(f"There is no thread {thread_id!r}.", thread_id=thread_id)
    if row["deleted_at"] is not None:
        raise Gone(f"Thread {thread_id!r} was deleted.", thread_id=thread_id)
    return _view(row)


async def list_threads(
    connection: Connection,
    tenant_id: str,
    *,
    agent_id: str | None = None,
    label: str | None = None,
    before: str | None = None,
    limit: int,
) -> list[ThreadView]:
    """Return threads that live, newest first, those made before the thread `before`."""
    if label is not None:
        rows = await connection.fetch(_LIST_OF_LABEL, tenant_id, before, limit, label, agent_id)
    elif agent_id is not None:
        rows = await connection.fetch(_LIST_OF_AGENT, tenant_id, before, limit, agent_id)
    else:
        rows = await connection.fetch(_LIST, tenant_id, before, limit)
    return [_view(row) for row in rows]


async def patch_thread(
    connection: Connection, tenant_id: str, thread_id: str, changes: Mapping[str, Any]
) -> ThreadView:
    """Set what `changes` names of ``title``, ``label`` and ``metadata``; None clears.

    Raises:
        NotFound: There is no such thread.
        Gone: It was deleted.
        Conflict: Another thread has the label.
    """
    try:
        row = await connection.fetchrow(
            _PATCH,
            tenant_id,
            thread_id,
            list(changes),
            changes.get("title"),
            changes.get("label"),
            changes.get("metadata") or {},
        )
    except asyncpg.UniqueViolationError as error:
        raise _label_taken(changes.get("label")) from error
    return await get_thread(connection, tenant_id, thread_id) if row is None else _view(row)


async def delete_thread(transaction: Connection, tenant_id: str, thread_id: str) -> list[CancelRequest]:
    """Delete a thread: it takes no runs from now on, those that are open are cancelled, and no search finds it.

    Its words and vectors go. Its turns go after a while (`thread_purge`), but for those that other threads go on from.

    Args:
        transaction: A transaction, so that all of it is gone or nothing.

    Returns:
        What became of its open runs, for `Canceller.requested` once the transaction is committed.

    Raises:
        NotFound: There is no such thread.
        Gone: It was deleted before.
    """
    if await transaction.fetchval(_DELETE, tenant_id, thread_id) is None:
        await get_thread(transaction, tenant_id, thread_id)
    await forget_thread(transaction, tenant_id, thread_id)
    # Whoever submits takes the thread's row: no run comes after this statement, and it sees all that came before.
    return await request_cancel_on_thread(transaction, tenant_id, thread_id)


async def fork_thread(
    connection: Connection,
    tenant_id: str,
    thread_id: str,
    *,
    turn_id: str | None = None,
    title: str | None = None,
    label: str | None = None,
) -> ThreadView:
    """Make a thread that goes on from a finished turn of this one, or from its head. Nothing is copied.

    Raises:
        NotFound: There is no such thread, or no such turn in its history.
        Gone: The thread was deleted.
        Conflict: Another thread has the label, or there is no turn yet to go on from.
    """
    try:
        row = await connection.fetchrow(_FORK, tenant_id, thread_id, turn_id, new_id("thr"), title, label)
    except asyncpg.UniqueViolationError as error:
        raise _label_taken(label) from error
    if row is not None:
        return _view(row)
    await get_thread(connection, tenant_id, thread_id)
    if turn_id is None:
        raise Conflict(f"Thread {thread_id!r} has no finished turn to fork at.", thread_id=thread_id)
    raise NotFound(
        f"There is no finished turn {turn_id!r} in the history of thread {thread_id!r}.",
        field="turn_id",
        thread_id=thread_id,
        turn_id=turn_id,
    )


def _label_taken(label: object) -> Conflict:
    return Conflict(f"Another thread has the label {label!r}; labels are unique in a tenant.", field="label")


def _view(row: Row) -> ThreadView:
    return ThreadView(
        id=row["id"],
        agent_id=row["agent_id"],
        title=row["title"],
        label=row["label"],
        head_turn_id=row["head_turn_id"],
        active_run_id=row["active_run_id"],
        turn_count=row["turn_count"],
        forked_from_thread_id=row["forked_from_thread_id"],
        forked_from_turn_id=row["forked_from_turn_id"],
        metadata=row["meta"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
