"""Lists of runs: by time through all of them, and by another value of the newest that match.

Both are bounded. A filter without an index looks at the newest `SEARCHED` runs that the filters with one select; a list
by time goes on from there with its next page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from nova_workers.base.vocabulary import RunSort, SortOrder
from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.runs.sql.filters import RunConditions, RunFilter, conditions_of
from nova_workers.domain.runs.sql.reads import view_of_runs, views
from nova_workers.ledger.database import Connection

SEARCHED: Final = 100_000
"""Through how many runs a request looks for those that match a filter without an index."""
SORTED: Final = 10_000
"""How many of the newest that match are sorted by another value than time."""

# Integers, which a cursor has exactly: nanodollars, tokens, microseconds. A run without the value is the last in either
# order. An open run has been running, or queued, until the time of the list, `began.at`.
_VALUES: Final[Mapping[RunSort, str]] = {
    "cost": "(u.cost_usd * 1000000000)::bigint",
    "tokens": "u.input_tokens::bigint + u.output_tokens",
    "duration": """CASE WHEN r.started_at IS NOT NULL
          THEN GREATEST(0, (date_part('epoch', LEAST(r.finished_at, began.at) - r.started_at)
                            * 1000000)::bigint) END""",
    "queue_time": """CASE WHEN r.started_at IS NOT NULL OR r.finished_at IS NULL
          THEN GREATEST(0, (date_part('epoch', LEAST(r.started_at, began.at) - GREATEST(r.created_at, r.start_at))
                            * 1000000)::bigint) END""",
}
_MISSING: Final[Mapping[SortOrder, int]] = {"desc": -1, "asc": 2**63 - 1}
_PAST: Final[Mapping[SortOrder, str]] = {"desc": "<", "asc": ">"}

_BY_ID = "(SELECT * FROM runs r WHERE r.tenant_id = :tenant_id AND r.id = ANY(:run_ids::text[]))"
_THESE = view_of_runs(_BY_ID)


class SortedKey(NamedTuple):
    """The place of a run in a sorted list.

    Attributes:
        newest: The newest run when the list was begun: its pages sort the same runs, whatever is submitted meanwhile.
        at_us: When that was, in microseconds of Unix time: what an open run has taken until then is its value.
        value: Its value, as an integer.
        run_id: Tells runs with one value apart.
    """

    newest: str
    at_us: int
    value: int
    run_id: str


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """A page of runs that match a filter.

    Attributes:
        runs: At most as many as were asked for.
        searched_to: Set if fewer were found, and older runs (with ``asc`` newer ones) were not looked at: the last
            run that was.
    """

    runs: Sequence[RunView]
    searched_to: str | None = None


@dataclass(frozen=True, slots=True)
class SortedRuns:
    """A page of a sorted list.

    Attributes:
        runs: The page.
        keys: The place of each.
        is_cut: Whether as many match as are sorted, or more.
        searched_to: As that of `FoundRuns`.
    """

    runs: Sequence[RunView]
    keys: Sequence[SortedKey]
    is_cut: bool
    searched_to: str | None = None


async def list_runs(
    connection: Connection,
    tenant_id: str,
    which: RunFilter,
    *,
    past: str | None,
    limit: int,
    order: SortOrder = "desc",
    media: bool = True,
) -> FoundRuns:
    """Return runs by the time of their submission, from past the run `past`. For `media`, see `list_thread_runs`."""
    conditions = conditions_of(which, before=past if order == "desc" else None, after=past if order == "asc" else None)
    page = f"(SELECT * FROM {_looked_at(conditions, order)} ORDER BY r.id {order} LIMIT :limit)"
    query = f"{view_of_runs(page)} ORDER BY r.id {order}"
    rows = await connection.fetch(query, tenant_id=tenant_id, **conditions.values, limit=limit, media=media)
    searched_to = None
    if conditions.scanned and len(rows) < limit:
        searched_to = await _searched_to(connection, tenant_id, conditions, order)
    return FoundRuns(views(rows), searched_to)


async def list_sorted_runs(
    connection: Connection,
    tenant_id: str,
    which: RunFilter,
    sort: RunSort,
    order: SortOrder,
    *,
    past: SortedKey | None,
    limit: int,
    media: bool = True,
) -> SortedRuns:
    """Return runs by a value of theirs, from past the place `past`, of the newest `SORTED` that match."""
    conditions = conditions_of(which)
    # The bound is a condition of the index, on what is looked at as on what is sorted.
    bound = replace(conditions, indexed=f"{conditions.indexed} AND r.id <= :newest")
    bounds = {} if past is None else {"newest": past.newest, "value": past.value, "run_id": past.run_id}
    query = f"""
