"""Lists of an agent's runs by their last change, newest first: open ones among those that have ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from nova_workers.base.vocabulary import ENDED_RUNS, OPEN_RUNS, sql_list
from nova_workers.contracts.http.wire import RunStatus, RunView
from nova_workers.domain.runs.sql.filters import IS_OPEN
from nova_workers.domain.runs.sql.reads import view_of_runs, views
from nova_workers.ledger.database import Connection

_CHANGED_AT: Final = """\
COALESCE(r.finished_at,
         CASE WHEN r.status = 'waiting' THEN (SELECT max(w.created_at) FROM run_waits w
                                               WHERE w.run_id = r.id AND w.status = 'open') END,
         r.started_at, r.created_at)"""
"""When a run was submitted, began, began to wait or ended, whichever was last."""

_OF_AGENT: Final = "r.tenant_id = :tenant_id AND r.agent_id = :agent_id"

# A message that joined another run's turn is a part of that run.
_SHOWN_ENDS: Final = tuple(status for status in ENDED_RUNS if status != "merged")


@dataclass(frozen=True, slots=True)
class ChangedRuns:
    """Which runs of an agent.

    Attributes:
        thread_id: Only of this thread.
        statuses: Any of these; empty does not filter.
        since: Only those that changed at this time or later.
    """

    agent_id: str
    thread_id: str | None = None
    statuses: frozenset[RunStatus] = frozenset()
    since: datetime | None = None


async def list_changed_runs(
    connection: Connection, tenant_id: str, which: ChangedRuns, *, before: tuple[datetime, str] | None, limit: int
) -> list[RunView]:
    """Return runs, those that changed last first, from before a run that changed at a time. Messages have no media."""
    found, values = _found(which, before=before, at_most="limit")
    newest = f"{found} ORDER BY c.at DESC, c.id DESC LIMIT :limit"
    page = f"(SELECT r.*, p.at AS changed_at FROM ({newest}) p JOIN runs r ON r.id = p.id)"
    query = f"{view_of_runs(page)} ORDER BY r.changed_at DESC, r.id DESC"
    rows = await connection.fetch(query, tenant_id=tenant_id, **values, limit=limit, media=False)
    return views(rows)


async def count_changed_runs(connection: Connection, tenant_id: str, which: ChangedRuns, *, at_most: int) -> int:
    """Return how many runs there are, up to `at_most`."""
    found, values = _found(which, before=None, at_most="at_most")
    query = f"SELECT count(*) FROM ({found} LIMIT :at_most) AS counted"
    return await connection.fetchval(query, tenant_id=tenant_id, **values, at_most=at_most)


def _found(which: ChangedRuns, *, before: tuple[datetime, str] | None, at_most: str) -> tuple[str, dict[str, Any]]:
    """Return the statement that finds ids with times of change, and its values.

    Of a thread all runs are read. Of an agent those that are open, which are few, and for each status of ended ones
    the first in the order of an index: however many there are, a page reads a few pages of it.
    """
    values: dict[str, Any] = {"agent_id": which.agent_id}
    if before is not None:
        values |= {"before_at": before[0], "before_id": before[1]}
    if which.since is not None:
        values["since"] = which.since
    if which.thread_id is not None:
        values["thread_id"] = which.thread_id
        statuses = sorted(which.statuses) or (*OPEN_RUNS, *_SHOWN_ENDS)
        parts = [_part("r.thread_id = :thread_id", f"r.status IN {sql_list(statuses)}")]
    else:
        ends = [status for status in _SHOWN_ENDS if not which.statuses or status in which.statuses]
        parts = [_ended_part(status, values, at_most) for status in ends]
        opened = sorted(which.statuses.difference(ENDED_RUNS))
        if opened or not which.statuses:
            parts.append(_part(IS_OPEN, *([f"r.status IN {sql_list(opened)}"] if opened else [])))
    bounds = _bounds("c.at", "c.id", values)
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    return f"SELECT c.id, c.at FROM ({' UNION ALL '.join(parts)}) c{where}", values


def _part(*conditions: str) -> str:
    return f"(SELECT r.id, {_CHANGED_AT} AS at FROM runs r WHERE {' AND '.join((_OF_AGENT, *conditions))})"


def _ended_part(status: str, values: Mapping[str, Any], at_most: str) -> str:
    conditions = (
        _OF_AGENT,
        f"r.status = '{status}'",
        "r.finished_at IS NOT NULL",
        *_bounds("r.finished_at", "r.id", values),
    )
    return (
        f"(SELECT r.id, r.finished_at AS at FROM runs r WHERE {' AND '.join(conditions)} "
        f"ORDER BY r.finished_at DESC, r.id DESC LIMIT :{at_most})"
    )


def _bounds(at: str, run_id: str, values: Mapping[str, Any]) -> list[str]:
    bounds = {
        "before_at": f"({at}, {run_id}) < (:before_at::timestamptz, :before_id::text)",
        "since": f"{at} >= :since::timestamptz",
    }
    return [bound for name, bound in bounds.items() if name in values]
