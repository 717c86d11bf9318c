"""Cancellation: one guarded statement for one run or many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.runs import CancelRequest, Doorbell
from nova_workers.domain.runs.sql.ends import HAS_LISTENER
from nova_workers.domain.runs.sql.filters import IS_OPEN, RunFilter, conditions_of
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.inserts import insert_effects

_NOT_BEGUN = "status IN ('scheduled', 'queued') AND attempt = 0"

# A run that is canceled before it began is delivered to webhooks like any ended run, but those of
# evaluations. A run has at most one such effect,
# so the effect's id is derived from the run's.
_EFFECT = insert_effects(
    f"mine WHERE mine.status = 'canceled' AND mine.source <> 'evaluation' AND {HAS_LISTENER}",
    id="'eff_' || substr(mine.id, 5)",
    tenant_id="mine.tenant_id",
    run_id="mine.id",
    thread_id="mine.thread_id",
    kind="'delivery'",
    position="1",
)
_DELIVER_END = f"""deliver_end AS (
    {_EFFECT}
)"""

_HAS_OTHERS = "SELECT EXISTS (SELECT 1 FROM runs WHERE thread_id = :thread_id AND id <> :run_id)"


# Ends runs `r` that were never begun; marks all others, and their worker or the next claim ends them. Two concurrent
# calls cannot deadlock: rows are locked in one order, running and waiting runs before those that may be merged into
# them, each group by id. A run that ended meanwhile is not changed.
def _request(which: str) -> str:
    return f"""
WITH wanted AS (
    SELECT r.id
      FROM runs r
     WHERE r.tenant_id = :tenant_id AND {which} AND {IS_OPEN}
     ORDER BY r.status IN ('scheduled', 'queued'), r.id
       FOR UPDATE
), mine AS (
    UPDATE runs r
       SET status = CASE WHEN {_NOT_BEGUN} THEN 'canceled' ELSE status END,
           stop_reason = CASE WHEN {_NOT_BEGUN} THEN 'aborted' ELSE stop_reason END,
           finished_at = CASE WHEN {_NOT_BEGUN} THEN now() ELSE finished_at END,
           final_event_id = CASE WHEN {_NOT_BEGUN} THEN '0-1' ELSE final_event_id END,
           cancel_requested_at = COALESCE(cancel_requested_at, now()),
           cancel_reason = COALESCE(cancel_reason, 'cancel')
      FROM wanted
     WHERE r.id = wanted.id AND {IS_OPEN}
    RETURNING r.id, r.tenant_id, r.agent_id, r.thread_id, r.queue, r.status, r.source, r.has_push_configs
), {_DELIVER_END}
SELECT id, thread_id, queue, status FROM mine
"""


_REQUEST = _request("r.id = ANY(:run_ids::text[])")
_REQUEST_ON_THREAD = _request("r.thread_id = :thread_id")

_SELECT = f"SELECT r.id, {_NOT_BEGUN} AS unbegun FROM runs r"
_NOT_REQUESTED = "r.cancel_requested_at IS NULL"

_STATUS = "SELECT status FROM runs WHERE tenant_id = :tenant_id AND id = :run_id"

_EDIT = f"""
UPDATE runs SET content = :content
 WHERE tenant_id = :tenant_id AND id = :run_id AND {_NOT_BEGUN} AND cancel_requested_at IS NULL
