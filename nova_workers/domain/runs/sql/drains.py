"""Orders of operators to workers: to drain, which ends a process.

An order names a process and not a machine: the worker that is started in its place has an id of its own. Workers look
for theirs every few seconds.
"""

from __future__ import annotations

from nova_workers.contracts.http.fleet import WorkerDrain
from nova_workers.ledger.database import Connection

# Nothing if it was ordered before.
_ORDER = """
INSERT INTO worker_drains (worker_id) VALUES (:worker_id)
ON CONFLICT (worker_id) DO NOTHING
RETURNING worker_id, ordered_at, ended_at
"""

_GET = "SELECT worker_id, ordered_at, ended_at FROM worker_drains WHERE worker_id = :worker_id"

_LIST = """
SELECT worker_id, ordered_at, ended_at
  FROM worker_drains
 WHERE COALESCE(ended_at, ordered_at) > now() - interval '1 hour'
 ORDER BY ordered_at DESC, worker_id
"""

_IS_ORDERED = "SELECT EXISTS (SELECT FROM worker_drains WHERE worker_id = :worker_id)"

_END = "UPDATE worker_drains SET ended_at = now() WHERE worker_id = :worker_id AND ended_at IS NULL"

_FORGET_OLD = "DELETE FROM worker_drains WHERE ordered_at < now() - interval '1 day'"


async def order_drain(connection: Connection, worker_id: str) -> WorkerDrain | None:
    """Order a worker to drain; return None if that was done before. Also deletes the orders of more than a day ago."""
    await connection.execute(_FORGET_OLD)
    row = await connection.fetchrow(_ORDER, worker_id=worker_id)
    return None if row is None else WorkerDrain(**row)


async def find_drain(connection: Connection, worker_id: str) -> WorkerDrain | None:
    """Return the order to a worker."""
    row = await connection.fetchrow(_GET, worker_id=worker_id)
    return None if row is None else WorkerDrain(**row)


async def list_drains(connection: Connection) -> list[WorkerDrain]:
    """Return the orders of the last hour, and those to workers that ended in it."""
    return [WorkerDrain(**row) for row in await connection.fetch(_LIST)]


async def is_drain_ordered(connection: Connection, worker_id: str) -> bool:
    """Return whether a worker is to drain."""
    return await connection.fetchval(_IS_ORDERED, worker_id=worker_id)


async def record_drained(connection: Connection, worker_id: str) -> None:
    """Record that a worker ended as it was ordered to."""
    await connection.execute(_END, worker_id=worker_id)
