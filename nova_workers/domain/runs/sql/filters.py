"""Which runs a list or a bulk cancellation is about, as conditions of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nova_workers.base.ids import id_at
from nova_workers.base.vocabulary import ENDED_RUNS, OPEN_RUNS, sql_list
from nova_workers.contracts.http.wire import RunStatus

IS_OPEN = f"r.status IN {sql_list(OPEN_RUNS)}"
"""The condition in the words of the partial index of open runs."""

QUEUE_ORDER = "(r.attempt > 0) DESC, r.front DESC, r.seq"
"""The order of a thread's queue, and of its index: a run that has begun, then those sent to the front."""

IS_RUNNING = "r.lease_expires_at IS NOT NULL"
"""That a run which is found by its id is running: it has a lease (a constraint of the table). Said by its status, it
would be in the words of partial indexes of running runs. These are small when a plan is made, which then reads all of
such an index to find one run: every running run, and those that ended since the last vacuum."""

_CONDITIONS = {
    "before": "r.id < :before",
    "thread_id": "r.thread_id = :thread_id",
    "agent_id": "r.agent_id = :agent_id",
    "queue": "r.queue = :queue",
    "trigger_id": "r.trigger_id = :trigger_id",
    "parent_run_id": "r.parent_run_id = :parent_run_id",
    "first_id": "r.id >= :first_id",
    "end_id": "r.id < :end_id",
    "run_ids": "r.id = ANY(:run_ids::text[])",
}


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs; None does not filter."""

    thread_id: str | None = None
    agent_id: str | None = None
    statuses: frozenset[RunStatus] = frozenset()
    """Any of these; empty does not filter."""
    queue: str | None = None
    trigger_id: str | None = None
    parent_run_id: str | None = None
    since: datetime | None = None
    """Submitted at this time or later. Compared with ids, which begin with it: exact to a millisecond."""
    until: datetime | None = None
    """Submitted before this time."""
    run_ids: Sequence[str] | None = None


def conditions_of(which: RunFilter, *, before: str | None = None) -> tuple[str, dict[str, Any]]:
    """Return the conditions on runs ``r``, with the tenant's as ``:tenant_id``, and the values of all others.

    Args:
        which: The filter.
        before: Only runs before this one.
    """
    given = {
        "before": before,
        "thread_id": which.thread_id,
        "agent_id": which.agent_id,
        "queue": which.queue,
        "trigger_id": which.trigger_id,
        "parent_run_id": which.parent_run_id,
        "first_id": None if which.since is None else id_at("run", which.since),
        "end_id": None if which.until is None else id_at("run", which.until),
        "run_ids": None if which.run_ids is None else list(which.run_ids),
    }
    values = {name: value for name, value in given.items() if value is not None}
    conditions = ["r.tenant_id = :tenant_id", *(_CONDITIONS[name] for name in values)]
    if which.statuses:
        # Spelt out: the planner uses the partial indexes of open and of failed runs only if it sees the values.
        conditions.append(f"r.status IN {sql_list(sorted(which.statuses))}")
    if which.statuses and which.statuses.isdisjoint(ENDED_RUNS):
        conditions.append(IS_OPEN)
    return " AND ".join(conditions), values
