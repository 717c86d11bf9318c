"""Statements of the search backfill: a tenant's ended runs in order, and whether effects of live runs are late.

Each ended run has one usage row, which is never deleted and is indexed by tenant and time. So the walk continues from
its last position without reading messages again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from nova_workers.base.vocabulary import EFFECT_KINDS, OPEN_EFFECTS, sql_list
from nova_workers.ledger.database import Connection

# Runs that did not succeed are skipped, since the effect does not cover them. A run of a purged thread has only its
# usage row left.
ENDED = """
SELECT u.id, u.created_at, u.run_id, u.thread_id, COALESCE(r.status = 'succeeded', false) AS covered
  FROM (SELECT id, created_at, run_id, thread_id
          FROM usage
         WHERE tenant_id = :tenant_id AND created_at >= COALESCE(:passed_at::timestamptz, '-infinity')
           AND (:passed_at::timestamptz IS NULL OR (created_at, id) > (:passed_at, :passed_id::text))
           AND created_at < now() - :settled::interval
         ORDER BY created_at, id
         LIMIT :limit) u
  LEFT JOIN runs r ON r.id = u.run_id AND r.tenant_id = :tenant_id
 ORDER BY u.created_at, u.id
"""

# The turns of a thread that took place elsewhere, from the one that was passed. No row: the thread was deleted.
_IMPORTED = """
SELECT array(SELECT u.id FROM turns u
              WHERE u.thread_id = t.id AND u.run_id IS NULL AND u.type = 'normal'
                AND u.depth > COALESCE((SELECT p.depth FROM turns p WHERE p.id = :passed_id::text), -1)
              ORDER BY u.depth
              LIMIT :limit) AS turn_ids
  FROM threads t
 WHERE t.tenant_id = :tenant_id AND t.id = :thread_id AND t.deleted_at IS NULL
"""


# Deletes a message's vectors of other models only after it has one of this model.
def _drop_others(turns: str) -> str:
    return f"""
DELETE FROM embeddings e
 USING turns t, messages m
 WHERE {turns} AND t.tenant_id = :tenant_id
   AND m.turn_id = t.id AND e.message_id = m.id AND e.model <> :model
   AND EXISTS (SELECT FROM embeddings made WHERE made.message_id = e.message_id AND made.model = :model)
"""


_DROP_OTHERS = _drop_others("t.run_id = ANY(:run_ids::text[])")
_DROP_OTHERS_OF_TURNS = _drop_others("t.id = ANY(:turn_ids::text[])")

# Effects that have been due for longer than a doorbell takes.
_WAITS = f"""
SELECT EXISTS (SELECT FROM effects
                WHERE kind IN {sql_list(EFFECT_KINDS)} AND status IN {sql_list(OPEN_EFFECTS)}
                  AND due_at <= now() - :patience::interval)
"""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended, a compaction, or a judgement of models: a row of usage.

    Attributes:
        id: Id of its usage row, which with `ended_at` is its position in the walk.
        covered: Whether its messages are to be searchable.
    """

    id: str
    ended_at: datetime
    run_id: str | None
    thread_id: str | None
    covered: bool


async def ended_runs(
    connection: Connection,
    tenant_id: str,
    *,
    passed_at: datetime | None,
    passed_id: str | None,
    settled: timedelta,
    limit: int,
) -> list[EndedRun]:
    """Return a tenant's runs that ended after a position and at least `settled` ago, oldest first.

    Older transactions have ended, so no row can appear before the position, and effects have had time to run.
    """
    rows = await connection.fetch(
        ENDED, tenant_id=tenant_id, passed_at=passed_at, passed_id=passed_id, settled=settled, limit=limit
    )
    return [EndedRun(row["id"], row["created_at"], row["run_id"], row["thread_id"], row["covered"]) for row in rows]


async def drop_other_models(connection: Connection, tenant_id: str, run_ids: Sequence[str], *, model: str) -> int:
    """Delete other models' vectors of messages that have one of `model`. Returns how many were deleted."""
    tag = await connection.execute(_DROP_OTHERS, tenant_id=tenant_id, run_ids=list(run_ids), model=model)
    return int(tag.rpartition(" ")[2])


async def drop_other_models_of_turns(
    connection: Connection, tenant_id: str, turn_ids: Sequence[str], *, model: str
) -> int:
    """Delete other models' vectors as `drop_other_models` does, of imported turns."""
    tag = await connection.execute(_DROP_OTHERS_OF_TURNS, tenant_id=tenant_id, turn_ids=list(turn_ids), model=model)
    return int(tag.rpartition(" ")[2])


async def imported_turns(
    connection: Connection, tenant_id: str, thread_id: str, *, passed_id: str | None, limit: int
) -> list[str] | None:
    """Return the next imported turns of a thread, oldest first; None if it was deleted."""
    return await connection.fetchval(
        _IMPORTED, tenant_id=tenant_id, thread_id=thread_id, passed_id=passed_id, limit=limit
    )


async def live_work_waits(connection: Connection, *, patience: timedelta) -> bool:
    """Return whether effects of live runs have been due for longer than `patience`. An index lookup."""
    return await connection.fetchval(_WAITS, patience=patience)
