"""Renaming an agent, second half: its rows move to the new id in bounded batches.

A thread moves with the rows below it, and its own row last, once none of them has the former id; a batch takes several
threads, and a thread with many rows several batches. Rows that another transaction has locked, and threads with a
running run, are left to a later batch. Then `SWEPT` moves the rows that belong to no thread. Each batch is one
transaction that finds out by itself what is left, so a process that dies leaves nothing behind but work, and any number
of processes may work on one rename.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from nova_workers.domain.agents.sql.renames import Rename
from nova_workers.ledger.database import Connection

# By the partial indexes of threads that are there, that were deleted, and that are being purged. A claim that began
# before the rename may have made a run of the agent running; its thread moves when that has ended.
_MINE = """
SELECT t.id FROM threads t
 WHERE t.tenant_id = :tenant_id AND t.agent_id = :from_id AND {which}
   AND NOT EXISTS (SELECT FROM runs r WHERE r.thread_id = t.id AND r.status = 'running')
"""
_WHICH = (
    "t.deleted_at IS NULL",
    "t.deleted_at IS NOT NULL AND t.purge_at IS NULL",
    "t.purge_at IS NOT NULL",
)
_LOCK_THREADS = f"""
SELECT id FROM threads
 WHERE id IN (({") UNION ALL (".join(_MINE.format(which=which) for which in _WHICH)}) LIMIT :limit)
   AND agent_id = :from_id
   FOR NO KEY UPDATE SKIP LOCKED
"""

OF_THREADS: Final = {
    "runs": "x.thread_id {of}",
    "turns": "x.thread_id {of}",
    "usage": "x.turn_id IN (SELECT u.id FROM turns u WHERE u.thread_id {of})",
    "deliveries": "x.run_id IN (SELECT r.id FROM runs r WHERE r.thread_id {of})",
    "sent_files": "x.tenant_id = :tenant_id AND x.thread_id {of}",
    "message_texts": "x.thread_id {of}",
    "embeddings": "x.thread_id {of}",
}
"""Tables whose rows move with their thread, and how they are found by it."""

_UPDATE = """
UPDATE {table} SET {column} = :to_id
 WHERE ctid = ANY(ARRAY(SELECT x.ctid FROM {table} x WHERE {which} AND x.{column} = :from_id LIMIT :limit
                           FOR UPDATE SKIP LOCKED))
"""
_BELOW = {
    table: _UPDATE.format(table=table, column="agent_id", which=which.format(of="= ANY(:thread_ids::text[])"))
    for table, which in OF_THREADS.items()
}
_THREAD_OF = {"deliveries": "(SELECT r.thread_id FROM runs r WHERE r.id = x.run_id)"}
"""How the thread of a row is found, where no column of it has the thread."""
_WITH_ROWS = "\n     UNION ALL ".join(
    f"SELECT {_THREAD_OF.get(table, 'x.thread_id')} FROM {table} x"
    f" WHERE {which.format(of='= ANY(:thread_ids::text[])')} AND x.agent_id = :from_id"
    for table, which in OF_THREADS.items()
)
# The threads with rows left are found once for a batch, by their ids. With a subquery for each thread, the usage of all
# threads is read for each of them, so that the time of a rename grows with the square of its runs.
_MOVE_THREADS = f"""
UPDATE threads t SET agent_id = :to_id
 WHERE t.tenant_id = :tenant_id AND t.id = ANY(:thread_ids::text[])
   AND t.id <> ALL(ARRAY({_WITH_ROWS}))
"""

_MARKED = "x.words @@ quote_literal('@' || :tenant_id || '/' || :from_id)::tsquery AND x.tenant_id = :tenant_id"
_OF_TENANT = "x.tenant_id = :tenant_id"

LATE: Final = (
    ("deliveries", "agent_id"),
    ("sent_files", "agent_id"),
    ("message_texts", "agent_id"),
    ("embeddings", "agent_id"),
    ("feedback", "agent_id"),
    ("notes", "agent_id"),
    ("tasks", "owner_agent_id"),
)
"""Columns that are checked again after the rename, by their indexes: a transaction that read the agent's id before
its thread moved may write it later."""

SWEPT: Final = (
    *LATE,
    ("memories", "agent_id"),
    ("triggers", "agent_id"),
    ("triggers", "created_by"),
    ("tasks", "created_by"),
    ("task_changes", "actor"),
    ("webhooks", "agent_id"),
    ("rollouts", "agent_id"),
    ("orchestrations", "agent_id"),
    ("evaluations", "agent_id"),
    ("samplings", "agent_id"),
    ("run_samples", "agent_id"),
    ("secrets", "updated_by"),
    ("agent_versions", "created_by"),
    ("changes", "agent_id"),
)
"""Columns whose rows move after the threads. Together with the threads, what is below them, the usage and what
`begin_rename` changes, these are all that hold an agent's id; a test compares with the models."""