WITH began AS (
    SELECT COALESCE('epoch'::timestamptz + :at_us::bigint * interval '1 microsecond', now()) AS at
), found AS MATERIALIZED (
    SELECT r.id, r.created_at, r.start_at, r.started_at, r.finished_at
      FROM {_looked_at(conditions if past is None else bound, "desc")}
     ORDER BY r.id DESC
     LIMIT {SORTED}
), valued AS (
    SELECT r.id, COALESCE({_VALUES[sort]}, {_MISSING[order]}) AS value
      FROM found r
     CROSS JOIN began
      LEFT JOIN usage u ON u.run_id = r.id
), page AS (
    SELECT id, value FROM valued
     WHERE {"true" if past is None else f"(value, id) {_PAST[order]} (:value::bigint, :run_id::text)"}
     ORDER BY value {order}, id {order}
     LIMIT :limit
)
SELECT p.id, p.value, f.newest, f.number,
       (SELECT (date_part('epoch', at) * 1000000)::bigint FROM began) AS at_us
  FROM (SELECT max(id) AS newest, count(*) AS number FROM found) f
  LEFT JOIN page p ON true
 ORDER BY p.value {order}, p.id {order}
"""
    at_us = None if past is None else past.at_us
    rows = await connection.fetch(query, tenant_id=tenant_id, **conditions.values, **bounds, at_us=at_us, limit=limit)
    is_cut = rows[0]["number"] >= SORTED
    newest, at_us = (rows[0]["newest"], rows[0]["at_us"]) if past is None else (past.newest, past.at_us)
    keys = [SortedKey(newest, at_us, row["value"], row["id"]) for row in rows if row["id"] is not None]
    shown = await connection.fetch(_THESE, tenant_id=tenant_id, run_ids=[key.run_id for key in keys], media=media)
    runs = {run.id: run for run in views(shown)}
    # A run that was purged in between is in neither.
    keys = [key for key in keys if key.run_id in runs]
    searched_to = None
    if conditions.scanned and not is_cut:
        searched_to = await _searched_to(connection, tenant_id, conditions, "desc")
    return SortedRuns([runs[key.run_id] for key in keys], keys, is_cut, searched_to)


def _looked_at(conditions: RunConditions, order: SortOrder) -> str:
    """Return the runs ``r`` that match, with their conditions, for a FROM."""
    if not conditions.scanned:
        return f"runs r WHERE {conditions.indexed}"
    # The outer limit stops the inner scan as soon as its page is full.
    looked_at = f"SELECT * FROM runs r WHERE {conditions.indexed} ORDER BY r.id {order} LIMIT {SEARCHED}"
    return f"({looked_at}) r WHERE {conditions.scanned}"


async def _searched_to(
    connection: Connection, tenant_id: str, conditions: RunConditions, order: SortOrder
) -> str | None:
    query = f"SELECT r.id FROM runs r WHERE {conditions.indexed} ORDER BY r.id {order} OFFSET {SEARCHED - 1} LIMIT 1"
    return await connection.fetchval(query, tenant_id=tenant_id, **conditions.indexed_values)
