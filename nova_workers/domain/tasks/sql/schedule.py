"""Scheduling of tasks: which are due, which are worked on, and which are parked.

A task that is worked on names its run (`working_run_id`) and is never due; a wake-up meanwhile sets `work_at` and
counts when the run has ended. Functions that write need the lock of the task's tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from nova_workers.base.vocabulary import DUE_RUNS, sql_list
from nova_workers.contracts.http.tasks import TaskStatus
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.runs.sql.claim import PAUSED
from nova_workers.domain.tasks.sql.hours import IN_WORK_HOURS
from nova_workers.ledger.database import Connection

_OPEN = sql_list(DUE_RUNS)

# Tenant by tenant, so that a tenant outside its hours costs one lookup and not one per task. The first task of each
# tenant comes before the second of any.
_DUE = f"""
SELECT due.tenant_id, due.id
  FROM (SELECT COALESCE(:at::timestamptz, now()) AS at) moment,
       tenants n,
       LATERAL (SELECT extract(hour FROM moment.at AT TIME ZONE n.timezone) AS hour) wall,
       LATERAL (
           SELECT r.tenant_id, r.id, row_number() OVER (ORDER BY r.work_at) AS place
             FROM (SELECT tenant_id, id, owner_agent_id AS agent_id, work_at
                     FROM tasks
                    WHERE tenant_id = n.id AND work_at <= moment.at AND working_run_id IS NULL) r
            WHERE NOT {PAUSED}
            ORDER BY r.work_at
            LIMIT :most_of_a_tenant
       ) due
 WHERE {IN_WORK_HOURS}
 ORDER BY due.place
"""

_IS_DUE = """
SELECT EXISTS (SELECT FROM tasks
                WHERE tenant_id = :tenant_id AND id = :task_id AND status = 'active' AND work_at <= now()
                  AND working_run_id IS NULL)
"""

# A run that retention deleted has ended too.
_OVER = f"""
SELECT k.tenant_id, k.id
  FROM tasks k LEFT JOIN runs r ON r.tenant_id = k.tenant_id AND r.id = k.working_run_id
 WHERE k.working_run_id IS NOT NULL AND (r.id IS NULL OR r.status NOT IN {_OPEN})
 LIMIT :limit
"""

# Records the end of an invocation, once: `working_run_id` is cleared. A canceled invocation, or a failure that passes
# or that others must fix, does not count as one that changed nothing.
_SETTLE = f"""
UPDATE tasks k
   SET working_run_id = NULL,
       idle_invocations = CASE WHEN k.revision > k.worked_revision THEN 0
                               WHEN r.status = 'succeeded' OR (r.status = 'failed' AND r.error_retryable IS NOT TRUE
                                    AND r.error_kind NOT IN ('budget_exceeded', 'auth_failure'))
                               THEN k.idle_invocations + 1
                               ELSE k.idle_invocations END
  FROM tasks o LEFT JOIN runs r ON r.tenant_id = o.tenant_id AND r.id = o.working_run_id
 WHERE o.tenant_id = :tenant_id AND o.id = :task_id AND k.tenant_id = o.tenant_id AND k.id = o.id
   AND o.working_run_id IS NOT NULL AND (r.id IS NULL OR r.status NOT IN {_OPEN})
RETURNING k.status, k.idle_invocations, r.id AS run_id, r.thread_id, r.agent_id, r.error_message
"""

_IN_FLIGHT = f"""
SELECT r.id FROM tasks k JOIN runs r ON r.tenant_id = k.tenant_id AND r.id = k.working_run_id
 WHERE k.tenant_id = :tenant_id AND k.id = :task_id AND r.status IN {_OPEN}
"""

# A request by a person resets the count of idle invocations.
_MARK_WORKING = """
UPDATE tasks k
   SET working_run_id = :run_id, worked_revision = k.revision, parked_reason = NULL,
       idle_invocations = CASE WHEN :requested THEN 0 ELSE k.idle_invocations END,
       work_at = now() + n.work_every_s * interval '1 second'
  FROM tenants n
 WHERE k.tenant_id = :tenant_id AND k.id = :task_id AND k.status = 'active' AND n.id = k.tenant_id
RETURNING k.id
"""

_PARK = """
UPDATE tasks SET parked_reason = :reason, work_at = NULL
 WHERE tenant_id = :tenant_id AND id = :task_id AND status = 'active'
RETURNING id
"""

_WAKE = """
UPDATE tasks SET parked_reason = NULL, work_at = now()
 WHERE tenant_id = :tenant_id AND id = :task_id AND status = 'active'
"""

# Threads before their runs, as everywhere, in the order of ids. Includes the parents' threads, whose owners are woken
# next, so that concurrent callers lock in the same order.
_LOCK_THREADS = """
SELECT t.id FROM threads t JOIN tasks k ON t.tenant_id = k.tenant_id AND t.id = k.thread_id
 WHERE k.tenant_id = :tenant_id
   AND k.id IN (SELECT unnest(ARRAY[x.id, x.parent_task_id]) FROM tasks x
                 WHERE x.tenant_id = :tenant_id AND x.id = ANY(:task_ids::int[]))
 ORDER BY t.id
   FOR UPDATE OF t
