"""Feedback on runs: one row for each author, name and part of a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nova_workers.base.ids import id_at, new_id
from nova_workers.base.vocabulary import FeedbackSource, Rating
from nova_workers.contracts.http.feedback import FeedbackFigures, FeedbackGive, FeedbackView
from nova_workers.ledger.database import Connection

COUNTED: Final = 100_000
"""How many of the newest rows of an agent a report counts."""

_COLUMNS = (
    "f.id, f.run_id, f.step, f.thread_id, f.agent_id, f.agent_version, f.name, f.score, f.label, f.comment, f.source, "
    "f.author, f.key_id, f.created_at, f.updated_at"
)

# A renamed agent by its new id: rows of a run that has not moved yet need not move later.
_RUN = """
SELECT r.thread_id, COALESCE(a.renamed_to, r.agent_id) AS agent_id, r.agent_version, r.merged_into,
       r.started_at IS NOT NULL AS has_begun, COALESCE(t.steps, 0) AS steps
  FROM runs r
  JOIN threads h ON h.id = r.thread_id AND h.deleted_at IS NULL
  LEFT JOIN turns t ON t.run_id = r.id
  LEFT JOIN agents a ON a.tenant_id = r.tenant_id AND a.id = r.agent_id
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id
"""

# The limit is approximate: two concurrent inserts may both take the last free place. The conflict is with the author's
# own row; without a difference nothing is written, and no row is returned.
_GIVE = f"""
INSERT INTO feedback AS f (id, tenant_id, run_id, step, thread_id, agent_id, agent_version, name, score, label, comment,
                           source, author, key_id)
SELECT :feedback_id, :tenant_id, :run_id, :step::int, :thread_id, :agent_id, :agent_version::int, :name,
       :score::float8, :label::text, :comment::text, :source, :author, :key_id
 WHERE EXISTS (SELECT FROM feedback o
                WHERE o.run_id = :run_id AND o.name = :name AND o.key_id = :key_id AND o.author = :author
                  AND o.step IS NOT DISTINCT FROM :step::int)
    OR (SELECT count(*) FROM feedback o WHERE o.run_id = :run_id) < :at_most
    ON CONFLICT (run_id, name, key_id, author, step) DO UPDATE
   SET score = EXCLUDED.score, label = EXCLUDED.label, comment = EXCLUDED.comment, source = EXCLUDED.source,
       agent_version = EXCLUDED.agent_version, updated_at = now()
 WHERE (f.score, f.label, f.comment, f.source)
       IS DISTINCT FROM (EXCLUDED.score, EXCLUDED.label, EXCLUDED.comment, EXCLUDED.source)
RETURNING {_COLUMNS}
"""

_OWN = f"""
SELECT {_COLUMNS} FROM feedback f
 WHERE f.run_id = :run_id AND f.tenant_id = :tenant_id AND f.name = :name AND f.key_id = :key_id AND f.author = :author
   AND f.step IS NOT DISTINCT FROM :step::int
"""

_HAS_RUN = "SELECT EXISTS (SELECT FROM runs WHERE tenant_id = :tenant_id AND id = :run_id)"

_OF_RUN = f"""
SELECT {_COLUMNS} FROM feedback f
 WHERE f.tenant_id = :tenant_id AND f.run_id = :run_id AND (:before::text IS NULL OR f.id < :before)
 ORDER BY f.id DESC
 LIMIT :limit
"""

_SCORE = {"up": "f.score > 0", "down": "f.score < 0", None: "true"}
# One statement by agent and one for all, so that each is planned for the index that fits it.
_LIST = f"""
SELECT {_COLUMNS} FROM feedback f
 WHERE f.tenant_id = :tenant_id AND {{of_agent}} AND {{score}} AND f.id >= :first_id AND f.id < :end_id
   AND (:agent_version::int IS NULL OR f.agent_version = :agent_version)
   AND (:name::text IS NULL OR f.name = :name) AND (:source::text IS NULL OR f.source = :source)
 ORDER BY f.id DESC
 LIMIT :limit
"""
_LISTS: Final = {
    (of_agent, rating): _LIST.format(of_agent="f.agent_id = :agent_id" if of_agent else "true", score=score)
    for of_agent in (True, False)
    for rating, score in _SCORE.items()
}

_DELETE = """
DELETE FROM feedback
 WHERE tenant_id = :tenant_id AND id = :feedback_id AND (:key_id::text IS NULL OR key_id = :key_id)
RETURNING id
"""

# Of the newest of an agent, so that it costs no more with years of feedback.
_FIGURES = """
WITH counted AS MATERIALIZED (
    SELECT f.agent_version, f.name, f.score FROM feedback f
     WHERE f.tenant_id = :tenant_id AND f.agent_id = :agent_id AND f.id >= :first_id
     ORDER BY f.id DESC
     LIMIT :counted
)
SELECT agent_version, name, count(*)::int AS count, count(*) FILTER (WHERE score > 0)::int AS up,
       count(*) FILTER (WHERE score < 0)::int AS down, avg(score) AS mean_score
  FROM counted
 GROUP BY agent_version, name
 ORDER BY agent_version DESC NULLS LAST, name
 LIMIT 1000