_SWEEP = {
    (table, column): _UPDATE.format(
        table=table, column=column, which=_MARKED if table == "message_texts" else _OF_TENANT
    )
    for table, column in SWEPT
}

# Usage of threads that retention deleted. It has no index by agent, so a walk over the tenant's rows finds it.
_SWEEP_USAGE = """
WITH page AS (
    SELECT id, agent_id, created_at FROM usage
     WHERE tenant_id = :tenant_id AND created_at >= COALESCE(:since::timestamptz, '-infinity')
       AND (created_at, id) > (COALESCE(:since::timestamptz, '-infinity'), :after_id)
     ORDER BY created_at, id
     LIMIT :limit
), moved AS (
    UPDATE usage u SET agent_id = :to_id FROM page WHERE u.id = page.id AND page.agent_id = :from_id
)
SELECT created_at, id FROM page ORDER BY created_at DESC, id DESC LIMIT 1
"""

_THREADS_LEFT = """
SELECT count(*)::int FROM threads WHERE tenant_id = :tenant_id AND agent_id = :from_id AND deleted_at IS NULL
"""

# The agent continues once no thread and no run has the former id.
_FINISH = """
DELETE FROM switches
 WHERE scope = 'rename' AND tenant_id = :tenant_id AND target = :to_id
   AND NOT EXISTS (SELECT FROM threads WHERE tenant_id = :tenant_id AND agent_id = :from_id AND deleted_at IS NULL)
   AND NOT EXISTS (SELECT FROM runs WHERE tenant_id = :tenant_id AND agent_id = :from_id)
RETURNING target
"""


async def move_threads(connection: Connection, rename: Rename, *, threads: int, rows: int) -> int:
    """Move some threads. Must be called in a transaction.

    Args:
        threads: Limit of threads.
        rows: Limit of rows of one table.

    Returns:
        How many rows moved.
    """
    ids = {"tenant_id": rename.tenant_id, "from_id": rename.from_id}
    locked = [row["id"] for row in await connection.fetch(_LOCK_THREADS, **ids, limit=threads)]
    if not locked:
        return 0
    values = {"from_id": rename.from_id, "to_id": rename.to_id, "thread_ids": locked}
    moved = 0
    for table, statement in _BELOW.items():
        of_tenant = {"tenant_id": rename.tenant_id} if table == "sent_files" else {}
        moved += _count(await connection.execute(statement, **values, **of_tenant, limit=rows))
    return moved + _count(await connection.execute(_MOVE_THREADS, **values, tenant_id=rename.tenant_id))


async def threads_left(connection: Connection, rename: Rename) -> int:
    """Return how many threads still have the former id."""
    return await connection.fetchval(_THREADS_LEFT, tenant_id=rename.tenant_id, from_id=rename.from_id)


async def sweep(connection: Connection, rename: Rename, column: tuple[str, str], *, rows: int) -> int:
    """Move rows of one of `SWEPT`, at most `rows`, and return how many."""
    ids = {"tenant_id": rename.tenant_id, "from_id": rename.from_id, "to_id": rename.to_id}
    return _count(await connection.execute(_SWEEP[column], **ids, limit=rows))


async def sweep_usage(
    connection: Connection, rename: Rename, after: tuple[datetime, str] | None, *, rows: int
) -> tuple[datetime, str] | None:
    """Walk over a page of the tenant's usage and move what is the agent's.

    Args:
        after: Where the page before ended; None begins.

    Returns:
        Where this page ended; None if nothing came after `after`.
    """
    since, after_id = after or (None, "")
    row = await connection.fetchrow(
        _SWEEP_USAGE,
        tenant_id=rename.tenant_id,
        from_id=rename.from_id,
        to_id=rename.to_id,
        since=since,
        after_id=after_id,
        limit=rows,
    )
    return None if row is None else (row["created_at"], row["id"])


async def finish_move(connection: Connection, rename: Rename) -> bool:
    """Let the agent start runs again. False while threads or runs have the former id, or if it was done before."""
    ids = {"tenant_id": rename.tenant_id, "from_id": rename.from_id, "to_id": rename.to_id}
    return await connection.fetchval(_FINISH, **ids) is not None


def _count(tag: str) -> int:
    return int(tag.rpartition(" ")[2])
