"""Deletes a thread's rows: all of them, or all but its latest turn.

Both run in slices, one transaction each, so that a long thread holds no lock for long, and a crash leaves a thread that
the next worker continues with. The thread's row is locked first, as everywhere, and skipped if another transaction
holds it. Reads after the lock see everything that was committed before: a new message, a new fork.

A fork continues from a turn of another thread and copies nothing. So the turns up to the deepest fork stay as long as
there is a fork; when the last fork is deleted, its source thread is checked again. Rows of `usage` stay: they name
turns, runs and threads without foreign keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from nova_workers.base.vocabulary import OPEN_RUNS, sql_list
from nova_workers.ledger.database import Connection, Row

EPHEMERAL_KEPT: Final = timedelta(hours=24)
"""The time from the last use of an ephemeral thread until it is purged."""

_TURNS = 100
_RUNS = 500
_WORDS = 500
_FILES = 20
"""Each may hold megabytes."""
_ASIDE = 500
"""Head moves, and SDK sessions."""
_OPEN_PAUSE = timedelta(hours=1)

# Marks threads that were deleted more than `days` ago for the purge, and unsets their heads.
_MARK = """
UPDATE threads SET purge_at = now(), head_turn_id = NULL
 WHERE id = ANY(ARRAY(SELECT id FROM threads
                       WHERE deleted_at < now() - make_interval(days => :days) AND purge_at IS NULL
                       ORDER BY deleted_at
                       LIMIT :limit
                         FOR UPDATE SKIP LOCKED))
"""

# Deletes threads by retention policy and marks them for the purge at once. The caller checked that they are due; this
# only checks that they were not used since, and that their state documents did not change in the period either.
_DELETE = """
UPDATE threads t SET deleted_at = now(), purge_at = now(), head_turn_id = NULL
 WHERE t.tenant_id = :tenant_id AND t.id = ANY(:thread_ids::text[]) AND t.deleted_at IS NULL AND t.active_run_id IS NULL
   AND t.updated_at < now() - make_interval(days => :days)
   AND NOT EXISTS (SELECT FROM thread_states s
                    WHERE s.thread_id = t.id AND s.updated_at >= now() - make_interval(days => :days))
"""

# Deletes ephemeral threads that were not used for a day and have no open run, and marks them for the purge at once. A
# message that is being accepted holds the thread's row; one that was accepted meanwhile has changed `updated_at`. A
# change of a state document that commits meanwhile is lost with the thread.
_EXPIRE = f"""
UPDATE threads SET deleted_at = COALESCE(deleted_at, now()), purge_at = now(), head_turn_id = NULL
 WHERE id = ANY(ARRAY(SELECT t.id FROM threads t
                       WHERE t.ephemeral AND t.purge_at IS NULL AND t.created_at < now() - :unused::interval
                         AND t.updated_at < now() - :unused::interval AND t.active_run_id IS NULL
                         AND NOT EXISTS (SELECT FROM thread_states s
                                          WHERE s.thread_id = t.id AND s.updated_at >= now() - :unused::interval)
                         AND NOT EXISTS (SELECT FROM runs r
                                          WHERE r.thread_id = t.id AND r.status IN {sql_list(OPEN_RUNS)})
                         AND NOT EXISTS (SELECT FROM triggers g WHERE g.thread_id = t.id AND g.deleted_at IS NULL)
                       ORDER BY t.created_at
                       LIMIT :limit
                         FOR UPDATE OF t SKIP LOCKED))
"""

_NEXT = """
SELECT id, tenant_id, task_id, forked_from_turn_id, head_turn_id
  FROM threads
 WHERE purge_at <= now()
 ORDER BY purge_at
 LIMIT 1
   FOR UPDATE SKIP LOCKED
"""

_HOLD = """
SELECT id, tenant_id, task_id, forked_from_turn_id, head_turn_id
  FROM threads
 WHERE tenant_id = :tenant_id AND id = :thread_id AND deleted_at IS NULL AND active_run_id IS NULL
   AND updated_at < now() - make_interval(days => :days)
   FOR UPDATE SKIP LOCKED
"""

# Facts about a locked thread. Only forks by other threads count. `head_depth` is for `trim`, which keeps the latest
# turn.
_NEEDED = f"""
SELECT EXISTS (SELECT FROM runs
                WHERE thread_id = :thread_id AND status IN {sql_list(OPEN_RUNS)}) AS open,
       (SELECT max(u.depth) FROM threads f JOIN turns u ON u.id = f.forked_from_turn_id
         WHERE u.thread_id = :thread_id AND f.id <> :thread_id) AS forked_depth,
       (SELECT depth FROM turns WHERE id = :head_turn_id AND thread_id = :thread_id) AS head_depth
