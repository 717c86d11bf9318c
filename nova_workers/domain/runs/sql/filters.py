"""Which runs a list or a bulk cancellation is about, as conditions of SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from nova_workers.base.ids import id_at
from nova_workers.base.vocabulary import ENDED_RUNS, OPEN_RUNS, Rating, sql_list
from nova_workers.contracts.http.wire import RunStatus
from nova_workers.contracts.queue_positions import MOST_COUNTED_BEFORE

IS_OPEN = f"r.status IN {sql_list(OPEN_RUNS)}"
"""The condition in the words of the partial index of open runs."""

QUEUE_ORDER = "(r.attempt > 0) DESC, r.front DESC, r.seq"
"""The order of a thread's queue, and of its index: a run that has begun, then those sent to the front."""

POSITION = f"""
(SELECT count(*)::int
   FROM (SELECT FROM runs o
          WHERE o.thread_id = r.thread_id AND o.status = 'queued'
            AND (o.attempt = 0, NOT o.front, o.seq) < (r.attempt = 0, NOT r.front, r.seq)
          LIMIT {MOST_COUNTED_BEFORE}) earlier)
"""
"""How many queued runs of its thread go before the run `r`, in that order, counted up to the limit."""

IS_RUNNING = "r.lease_expires_at IS NOT NULL"
"""That a run which is found by its id is running: it has a lease (a constraint of the table). Said by its status, it
would be in the words of partial indexes of running runs. These are small when a plan is made, which then reads all of
such an index to find one run: every running run, and those that ended since the last vacuum."""

_SIGNS: Final[Mapping[Rating, int]] = {"up": 1, "down": -1}
_LIKE = re.compile(r"[\\%_]")
_INDEXED = {
    "before": "r.id < :before",
    "after": "r.id > :after",
    "thread_id": "r.thread_id = :thread_id",
    "agent_id": "r.agent_id = :agent_id",
    "trigger_id": "r.trigger_id = :trigger_id",
    "parent_run_id": "r.parent_run_id = :parent_run_id",
    "first_id": "r.id >= :first_id",
    "end_id": "r.id < :end_id",
    "run_ids": "r.id = ANY(:run_ids::text[])",
}
_SCANNED = {
    "agent_version": "r.agent_version = :agent_version",
    "queue": "r.queue = :queue",
    "source": "r.source = :source",
    "channel": "r.meta ->> 'channel' = :channel",
    "tag": "r.meta -> 'tags' ? :tag",
    "metadata": """NOT EXISTS (SELECT FROM jsonb_each_text(:metadata::jsonb) AS wanted
                              WHERE (r.meta ->> wanted.key) IS DISTINCT FROM wanted.value)""",
    # By the key of the table for each run: a join would be planned as one over all usage.
    "min_cost_usd": "(SELECT u.cost_usd FROM usage u WHERE u.run_id = r.id) >= :min_cost_usd::float8::numeric",
    # By the index of the table that begins with the run.
    "rated": "EXISTS (SELECT FROM feedback f WHERE f.run_id = r.id AND sign(f.score) = :rated::float8)",
    "tool": """EXISTS (SELECT FROM turns t JOIN tool_calls c ON c.turn_id = t.id
                         WHERE t.run_id = r.id AND c.tool_name = :tool)""",
    "text": """(r.error_message ILIKE :text OR r.result_text ILIKE :text
                OR EXISTS (SELECT FROM jsonb_array_elements(r.content) AS part (block)
                            WHERE part.block ->> 'text' ILIKE :text))""",
}
"""Conditions without an index: each run that the others select is looked at."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs; None does not filter."""

    thread_id: str | None = None
    agent_id: str | None = None
    agent_version: int | None = None
    """Executed by this version of their agent."""
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
    source: str | None = None
    channel: str | None = None
    """The `channel` in their metadata."""
    tag: str | None = None
    """A word among the `tags` of their metadata."""
    metadata: Mapping[str, str] | None = None
    """Entries of their metadata, with numbers and booleans as JSON writes them."""
    min_cost_usd: float | None = None
    rated: Rating | None = None
    """Feedback has a score above 0, or below."""
    tool: str | None = None
    """A tool that they called, as the ledger names it."""
    text: str | None = None
    """A part of the message, the answer or the error, in any case."""
    evaluations: bool = True
    """Whether those of evaluations are among them, of which there may be thousands."""


@dataclass(frozen=True, slots=True)
class RunConditions:
    """The conditions of a filter on runs ``r``, and their values.

    Attributes:
        indexed: Those that an index serves, with the tenant's as ``:tenant_id``.
        indexed_values: Their values, by name; without the tenant's.
        scanned: All others; empty if there are none.
        scanned_values: Their values.
    """

    indexed: str
    indexed_values: dict[str, Any]
    scanned: str
    scanned_values: dict[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """All values, by name."""
        return self.indexed_values | self.scanned_values

    @property
    def all(self) -> str:
        """All conditions."""
        return f"{self.indexed} AND {self.scanned}" if self.scanned else self.indexed


def conditions_of(which: RunFilter, *, before: str | None = None, after: str | None = None) -> RunConditions:
    """Return the conditions of a filter.

    Args:
        which: The filter.
        before: Only runs before this one.
        after: Only runs after this one.
    """
    given = {
        "before": before,
        "after": after,
        "thread_id": which.thread_id,
        "agent_id": which.agent_id,
        "agent_version": which.agent_version,
        "queue": which.queue,
        "source": which.source,
        "channel": which.channel,
        "tag": which.tag,
        "metadata": dict(which.metadata) if which.metadata else None,
        "min_cost_usd": which.min_cost_usd,
        "rated": None if which.rated is None else _SIGNS[which.rated],
        "tool": which.tool,
        "text": None if which.text is None else _containing(which.text),
        "trigger_id": which.trigger_id,
        "parent_run_id": which.parent_run_id,
        "first_id": None if which.since is None else id_at("run", which.since),
        "end_id": None if which.until is None else id_at("run", which.until),
        "run_ids": None if which.run_ids is None else list(which.run_ids),
    }
    indexed = {name: given[name] for name in _INDEXED if given[name] is not None}
    scanned = {name: given[name] for name in _SCANNED if given[name] is not None}
    conditions = ["r.tenant_id = :tenant_id", *(_INDEXED[name] for name in indexed)]
    if which.statuses:
        # Spelt out: the planner uses the partial indexes of open and of failed runs only if it sees the values.
        conditions.append(f"r.status IN {sql_list(sorted(which.statuses))}")
    if not which.evaluations:
        conditions.append("r.source <> 'evaluation'")
    if which.statuses and which.statuses.isdisjoint(ENDED_RUNS):
        conditions.append(IS_OPEN)
    return RunConditions(" AND ".join(conditions), indexed, " AND ".join(_SCANNED[name] for name in scanned), scanned)


def _containing(text: str) -> str:
    """Return the pattern of ILIKE for texts with this one in them."""
    escaped = _LIKE.sub(r"\\\g<0>", text)
    return f"%{escaped}%"