RETURNING id
"""


_WITHDRAW = f"""
WITH mine AS (
    UPDATE runs
       SET status = 'canceled', stop_reason = 'aborted', finished_at = now(), final_event_id = '0-1',
           cancel_requested_at = COALESCE(cancel_requested_at, now()), cancel_reason = COALESCE(cancel_reason, 'cancel')
     WHERE tenant_id = :tenant_id AND id = :run_id AND {_NOT_BEGUN}
    RETURNING id, tenant_id, agent_id, thread_id, queue, status, source, has_push_configs
), {_DELIVER_END}
SELECT id AS run_id, thread_id, queue FROM mine
"""


_WITHDRAW_OF_AGENT = f"""
WITH wanted AS (
    SELECT id FROM runs
     WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND {_NOT_BEGUN}
     ORDER BY id
       FOR UPDATE
), mine AS (
    UPDATE runs r
       SET status = 'canceled', stop_reason = 'aborted', finished_at = now(), final_event_id = '0-1',
           cancel_requested_at = COALESCE(cancel_requested_at, now()), cancel_reason = COALESCE(cancel_reason, 'cancel')
      FROM wanted
     WHERE r.id = wanted.id AND {_NOT_BEGUN}
    RETURNING r.id, r.tenant_id, r.agent_id, r.thread_id, r.queue, r.status, r.source, r.has_push_configs
), {_DELIVER_END}
SELECT count(*) FROM mine
"""


class OpenRun(NamedTuple):
    """An open run. One that has not begun ends at once when it is canceled."""

    id: str
    unbegun: bool


async def has_other_runs(connection: Connection, thread_id: str, run_id: str) -> bool:
    """Return whether a thread has other runs than this one."""
    return await connection.fetchval(_HAS_OTHERS, thread_id=thread_id, run_id=run_id)


async def request_cancel(connection: Connection, tenant_id: str, run_ids: Sequence[str]) -> list[CancelRequest]:
    """Cancel open runs. Ended, unknown and other tenants' runs are not in the answer."""
    return _requests(await connection.fetch(_REQUEST, tenant_id=tenant_id, run_ids=list(run_ids)))


async def request_cancel_of(
    connection: Connection, tenant_id: str, selected: Sequence[OpenRun], which: RunFilter
) -> list[CancelRequest]:
    """Cancel those of the selected runs that still match the filter: a run may have begun since it was selected."""
    conditions = conditions_of(which)
    query = _request(f"r.id = ANY(:selected::text[]) AND {conditions.all} AND {_NOT_REQUESTED}")
    ids = [run.id for run in selected]
    return _requests(await connection.fetch(query, tenant_id=tenant_id, selected=ids, **conditions.values))


async def request_cancel_on_thread(connection: Connection, tenant_id: str, thread_id: str) -> list[CancelRequest]:
    """Cancel every open run of a thread, however many there are."""
    return _requests(await connection.fetch(_REQUEST_ON_THREAD, tenant_id=tenant_id, thread_id=thread_id))


async def select_open(connection: Connection, tenant_id: str, which: RunFilter, *, limit: int) -> list[OpenRun]:
    """Return a tenant's open runs that match a filter and whose cancellation was not requested yet, oldest first."""
    conditions = conditions_of(which)
    query = f"{_SELECT} WHERE {conditions.all} AND {IS_OPEN} AND {_NOT_REQUESTED} ORDER BY r.id LIMIT :limit"
    rows = await connection.fetch(query, tenant_id=tenant_id, **conditions.values, limit=limit)
    return [OpenRun(row["id"], row["unbegun"]) for row in rows]


async def run_status(connection: Connection, tenant_id: str, run_id: str) -> str | None:
    """Return the status of a tenant's run, or None."""
    return await connection.fetchval(_STATUS, tenant_id=tenant_id, run_id=run_id)


async def edit_queued(connection: Connection, tenant_id: str, run_id: str, content: Sequence[ContentBlock]) -> bool:
    """Replace the message of a run that was never begun. False if it has begun or ended."""
    return await connection.fetchval(_EDIT, tenant_id=tenant_id, run_id=run_id, content=list(content)) is not None


async def withdraw_queued(connection: Connection, tenant_id: str, run_id: str) -> list[Doorbell]:
    """Cancel a run that was never begun. Empty if it has begun or ended."""
    rows = await connection.fetch(_WITHDRAW, tenant_id=tenant_id, run_id=run_id)
    return [Doorbell(**row) for row in rows]


async def withdraw_queued_of_agent(connection: Connection, tenant_id: str, agent_id: str) -> int:
    """Cancel all runs of an agent that were never begun, and return how many."""
    return await connection.fetchval(_WITHDRAW_OF_AGENT, tenant_id=tenant_id, agent_id=agent_id)


def _requests(rows: Iterable[Row]) -> list[CancelRequest]:
    return [
        CancelRequest(
            Doorbell(row["id"], row["thread_id"], row["queue"]),
            ended=row["status"] == "canceled",
            running=row["status"] == "running",
            waiting=row["status"] == "waiting",
        )
        for row in rows
    ]