"""

_PUT_OFF = "UPDATE threads SET purge_at = now() + :pause::interval WHERE id = :thread_id"

_TEXTS = """
DELETE FROM message_texts
 WHERE message_id = ANY(ARRAY(SELECT message_id FROM message_texts WHERE thread_id = :thread_id LIMIT :limit))
"""
_VECTORS = """
DELETE FROM embeddings WHERE id = ANY(ARRAY(SELECT id FROM embeddings WHERE thread_id = :thread_id LIMIT :limit))
"""

# Deletes turns with their messages, tool calls, compactions, texts and vectors. A purge starts with the newest and a
# trim with the oldest, so a crash leaves a history without gaps.
_TURNS_BETWEEN = """
DELETE FROM turns
 WHERE id = ANY(ARRAY(SELECT id FROM turns
                       WHERE thread_id = :thread_id AND depth > :above_depth AND depth < :below_depth
                       ORDER BY depth {order}
                       LIMIT :limit))
"""
_PURGE_TURNS = _TURNS_BETWEEN.format(order="DESC")
_TRIM_TURNS = _TURNS_BETWEEN.format(order="ASC")

# Deletes ended runs whose turn was deleted, with their effects and waits. A merged run belongs to the turn of its run.
_RUNS_WITHOUT_TURN = f"""
DELETE FROM runs
 WHERE id = ANY(ARRAY(SELECT r.id FROM runs r
                       WHERE r.thread_id = :thread_id AND r.status NOT IN {sql_list(OPEN_RUNS)}
                         AND NOT EXISTS (SELECT FROM turns t WHERE t.run_id = r.id)
                         AND NOT EXISTS (SELECT FROM turns t WHERE t.run_id = r.merged_into)
                       LIMIT :limit))
"""

_SENT_FILES = """
DELETE FROM sent_files
 WHERE id = ANY(ARRAY(SELECT id FROM sent_files WHERE tenant_id = :tenant_id AND thread_id = :thread_id LIMIT :limit))
"""

_EXAMPLES = """
DELETE FROM dataset_examples
 WHERE id = ANY(ARRAY(SELECT id FROM dataset_examples WHERE source_thread_id = :thread_id LIMIT :limit))
"""

_SESSIONS = """
DELETE FROM engine_sessions
 WHERE id = ANY(ARRAY(SELECT id FROM engine_sessions WHERE thread_id = :thread_id LIMIT :limit))
"""

_MOVES = """
DELETE FROM thread_heads
 WHERE id = ANY(ARRAY(SELECT h.id FROM thread_heads h
                       WHERE h.thread_id = :thread_id AND NOT EXISTS (SELECT FROM turns t WHERE t.id = h.turn_id)
                       LIMIT :limit))
"""

# A thread that is kept for its forks keeps no title, label, metadata or state.
_KEEP_FOR_FORKS = """
WITH stated AS (DELETE FROM thread_states WHERE thread_id = :thread_id)
UPDATE threads
   SET purge_at = 'infinity', title = NULL, label = NULL, meta = '{}', session_id = NULL
 WHERE id = :thread_id
"""

_REMOVE = "DELETE FROM threads WHERE id = :thread_id"
_FORGET_IN_TASK = (
    "UPDATE tasks SET thread_id = NULL WHERE tenant_id = :tenant_id AND id = :task_id AND thread_id = :thread_id"
)

# Checks the source thread again, if it was only kept for its forks. The update waits for a transaction that is just
# finding a fork of it; otherwise both could leave the purge to the other.
_LOOK_AGAIN = """
UPDATE threads p SET purge_at = now()
  FROM turns u
 WHERE u.id = :turn_id AND p.id = u.thread_id AND p.purge_at IS NOT NULL
"""

# The first remaining turn gets no parent, since its parent was deleted. Turns up to `above_depth` are kept for forks.
_CUT = """
UPDATE turns SET parent_turn_id = NULL
 WHERE id = (SELECT id FROM turns WHERE thread_id = :thread_id AND depth > :above_depth ORDER BY depth LIMIT 1)
"""
_TRIMMED = """
UPDATE threads
   SET trimmed_at = now(), session_id = NULL,
       forked_from_turn_id = CASE WHEN :whole THEN NULL ELSE forked_from_turn_id END
 WHERE id = :thread_id
