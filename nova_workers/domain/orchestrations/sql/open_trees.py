"""Open orchestrations: which there are, their end and continuation, and what their agents have used."""

from __future__ import annotations

from dataclasses import dataclass

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.orchestration import TreeSpending
from nova_workers.ledger.database import Connection

_CLOSE = "UPDATE orchestrations SET finished_at = now() WHERE id = :id AND finished_at IS NULL"
_REOPEN = """
UPDATE orchestrations
   SET finished_at = NULL, deadline_at = now() + (limits->>'time_budget_s')::float8 * interval '1 second'
 WHERE id = :id
"""
_OPEN = "SELECT id FROM orchestrations WHERE finished_at IS NULL AND id > :after ORDER BY id LIMIT :limit"

# Where the end is to be reported: the thread that the orchestration was started for, unless a run waits for the end.
_REPORT = """
SELECT o.report_thread_id AS thread_id, o.task,
       jsonb_strip_nulls(jsonb_build_object('channel', r.meta->'channel', 'to', r.meta->'to')) AS metadata
  FROM orchestrations o LEFT JOIN runs r ON r.id = o.source_run_id
 WHERE o.id = :id AND o.report_thread_id IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM run_waits w WHERE w.child_run_id = :master_run_id AND w.status = 'open')
"""

# Committed usage. A step counts once it is committed; the turns of one tree are a few hundred rows at most.
_SPENDING = """
SELECT COALESCE(sum(t.input_tokens + t.output_tokens + t.cache_read_tokens + t.cache_write_tokens), 0)::bigint
           AS tokens,
       COALESCE(sum(t.cost_usd), 0)::float8 AS cost_usd
  FROM orchestration_agents a JOIN turns t ON t.thread_id = a.thread_id
 WHERE a.orchestration_id = :orchestration_id AND t.id IS DISTINCT FROM :except_turn_id
"""

# The same, with what other runs of the tree have used since their last commit; and what they reserve for open calls.
_SHARED = f"""
SELECT spent.tokens + held.reserved_tokens - held.open_tokens AS tokens,
       spent.cost_usd + held.reserved_usd - held.open_usd AS cost_usd, held.open_tokens, held.open_usd
  FROM ({_SPENDING}) spent,
       (SELECT COALESCE(sum(t.reserved_tokens), 0)::bigint AS reserved_tokens,
               COALESCE(sum(t.reserved_usd), 0)::float8 AS reserved_usd,
               COALESCE(sum(LEAST(t.open_tokens, t.reserved_tokens)), 0)::bigint AS open_tokens,
               COALESCE(sum(LEAST(t.open_usd, t.reserved_usd)), 0)::float8 AS open_usd
          FROM orchestration_agents a
          JOIN runs r ON r.thread_id = a.thread_id AND r.status = 'running'
          JOIN turns t ON t.id = r.turn_id AND t.reserved_fence = r.fence AND t.reserved_usd IS NOT NULL
         WHERE a.orchestration_id = :orchestration_id AND r.id <> :except_run_id) held
"""


@dataclass(frozen=True, slots=True)
class Report:
    """The thread that gets a message about the end of an orchestration, and metadata for its run."""

    thread_id: str
    task: str
    metadata: JsonObject


async def find_report(connection: Connection, orchestration_id: str, *, master_run_id: str) -> Report | None:
    """Return where the end of an orchestration is to be reported. None: nowhere, or a run waits for it."""
    row = await connection.fetchrow(_REPORT, id=orchestration_id, master_run_id=master_run_id)
    return None if row is None else Report(**row)


async def close_tree(connection: Connection, orchestration_id: str, *, closed: bool = True) -> None:
    """Record that the master ended; or with `closed` false, that it continues, with a new time budget."""
    await connection.execute(_CLOSE if closed else _REOPEN, id=orchestration_id)


async def list_open(connection: Connection, *, after: str, limit: int) -> list[str]:
    """Return ids of orchestrations whose master has not ended, after `after`."""
    return [row["id"] for row in await connection.fetch(_OPEN, after=after, limit=limit)]


async def tree_spending(
    connection: Connection, orchestration_id: str, *, except_turn_id: str | None = None
) -> TreeSpending:
    """Return the committed spending of all agents of an orchestration."""
    row = await connection.fetchrow(_SPENDING, orchestration_id=orchestration_id, except_turn_id=except_turn_id)
    return TreeSpending(0, 0.0) if row is None else TreeSpending(row["tokens"], row["cost_usd"])


async def tree_shared(
    connection: Connection, orchestration_id: str, *, except_run_id: str
) -> tuple[TreeSpending, TreeSpending]:
    """Return the spending of an orchestration's agents, and the reservations of runs but one for open calls."""
    row = await connection.fetchrow(
        _SHARED, orchestration_id=orchestration_id, except_turn_id=None, except_run_id=except_run_id
    )
    if row is None:
        return TreeSpending(0, 0.0), TreeSpending(0, 0.0)
    return TreeSpending(row["tokens"], row["cost_usd"]), TreeSpending(row["open_tokens"], row["open_usd"])
