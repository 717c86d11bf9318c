"""Sessions of workers: each worker holds an advisory lock in a session of its own, which ends with its process.

The kernel closes the connections of a process that dies, and Postgres then frees the lock: others see at once that the
worker is gone. One that is only stopped keeps its connection and so its lock, and its runs until their leases end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.runs.sql.leases import recovering
from nova_workers.ledger.database import Connection

_LOCK_CLASS = 1_853_060_705
"""The first key of our locks: the letters "nova". The second is a hash of the worker's id."""


def _lock_of(worker_id: str) -> str:
    """Return the condition that a row ``l`` of `pg_locks` is the lock of a worker. Two ids may have one lock."""
    return (
        f"l.locktype = 'advisory' AND l.classid = {_LOCK_CLASS} AND l.objid = hashtext({worker_id})::oid "
        "AND l.objsubid = 2 AND l.granted "
        "AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"
    )


# A failed insert leaves the lock with the session; then the next look finds no row, and this is repeated.
_HOLD = f"""
INSERT INTO worker_sessions (worker_id)
SELECT :worker_id WHERE pg_try_advisory_lock({_LOCK_CLASS}, hashtext(:worker_id))
ON CONFLICT (worker_id) DO UPDATE SET began_at = now()
"""

_LOOK = f"""
SELECT EXISTS (SELECT FROM worker_sessions s WHERE s.worker_id = :worker_id)
       AND EXISTS (SELECT FROM pg_locks l WHERE {_lock_of(":worker_id")} AND l.pid = pg_backend_pid()) AS held,
       ARRAY(SELECT s.worker_id
               FROM worker_sessions s
              WHERE s.worker_id <> :worker_id
                AND NOT EXISTS (SELECT FROM pg_locks l WHERE {_lock_of("s.worker_id")})) AS lost
"""

# A worker that was found to be lost may have a session again by now, or may have withdrawn: then its leases decide.
_RECOVER = recovering(
    "r.worker_id = ANY(:worker_ids::text[]) "
    "AND EXISTS (SELECT FROM worker_sessions s WHERE s.worker_id = r.worker_id) "
    f"AND NOT EXISTS (SELECT FROM pg_locks l WHERE {_lock_of('r.worker_id')})"
)

# No doorbell is rung for it any more.
_UNINSTALL_LOST = f"""
DELETE FROM worker_installs i
 WHERE i.worker_id = ANY(:worker_ids::text[])
   AND NOT EXISTS (SELECT FROM pg_locks l WHERE {_lock_of("i.worker_id")})
"""

_FORGET_LOST = f"""
DELETE FROM worker_sessions s
 WHERE s.worker_id = ANY(:worker_ids::text[])
   AND NOT EXISTS (SELECT FROM pg_locks l WHERE {_lock_of("s.worker_id")})
   AND NOT EXISTS (SELECT FROM runs r WHERE r.status = 'running' AND r.worker_id = s.worker_id)
"""

_HAS_SESSION = "SELECT EXISTS (SELECT FROM worker_sessions WHERE worker_id = :worker_id)"

_FORGET = "DELETE FROM worker_sessions WHERE worker_id = :worker_id"


class Look(NamedTuple):
    """What a worker sees.

    Attributes:
        held: Whether this session holds its lock, and its row reports it.
        lost: Workers that had a session and have none now.
    """

    held: bool
    lost: frozenset[str]


async def hold_lock(connection: Connection, worker_id: str) -> None:
    """Take a worker's lock in this session, and record that the worker has one; nothing if another session holds it."""
    await connection.execute(_HOLD, worker_id=worker_id)


async def look_for_lost_workers(connection: Connection, worker_id: str) -> Look:
    """Return whether this session holds the worker's lock, and which others have lost theirs."""
    row = await connection.fetchrow(_LOOK, worker_id=worker_id)
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return Look(row["held"], frozenset(row["lost"]))


async def recover_runs_of(connection: Connection, worker_ids: Sequence[str], *, limit: int) -> list[Doorbell]:
    """Requeue runs of workers without a session, in front of their thread's queue, and return their doorbells."""
    await connection.execute(_UNINSTALL_LOST, worker_ids=list(worker_ids))
    rows = await connection.fetch(_RECOVER, worker_ids=list(worker_ids), limit=limit)
    if len(rows) < limit:
        await connection.execute(_FORGET_LOST, worker_ids=list(worker_ids))
    return [Doorbell(**row) for row in rows]


async def forget_worker(connection: Connection, worker_id: str) -> None:
    """Record that a worker has no session to judge it by: it ended after its runs, or its session broke."""
    await connection.execute(_FORGET, worker_id=worker_id)


async def has_session(connection: Connection, worker_id: str) -> bool:
    """Return whether a worker has a session to judge it by, as far as others have seen."""
    return await connection.fetchval(_HAS_SESSION, worker_id=worker_id)