"""

# Requests cancellation of the tasks' runs and of queued wake-ups of their owners, except the calling run. It does not
# end them: the claim that ends a run also publishes its end.
_STOP_WORK = f"""
WITH stopped AS (
    UPDATE tasks SET working_run_id = NULL, work_at = NULL, parked_reason = NULL
     WHERE tenant_id = :tenant_id AND id = ANY(:task_ids::int[])
    RETURNING thread_id
)
UPDATE runs r
   SET cancel_requested_at = COALESCE(r.cancel_requested_at, now()),
       cancel_reason = COALESCE(r.cancel_reason, 'cancel')
  FROM stopped s
 WHERE r.tenant_id = :tenant_id AND r.thread_id = s.thread_id AND r.source = 'task' AND r.status IN {_OPEN}
   AND r.id IS DISTINCT FROM :except_run_id
RETURNING r.id, r.thread_id, r.queue, r.status
"""


@dataclass(frozen=True, slots=True)
class Invocation:
    """An ended run of a task."""

    run_id: str
    thread_id: str
    agent_id: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Settled:
    """A task whose invocation has ended.

    Attributes:
        idle_invocations: How many in a row changed nothing.
        last: None if the run was deleted.
    """

    status: TaskStatus
    idle_invocations: int
    last: Invocation | None


async def find_due(
    connection: Connection, *, most_of_a_tenant: int, at: datetime | None = None
) -> list[tuple[str, int]]:
    """Return tasks to work on: due, without a run, within their tenant's hours, and not paused.

    Args:
        connection: One statement.
        most_of_a_tenant: Most of each tenant; the next pass finds the others.
        at: The moment to check; None for now.
    """
    return [
        (row["tenant_id"], row["id"]) for row in await connection.fetch(_DUE, most_of_a_tenant=most_of_a_tenant, at=at)
    ]


async def is_due(connection: Connection, tenant_id: str, task_id: int) -> bool:
    """Return whether a locked task is still due."""
    return await connection.fetchval(_IS_DUE, tenant_id=tenant_id, task_id=task_id)


async def find_ended_invocations(connection: Connection, *, limit: int) -> list[tuple[str, int]]:
    """Return tasks whose invocation has ended and is not settled yet."""
    return [(row["tenant_id"], row["id"]) for row in await connection.fetch(_OVER, limit=limit)]


async def settle(connection: Connection, tenant_id: str, task_id: int) -> Settled | None:
    """Record that a locked task's invocation ended, and whether it changed anything. None if it has not ended."""
    row = await connection.fetchrow(_SETTLE, tenant_id=tenant_id, task_id=task_id)
    if row is None:
        return None
    last = None
    if row["run_id"] is not None:
        last = Invocation(row["run_id"], row["thread_id"], row["agent_id"], row["error_message"])
    return Settled(row["status"], row["idle_invocations"], last)


async def invocation_in_flight(connection: Connection, tenant_id: str, task_id: int) -> str | None:
    """Return the open run that works on a locked task, if any."""
    return await connection.fetchval(_IN_FLIGHT, tenant_id=tenant_id, task_id=task_id)


async def mark_working(
    connection: Connection, tenant_id: str, task_id: int, run_id: str, *, requested: bool = False
) -> bool:
    """Record the run that works on an active task, and when the next one is due.

    Args:
        connection: In the transaction that makes the run.
        tenant_id: Tenant of the task.
        requested: A person requested it: reset the count of idle invocations.

    Returns:
        False if it is not active.
    """
    return (
        await connection.fetchval(
            _MARK_WORKING, tenant_id=tenant_id, task_id=task_id, run_id=run_id, requested=requested
        )
        is not None
    )


async def park(connection: Connection, tenant_id: str, task_id: int, reason: str) -> bool:
    """Park an active task until it changes. False if it is not active."""
    return await connection.fetchval(_PARK, tenant_id=tenant_id, task_id=task_id, reason=reason) is not None


async def wake(connection: Connection, tenant_id: str, task_id: int) -> None:
    """Make an active task due as soon as its tenant's hours allow."""
    await connection.execute(_WAKE, tenant_id=tenant_id, task_id=task_id)


async def stop_work(
    connection: Connection, tenant_id: str, task_ids: Sequence[int], *, except_run_id: str | None
) -> list[Doorbell]:
    """Stop work on tasks: request cancellation of their open runs.

    Args:
        connection: In a transaction.
        tenant_id: Tenant of the tasks.
        except_run_id: The calling run, which continues.

    Returns:
        The doorbells of queued runs, for a worker to end them.
    """
    ids = list(task_ids)
    await connection.fetch(_LOCK_THREADS, tenant_id=tenant_id, task_ids=ids)
    rows = await connection.fetch(_STOP_WORK, tenant_id=tenant_id, task_ids=ids, except_run_id=except_run_id)
    return [Doorbell(row["id"], row["thread_id"], row["queue"]) for row in rows if row["status"] == "queued"]