"""


@dataclass(frozen=True, slots=True)
class RatedRun:
    """What feedback needs of its run.

    Attributes:
        merged_into: The run whose turn its message joined.
        has_begun: Whether a worker claimed it.
        steps: Committed so far.
    """

    thread_id: str
    agent_id: str
    agent_version: int | None
    merged_into: str | None
    has_begun: bool
    steps: int


@dataclass(frozen=True, slots=True)
class Giver:
    """Who gives feedback: a key, or the person of its session, and whom it speaks for."""

    tenant_id: str
    key_id: str
    source: FeedbackSource


@dataclass(frozen=True, slots=True)
class FeedbackFilter:
    """Which feedback; None does not filter.

    Attributes:
        since: Only what was first given at this time or later, exact to a millisecond.
        until: Only what was first given before this time.
    """

    agent_id: str | None = None
    agent_version: int | None = None
    name: str | None = None
    source: FeedbackSource | None = None
    rated: Rating | None = None
    since: datetime | None = None
    until: datetime | None = None


async def find_rated_run(connection: Connection, tenant_id: str, run_id: str) -> RatedRun | None:
    """Return a run of a thread that was not deleted."""
    row = await connection.fetchrow(_RUN, tenant_id=tenant_id, run_id=run_id)
    return None if row is None else RatedRun(**row)


async def has_run(connection: Connection, tenant_id: str, run_id: str) -> bool:
    """Return whether there is such a run."""
    return await connection.fetchval(_HAS_RUN, tenant_id=tenant_id, run_id=run_id)


async def put_feedback(
    connection: Connection, giver: Giver, run_id: str, run: RatedRun, given: FeedbackGive, *, at_most: int
) -> FeedbackView | None:
    """Add or replace the author's feedback. None if it is there already as given, or the run has `at_most`."""
    row = await connection.fetchrow(
        _GIVE,
        feedback_id=new_id("fbk"),
        tenant_id=giver.tenant_id,
        run_id=run_id,
        step=given.step,
        thread_id=run.thread_id,
        agent_id=run.agent_id,
        agent_version=run.agent_version,
        name=given.name,
        score=given.score,
        label=given.label,
        comment=given.comment,
        source=giver.source,
        author=given.author,
        key_id=giver.key_id,
        at_most=at_most,
    )
    return None if row is None else FeedbackView(**row)


async def find_own_feedback(
    connection: Connection, giver: Giver, run_id: str, given: FeedbackGive
) -> FeedbackView | None:
    """Return the author's earlier feedback with this name on this part of the run."""
    row = await connection.fetchrow(
        _OWN,
        tenant_id=giver.tenant_id,
        run_id=run_id,
        name=given.name,
        key_id=giver.key_id,
        author=given.author,
        step=given.step,
    )
    return None if row is None else FeedbackView(**row)


async def list_feedback_of_run(
    connection: Connection, tenant_id: str, run_id: str, *, before: str | None, limit: int
) -> list[FeedbackView]:
    """Return the feedback on a run, newest first."""
    rows = await connection.fetch(_OF_RUN, tenant_id=tenant_id, run_id=run_id, before=before, limit=limit)
    return [FeedbackView(**row) for row in rows]


async def list_feedback(
    connection: Connection, tenant_id: str, which: FeedbackFilter, *, before: str | None, limit: int
) -> list[FeedbackView]:
    """Return feedback, newest first, from before the one with the id `before`."""
    end_id = "fbk_~" if which.until is None else id_at("fbk", which.until)
    of_agent = {} if which.agent_id is None else {"agent_id": which.agent_id}
    rows = await connection.fetch(
        _LISTS[which.agent_id is not None, which.rated],
        tenant_id=tenant_id,
        **of_agent,
        agent_version=which.agent_version,
        name=which.name,
        source=which.source,
        first_id="" if which.since is None else id_at("fbk", which.since),
        end_id=end_id if before is None else min(before, end_id),
        limit=limit,
    )
    return [FeedbackView(**row) for row in rows]


async def delete_feedback(connection: Connection, tenant_id: str, feedback_id: str, *, of_key: str | None) -> bool:
    """Delete feedback, only of one key unless that is None. Return whether it was there."""
    row = await connection.fetchval(_DELETE, tenant_id=tenant_id, feedback_id=feedback_id, key_id=of_key)
    return row is not None


async def read_figures(
    connection: Connection, tenant_id: str, agent_id: str, *, since: datetime
) -> list[FeedbackFigures]:
    """Return counts and means by version and name, of the newest `COUNTED` rows that are not older than `since`."""
    rows = await connection.fetch(
        _FIGURES, tenant_id=tenant_id, agent_id=agent_id, first_id=id_at("fbk", since), counted=COUNTED
    )
    return [FeedbackFigures(**row) for row in rows]
