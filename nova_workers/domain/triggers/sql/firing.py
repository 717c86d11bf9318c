"""Records the outcomes of trigger occurrences, and begins their runs, each exactly once.

A trigger's row is locked (`due`) while its occurrences are handled, and one transaction writes all results: the outcome
of each occurrence, the runs, and the next occurrence. A crash before the commit leaves the trigger due; another
process finds it moved. The unique index on an occurrence's row is the second guard.

Lock order: triggers, then threads by id, then runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime

from nova_workers.contracts.http.triggers import FiringOutcome, SkipReason
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.orchestrations.sql.changes import changed_now
from nova_workers.domain.orchestrations.sql.spawning import NewTree, insert_tree
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_runs, insert_threads
from nova_workers.ledger.work import UnitOfWork

_SKIP_QUEUED = """
UPDATE trigger_firings SET outcome = 'skipped', skip_reason = :skip_reason, detail = :detail
 WHERE trigger_id = :trigger_id AND outcome = 'queued'
"""

_LOCK_THREADS = (
    "SELECT id FROM threads WHERE id = ANY(:thread_ids::text[]) AND deleted_at IS NULL ORDER BY id FOR UPDATE"
)

_RUNS = insert_runs(
    "firing f LEFT JOIN lines l ON l.id = f.thread_id",
    id="f.run_id",
    tenant_id="f.tenant_id",
    thread_id="f.thread_id",
    agent_id="COALESCE(l.agent_id, f.agent_id)",
    seq="""CASE WHEN f.new_thread THEN 1
            ELSE l.first_seq + row_number() OVER (PARTITION BY f.thread_id ORDER BY f.place) - 1 END""",
    content="jsonb_build_array(jsonb_build_object('type', 'text', 'text', f.prompt))",
    queue="'background'",
    source="'trigger'",
    meta="""jsonb_build_object('trigger_id', f.trigger_id, 'scheduled_for', to_char(
                f.scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))""",
    trigger_id="f.trigger_id",
)


# Two ways to record occurrences: new rows, or outcomes of queued ones. An occurrence that has a row already fires
# nothing.
_NEW_ROWS = """
    INSERT INTO trigger_firings (id, tenant_id, trigger_id, scheduled_for, outcome, run_id, skip_reason, detail, manual)
    SELECT g.id, t.tenant_id, g.trigger_id, g.scheduled_for, g.outcome, g.run_id, g.skip_reason, g.detail, g.manual
      FROM given g JOIN triggers t ON t.id = g.trigger_id
    ON CONFLICT (trigger_id, scheduled_for) DO NOTHING
    RETURNING id, tenant_id
"""
_QUEUED_ROWS = """
    UPDATE trigger_firings f
       SET outcome = g.outcome, run_id = g.run_id, skip_reason = g.skip_reason, detail = g.detail, fired_at = now()
      FROM given g
     WHERE f.id = g.id AND f.outcome = 'queued'
    RETURNING f.id, f.tenant_id
"""


def _writing(rows: str) -> str:
    """Return the statement that writes a batch of firings with their threads and runs."""
    return f"""
