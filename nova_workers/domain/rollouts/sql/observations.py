"""What the runs of both versions of a rollout left: values for its guardrails, and figures for people."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, get_args

from nova_workers.base.ids import id_at
from nova_workers.base.vocabulary import GuardrailMeasure
from nova_workers.contracts.http.rollouts import RolloutView, VersionFigures
from nova_workers.ledger.database import Connection

MOST_COUNTED: Final = 5_000
"""How many of the newest runs of a version figures for people count."""
MOST_OF_THREAD: Final = 3
"""How many runs of a thread guardrails count: those of one conversation are not independent."""

# Turns of one version that took part, with what is known of each: a turn that ended otherwise says nothing about the
# version. The duration is without what its run waited.
_TURNS = """
SELECT u.id, u.thread_id, u.completed_at AS at, CASE WHEN u.status = 'failed' THEN 1 ELSE 0 END::float8 AS failure,
       u.cost_usd::float8 AS cost, s.duration_ms / 1000.0::float8 AS latency
  FROM turns u LEFT JOIN usage s ON s.turn_id = u.id
 WHERE u.rollout_id = :rollout_id AND u.agent_version = :version AND u.tenant_id = :tenant_id
   AND u.status IN ('succeeded', 'failed')
"""
# A run that several people rated is one value.
_SCORES = """
SELECT min(f.id) AS id, f.thread_id, min(f.created_at) AS at, avg(f.score) AS feedback
  FROM feedback f JOIN turns u ON u.run_id = f.run_id
 WHERE f.tenant_id = :tenant_id AND f.agent_id = :agent_id AND f.id >= :first_id AND f.agent_version = :version
   AND u.rollout_id = :rollout_id AND f.score IS NOT NULL
 GROUP BY f.run_id, f.thread_id
"""
# Live runs that were sampled and judged, by either version.
_JUDGED = """
SELECT u.id, u.thread_id, s.judged_at AS at, s.score AS judge
  FROM turns u JOIN run_samples s ON s.run_id = u.run_id
 WHERE u.rollout_id = :rollout_id AND u.agent_version = :version AND u.tenant_id = :tenant_id AND s.score IS NOT NULL
"""
_COUNTED = f"""
SELECT * FROM (SELECT o.*, row_number() OVER (PARTITION BY o.thread_id ORDER BY o.id) AS place FROM ({{source}}) o) x
 WHERE x.place <= {MOST_OF_THREAD}
"""

_FIGURES = f"""
WITH newest AS MATERIALIZED (
    {_TURNS} ORDER BY u.id DESC LIMIT :most
), scores AS MATERIALIZED (
    {_SCORES} LIMIT :most
)
SELECT :version::int AS version, c.*, r.*
  FROM (SELECT count(*)::int AS runs, COALESCE(sum(failure), 0)::int AS failed, avg(cost) AS mean_cost_usd,
               avg(latency) AS mean_latency_s
          FROM newest) c,
       (SELECT count(*)::int AS rated, avg(feedback) AS mean_score FROM scores) r
"""

# By the place of its period. Scores of a period may be of runs that ended in an earlier one.
_PLACE = "floor(extract(epoch FROM at - :since::timestamptz) / :length_s::float8)::int AS place"
_PERIODS = f"""
WITH newest AS MATERIALIZED (
    {_TURNS} ORDER BY u.id DESC LIMIT :most
), scores AS MATERIALIZED (
    {_SCORES} LIMIT :most
), ended AS (
    SELECT {_PLACE}, count(*)::int AS runs, sum(failure)::int AS failed, avg(cost) AS mean_cost_usd,
           avg(latency) AS mean_latency_s
      FROM newest GROUP BY place
), rated AS (
    SELECT {_PLACE}, count(*)::int AS rated, avg(feedback) AS mean_score FROM scores GROUP BY place
)
SELECT place, :version::int AS version, COALESCE(e.runs, 0) AS runs, COALESCE(e.failed, 0) AS failed, e.mean_cost_usd,
       e.mean_latency_s, COALESCE(r.rated, 0) AS rated, r.mean_score
  FROM ended e FULL JOIN rated r USING (place)
"""

_COUNT = f"""
SELECT c.*, r.*, j.*
  FROM (SELECT count(*)::int AS failure, count(cost)::int AS cost, count(latency)::int AS latency
          FROM ({_COUNTED.format(source=_TURNS)}) t) c,
       (SELECT count(*)::int AS feedback FROM ({_COUNTED.format(source=_SCORES)}) s) r,
       (SELECT count(*)::int AS judge FROM ({_COUNTED.format(source=_JUDGED)}) s) j
