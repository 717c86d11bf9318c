"""Activity over time, bucket by bucket.

Each bucket is a range of three covering indexes, read without the tables: runs by id, which begins with the time of the
submission, ended runs by their end, and usage by its time. So the cost is that of the runs in the period: about 1 ms
for 1,000 of them, however many there are besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from nova_workers.base.ids import id_at
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.http.overview.activity import MAX_GROUPS, ActivityBucket, ActivityGrouping, Spread
from nova_workers.ledger.database import Connection, Row

Period = tuple[datetime, datetime]
"""A bucket's begin, and its end, exclusive."""

_ALL: Final = ("NULL::text", "")
_RUN_GROUPS: Final = {None: _ALL, "agent": ("r.agent_id", "GROUP BY r.agent_id")}
_USAGE_GROUPS: Final = {
    None: _ALL,
    "agent": ("u.agent_id", "GROUP BY u.agent_id"),
    "model": ("u.model", "GROUP BY u.model"),
}
_MOST = f"ORDER BY count(*) DESC LIMIT {MAX_GROUPS}"

_ACCEPTED = f"""
SELECT b.n, x.*
  FROM unnest(:first_ids::text[], :end_ids::text[]) WITH ORDINALITY b(first_id, end_id, n)
 CROSS JOIN LATERAL (
        SELECT {{key}} AS key, count(*)::int AS accepted
          FROM runs r
         WHERE r.tenant_id = :tenant_id AND r.id >= b.first_id AND r.id < b.end_id
         {{group}} {_MOST}) x
"""

_COUNTS = ", ".join(f"count(*) FILTER (WHERE r.status = '{status}')::int AS {status}" for status in ENDED_RUNS)

# Numbers of seconds are sorted three times as fast as intervals.
_ENDED = f"""
SELECT b.n, x.*
  FROM unnest(:begins::timestamptz[], :ends::timestamptz[]) WITH ORDINALITY b(since, until, n)
 CROSS JOIN LATERAL (
        SELECT {{key}} AS key, {_COUNTS},
               percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY
                   date_part('epoch', r.started_at) - date_part('epoch', GREATEST(r.created_at, r.start_at))) AS wait_s,
               percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY
                   date_part('epoch', r.finished_at) - date_part('epoch', r.started_at)) AS duration_s
          FROM runs r
         WHERE r.tenant_id = :tenant_id AND r.finished_at >= b.since AND r.finished_at < b.until
         {{group}} {_MOST}) x
"""

_USED = f"""
SELECT b.n, x.*
  FROM unnest(:begins::timestamptz[], :ends::timestamptz[]) WITH ORDINALITY b(since, until, n)
 CROSS JOIN LATERAL (
        SELECT {{key}} AS key, COALESCE(sum(u.model_calls), 0)::bigint AS model_calls,
               COALESCE(sum(u.input_tokens), 0)::bigint AS input_tokens,
               COALESCE(sum(u.output_tokens), 0)::bigint AS output_tokens,
               COALESCE(sum(u.cache_read_tokens), 0)::bigint AS cache_read_tokens,
               COALESCE(sum(u.cache_write_tokens), 0)::bigint AS cache_write_tokens,
               sum(u.cost_usd::float8) AS cost_usd{{durations}}
          FROM usage u
         WHERE u.tenant_id = :tenant_id AND u.created_at >= b.since AND u.created_at < b.until
         {{group}} {_MOST}) x
"""
_DURATIONS = """,
               percentile_disc(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY u.duration_ms / 1000.0::float8)
                   FILTER (WHERE u.run_id IS NOT NULL) AS duration_s"""

# A statement for each grouping, so that the text of each is one of a few.
_STATEMENTS: Final[dict[ActivityGrouping | None, tuple[str, ...]]] = {
    grouping: (
        *(sql.format(key=key, group=group) for key, group in [_RUN_GROUPS[grouping]] for sql in (_ACCEPTED, _ENDED)),
        _USED.format(key=_USAGE_GROUPS[grouping][0], group=_USAGE_GROUPS[grouping][1], durations=""),
    )
    for grouping in (None, "agent")
}
_STATEMENTS["model"] = (_USED.format(key="u.model", group="GROUP BY u.model", durations=_DURATIONS),)


async def load_activity(
    connection: Connection, tenant_id: str, periods: Sequence[Period], group_by: ActivityGrouping | None
) -> dict[Period, tuple[ActivityBucket, ...]]:
    """Return the buckets of each period: one, or with a grouping one for each agent or model that was active."""
    values: dict[str, Any] = {
        "first_ids": [id_at("run", since) for since, _ in periods],
        "end_ids": [id_at("run", until) for _, until in periods],
        "begins": [since for since, _ in periods],
        "ends": [until for _, until in periods],
    }
    found: dict[tuple[int, str | None], dict[str, Any]] = {}
    for statement in _STATEMENTS[group_by]:
        given = {name: value for name, value in values.items() if f":{name}" in statement}
        for row in await connection.fetch(statement, tenant_id=tenant_id, **given):
            found.setdefault((row["n"] - 1, row["key"]), {}).update(_columns(row))
    buckets: dict[Period, tuple[ActivityBucket, ...]] = dict.fromkeys(periods, ())
    none_known = {} if group_by == "model" else {"accepted": 0, "ended": dict.fromkeys(ENDED_RUNS, 0)}
    for (at, key), columns in sorted(found.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        since, until = periods[at]
        bucket = ActivityBucket.model_validate({"since": since, "until": until, "key": key} | none_known | columns)
        buckets[periods[at]] += (bucket,)
    return buckets


def _columns(row: Row) -> dict[str, Any]:
    columns = {name: value for name, value in row.items() if name not in {"n", "key", *ENDED_RUNS}}
    if "succeeded" in row:
        columns["ended"] = {status: row[status] for status in ENDED_RUNS}
    for name in ("wait_s", "duration_s"):
        if name in columns:
            columns[name] = _spread(columns[name])
    return columns


def _spread(percentiles: list[float | None] | None) -> Spread | None:
    # Without a value there is no array, or one of nulls. Clocks of an import may contradict each other.
    known = [max(value, 0.0) for value in percentiles or () if value is not None]
    return Spread(p50=known[0], p95=known[1]) if known else None