WITH given AS (
    SELECT *
      FROM unnest(:id::text[], :trigger_id::text[], :scheduled_for::timestamptz[], :outcome::text[], :run_id::text[],
                  :thread_id::text[], :new_thread::boolean[], :skip_reason::text[], :detail::text[], :manual::boolean[])
           WITH ORDINALITY
        AS g (id, trigger_id, scheduled_for, outcome, run_id, thread_id, new_thread, skip_reason, detail, manual, place)
), kept AS ({rows}), firing AS MATERIALIZED (
    SELECT g.*, k.tenant_id, t.agent_id, t.prompt
      FROM given g JOIN kept k ON k.id = g.id JOIN triggers t ON t.id = g.trigger_id
     WHERE g.thread_id IS NOT NULL
), made AS (
    {insert_threads("firing WHERE new_thread", id="thread_id", agent_id="agent_id", origin="'trigger'")}
), lines AS (
    UPDATE threads t
       SET next_seq = t.next_seq + f.runs, updated_at = now()
      FROM (SELECT thread_id, count(*) AS runs FROM firing WHERE NOT new_thread GROUP BY thread_id) f
     WHERE t.id = f.thread_id
    RETURNING t.id, t.agent_id, t.next_seq - f.runs AS first_seq
)
{_RUNS}
"""


_INSERT = _writing(_NEW_ROWS)
_BEGIN = _writing(_QUEUED_ROWS)

# Occurrences that were recorded with their run, and not before by another process.
_RECORDED = """
SELECT id, to_char(scheduled_for AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS scheduled_for
  FROM trigger_firings WHERE id = ANY(:ids::text[]) AND run_id = ANY(:run_ids::text[])
"""

_MOVE = """
UPDATE triggers t
   SET next_slot_at = g.next_slot_at, next_fire_at = g.next_fire_at, enabled = t.enabled AND NOT g.over,
       paused_reason = COALESCE(g.paused_reason, t.paused_reason), gate_seen = COALESCE(g.gate_seen, t.gate_seen)
  FROM unnest(:trigger_id::text[], :next_slot_at::timestamptz[], :next_fire_at::timestamptz[], :over::boolean[],
              :paused_reason::text[], :gate_seen::text[])
    AS g (id, next_slot_at, next_fire_at, over, paused_reason, gate_seen)
 WHERE t.id = g.id
"""

_POSTPONE = (
    "UPDATE triggers SET next_fire_at = now() + interval '5 minutes' WHERE id = :trigger_id AND next_fire_at <= now()"
)


@dataclass(frozen=True, slots=True)
class NewFiring:
    """The outcome of one occurrence. With a `run_id` a run begins, in `thread_id`.

    Without a thread the run is that of an orchestration's master (`trees`).
    """

    id: str
    trigger_id: str
    scheduled_for: datetime
    outcome: FiringOutcome
    run_id: str | None = None
    thread_id: str | None = None
    new_thread: bool = False
    skip_reason: SkipReason | None = None
    detail: str | None = None
    manual: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """The state of a trigger after its occurrences were handled.

    Attributes:
        over: It has no more occurrences and is disabled.
        paused_reason: Why it no longer fires; None changes nothing.
        gate_seen: What its gate saw; None changes nothing.
    """

    trigger_id: str
    next_slot_at: datetime | None
    next_fire_at: datetime | None
    over: bool = False
    paused_reason: str | None = None
    gate_seen: str | None = None


async def skip_queued(connection: Connection, trigger_id: str, reason: SkipReason, detail: str) -> None:
    """Skip all queued occurrences of a locked trigger."""
    await connection.execute(_SKIP_QUEUED, trigger_id=trigger_id, skip_reason=reason, detail=detail)


async def lock_threads(connection: Connection, thread_ids: Sequence[str]) -> frozenset[str]:
    """Lock threads in the order of their ids, and return those that exist."""
    return frozenset(row["id"] for row in await connection.fetch(_LOCK_THREADS, thread_ids=sorted(set(thread_ids))))


async def insert_firings(tx: UnitOfWork, firings: Sequence[NewFiring], trees: Mapping[str, NewTree]) -> int:
    """Record new occurrences of locked triggers, and begin their runs and orchestrations.

    Args:
        tx: Rings for the runs, and announces the orchestrations.
        firings: The occurrences.
        trees: The orchestrations to start, by trigger.

    Returns:
        How many runs were queued.
    """
    return await _write(tx, _INSERT, firings, trees)


async def begin_queued(tx: UnitOfWork, firings: Sequence[NewFiring], trees: Mapping[str, NewTree]) -> int:
    """Record outcomes of queued occurrences, and begin their runs and orchestrations, as `insert_firings` does."""
    return await _write(tx, _BEGIN, firings, trees)


async def _write(tx: UnitOfWork, statement: str, firings: Sequence[NewFiring], trees: Mapping[str, NewTree]) -> int:
    connection = tx.connection
    rows = await connection.fetch(statement, **_columns(NewFiring, firings))
    bells = [Doorbell(row["id"], row["thread_id"], row["queue"]) for row in rows]
    starting = {each.id: each for each in firings if each.run_id is not None and each.thread_id is None}
    run_ids = [each.run_id for each in starting.values()]
    for row in await connection.fetch(_RECORDED, ids=list(starting), run_ids=run_ids) if starting else ():
        firing = starting[row["id"]]
        metadata = {"trigger_id": firing.trigger_id, "scheduled_for": row["scheduled_for"]}
        tree = replace(trees[firing.trigger_id], trigger_id=firing.trigger_id, metadata=metadata)
        inserted = await insert_tree(connection, tree, run_id=str(firing.run_id))
        if inserted is not None:
            orchestration_id, _, bell = inserted
            bells += [bell] if bell is not None else []
            tx.announce(await changed_now(connection, orchestration_id))
    tx.ring(bells)
    return len(bells)


async def move_triggers(connection: Connection, moves: Sequence[Move]) -> None:
    """Store the new state of locked triggers."""
    await connection.execute(_MOVE, **_columns(Move, moves))


async def postpone(connection: Connection, trigger_id: str) -> None:
    """Postpone a trigger that cannot be handled, so that it does not block others."""
    await connection.execute(_POSTPONE, trigger_id=trigger_id)


def _columns(kind: type[NewFiring] | type[Move], rows: Sequence[NewFiring | Move]) -> dict[str, list[object]]:
    return {column.name: [getattr(row, column.name) for row in rows] for column in fields(kind)}