"""

_FIRST = """
SELECT v.at, v.{measure} AS value FROM ({counted}) v
 WHERE v.{measure} IS NOT NULL
 ORDER BY v.at, v.id
 LIMIT :limit
"""
# A part of the version's turns is enough: the newest, of which few are beyond what counts of their thread.
_NEWEST_BEFORE = """
SELECT v.at, v.{measure} AS value FROM ({counted}) v
 WHERE v.{measure} IS NOT NULL AND v.at <= :until
 ORDER BY v.id DESC
 LIMIT :limit
"""
_NEWEST_TURNS = f"{_TURNS} AND u.completed_at <= :until ORDER BY u.id DESC LIMIT 4 * :limit::bigint"
_MEASURES: Final[tuple[GuardrailMeasure, ...]] = get_args(GuardrailMeasure)
_SOURCES: Final[dict[GuardrailMeasure, str]] = {"feedback": _SCORES, "judge": _JUDGED}
"""What the values of a measure are read from, if not from the turns."""
_FIRST_VALUES: Final = {
    measure: _FIRST.format(measure=measure, counted=_COUNTED.format(source=_SOURCES.get(measure, _TURNS)))
    for measure in _MEASURES
}
_VALUES_BEFORE: Final = {
    measure: _NEWEST_BEFORE.format(
        measure=measure, counted=_COUNTED.format(source=_SOURCES.get(measure, _NEWEST_TURNS))
    )
    for measure in _MEASURES
}


async def read_figures(connection: Connection, tenant_id: str, rollout: RolloutView, version: int) -> VersionFigures:
    """Return the figures of one version, of its newest `MOST_COUNTED` runs in a rollout."""
    row = await connection.fetchrow(_FIGURES, **_of(tenant_id, rollout, version, "feedback"), most=MOST_COUNTED)
    assert row is not None  # noqa: S101 - aggregates have one row
    return VersionFigures(**row)


async def read_periods(
    connection: Connection, tenant_id: str, rollout: RolloutView, version: int, *, since: datetime, length: timedelta
) -> dict[int, VersionFigures]:
    """Return the figures of the same runs by period, of those in which there are any: the first begins at `since`."""
    rows = await connection.fetch(
        _PERIODS,
        **_of(tenant_id, rollout, version, "feedback"),
        most=MOST_COUNTED,
        since=since,
        length_s=length.total_seconds(),
    )
    return {row["place"]: VersionFigures(**{name: row[name] for name in VersionFigures.model_fields}) for row in rows}


async def count_values(connection: Connection, tenant_id: str, rollout: RolloutView) -> dict[GuardrailMeasure, int]:
    """Return how many values of each measure the candidate has, at most `MOST_OF_THREAD` of a thread."""
    row = await connection.fetchrow(_COUNT, **_of(tenant_id, rollout, rollout.version, "feedback"))
    assert row is not None  # noqa: S101 - aggregates have one row
    return {measure: row[measure] for measure in _MEASURES}


async def first_values(
    connection: Connection, tenant_id: str, rollout: RolloutView, measure: GuardrailMeasure, *, limit: int
) -> tuple[list[float], datetime | None]:
    """Return the candidate's first values, and when the last of these came."""
    rows = await connection.fetch(
        _FIRST_VALUES[measure], **_of(tenant_id, rollout, rollout.version, measure), limit=limit
    )
    return [row["value"] for row in rows], rows[-1]["at"] if rows else None


async def values_before(
    connection: Connection,
    tenant_id: str,
    rollout: RolloutView,
    measure: GuardrailMeasure,
    *,
    until: datetime,
    limit: int,
) -> list[float]:
    """Return the newest values of the current version that had come by a time, oldest first."""
    rows = await connection.fetch(
        _VALUES_BEFORE[measure],
        **_of(tenant_id, rollout, rollout.baseline_version, measure),
        until=until,
        limit=limit,
    )
    return [row["value"] for row in reversed(rows)]


def _of(tenant_id: str, rollout: RolloutView, version: int, measure: GuardrailMeasure) -> dict[str, object]:
    of_turns: dict[str, object] = {"tenant_id": tenant_id, "rollout_id": rollout.id, "version": version}
    if measure != "feedback":
        return of_turns
    return {**of_turns, "agent_id": rollout.agent_id, "first_id": id_at("fbk", rollout.created_at)}