"""
_NOTHING_TO_TRIM = "UPDATE threads SET trimmed_at = now() WHERE id = :thread_id"


@dataclass(frozen=True, slots=True)
class Slice:
    """What one transaction deleted.

    Attributes:
        threads: Whole ones: 0 or 1.
        more: Whether the same call is worth repeating now.
    """

    threads: int = 0
    turns: int = 0
    more: bool = False


async def mark_deleted(connection: Connection, *, days: int, limit: int) -> int:
    """Mark threads that were deleted more than `days` ago for the purge. Returns how many."""
    return _count(await connection.execute(_MARK, days=days, limit=limit))


async def delete_by_policy(connection: Connection, tenant_id: str, thread_ids: Sequence[str], *, days: int) -> int:
    """Delete threads that were not used for `days`, and mark them for the purge. Returns how many."""
    return _count(await connection.execute(_DELETE, tenant_id=tenant_id, thread_ids=list(thread_ids), days=days))


async def expire_ephemeral(connection: Connection, *, limit: int) -> int:
    """Delete ephemeral threads not used for `EPHEMERAL_KEPT`, and mark them for the purge. Returns how many."""
    return _count(await connection.execute(_EXPIRE, unused=EPHEMERAL_KEPT, limit=limit))


async def purge_next(transaction: Connection) -> Slice:
    """Delete a slice of the thread that has been due for the purge longest, and finally the thread.

    Args:
        transaction: A transaction; it holds the thread's lock.
    """
    thread = await transaction.fetchrow(_NEXT)
    if thread is None:
        return Slice()
    thread_id = str(thread["id"])
    needed = await _needed(transaction, thread)
    if needed["open"]:
        # An open run was not canceled yet. Nothing signals its end, so check again later.
        await transaction.execute(_PUT_OFF, thread_id=thread_id, pause=_OPEN_PAUSE)
        return Slice(more=True)
    kept_depth = -1 if needed["forked_depth"] is None else int(needed["forked_depth"])
    turns = _count(
        await transaction.execute(
            _PURGE_TURNS, thread_id=thread_id, above_depth=kept_depth, below_depth=_TOP, limit=_TURNS
        )
    )
    full = turns == _TURNS
    files = _count(
        await transaction.execute(_SENT_FILES, tenant_id=thread["tenant_id"], thread_id=thread_id, limit=_FILES)
    )
    full |= files == _FILES
    for query, limit in (
        (_TEXTS, _WORDS),
        (_VECTORS, _WORDS),
        (_RUNS_WITHOUT_TURN, _RUNS),
        (_SESSIONS, _ASIDE),
        (_EXAMPLES, _ASIDE),
        (_MOVES, _ASIDE),
    ):
        full |= _count(await transaction.execute(query, thread_id=thread_id, limit=limit)) == limit
    if full:
        return Slice(turns=turns, more=True)
    if needed["forked_depth"] is not None:
        await transaction.execute(_KEEP_FOR_FORKS, thread_id=thread_id)
        return Slice(turns=turns, more=True)
    await transaction.execute(_REMOVE, thread_id=thread_id)
    await transaction.execute(
        _FORGET_IN_TASK, tenant_id=thread["tenant_id"], task_id=thread["task_id"], thread_id=thread_id
    )
    await transaction.execute(_LOOK_AGAIN, turn_id=thread["forked_from_turn_id"])
    return Slice(threads=1, turns=turns, more=True)


async def trim(transaction: Connection, tenant_id: str, thread_id: str, *, days: int) -> Slice:
    """Delete a slice of a thread's turns before its latest one, from which the thread continues.

    Does nothing if the thread is in use, or was in the last `days`.

    Args:
        transaction: A transaction; it holds the thread.
    """
    thread = await transaction.fetchrow(_HOLD, tenant_id=tenant_id, thread_id=thread_id, days=days)
    if thread is None:
        return Slice()
    needed = await _needed(transaction, thread)
    if needed["open"]:
        return Slice()
    head_depth, forked_depth = needed["head_depth"], needed["forked_depth"]
    if head_depth is None or (forked_depth is not None and forked_depth >= head_depth):
        # It has no turn of its own, or forks continue from its latest turn and need all before it.
        await transaction.execute(_NOTHING_TO_TRIM, thread_id=thread_id)
        return Slice()
    kept_depth = -1 if forked_depth is None else int(forked_depth)
    turns = _count(
        await transaction.execute(
            _TRIM_TURNS, thread_id=thread_id, above_depth=kept_depth, below_depth=head_depth, limit=_TURNS
        )
    )
    await transaction.execute(_CUT, thread_id=thread_id, above_depth=kept_depth)
    full = turns == _TURNS
    for query, limit in ((_RUNS_WITHOUT_TURN, _RUNS), (_SESSIONS, _ASIDE), (_MOVES, _ASIDE)):
        full |= _count(await transaction.execute(query, thread_id=thread_id, limit=limit)) == limit
    if full:
        return Slice(turns=turns, more=True)
    await transaction.execute(_TRIMMED, thread_id=thread_id, whole=forked_depth is None)
    if forked_depth is None:
        await transaction.execute(_LOOK_AGAIN, turn_id=thread["forked_from_turn_id"])
    return Slice(turns=turns)


_TOP = 2_147_483_647


async def _needed(transaction: Connection, thread: Row) -> Row:
    row = await transaction.fetchrow(_NEEDED, thread_id=thread["id"], head_turn_id=thread["head_turn_id"])
    assert row is not None  # noqa: S101 - it has no FROM
    return row


def _count(tag: str) -> int:
    return int(tag.rpartition(" ")[2])
