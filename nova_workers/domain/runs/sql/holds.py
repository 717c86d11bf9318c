"""Holds queued runs while their model provider cannot be used, and releases them.

A held run is `queued` with a reason in `hold`. No worker claims it, nor a later run of its thread. Where `held_until`
is null, workers that can use the provider claim it all the same: only its last worker lacks a key.

Statements about many runs lock rows of runs only, and skip those that another transaction has locked: the next pass
finds them. So they wait for nothing, and no order of locks is broken.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from nova_workers.base.errors import RunLost
from nova_workers.contracts.http.fleet import HeldRuns
from nova_workers.contracts.runs import Claim, Doorbell
from nova_workers.contracts.waits import HoldDetail, advice_for
from nova_workers.domain.runs.sql.claim import CONFIGURATION, MODEL_OF
from nova_workers.domain.runs.sql.filters import IS_RUNNING
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_attempts

# The claim's run is queued again, in front, and not to be claimed before the next try. Fenced: a claim that lost its
# run changes nothing. A run that is to be canceled is only queued: the next claim ends it. Without a doorbell of the
# reconciler (`infinity`) where the time decides.
_HOLD = f"""
WITH thread AS (
    SELECT id FROM threads WHERE id = :thread_id FOR UPDATE
), mine AS (
    UPDATE runs r
       SET status = 'queued', lease_expires_at = NULL, worker_id = NULL, queued_at = now(),
           hold = CASE WHEN r.cancel_requested_at IS NULL THEN 'provider' END, hold_detail = :detail,
           held_since = CASE WHEN :afresh THEN now() ELSE COALESCE(r.held_since, now()) END,
           held_until = CASE WHEN r.cancel_requested_at IS NULL THEN now() + :pause::interval END,
           rang_at = CASE WHEN r.cancel_requested_at IS NULL AND :pause::interval IS NOT NULL THEN 'infinity'
                          ELSE now() END
      FROM thread, runs o
     WHERE r.id = :run_id AND r.fence = :fence AND {IS_RUNNING} AND r.thread_id = thread.id AND o.id = r.id
    RETURNING r.id, r.tenant_id, r.thread_id, r.attempt, r.claimed_at, o.worker_id AS holder_id, r.hold, r.held_until
), ended AS (
    {insert_attempts("mine", ended="held")}
), freed AS (
    UPDATE threads SET active_run_id = NULL FROM mine WHERE threads.id = mine.thread_id
)
SELECT hold, held_until FROM mine
"""

# Whether this claim already held its run: the reply was lost.
_HELD = "SELECT hold, held_until FROM runs WHERE id = :run_id AND fence = :fence AND status = 'queued'"

# The run that the claim refused, since its provider is known to be unavailable. Nothing if the run is held, begun,
# merged or canceled meanwhile; or if no other run is held by that outage any more, which is over then.
_HOLD_NEXT = """
UPDATE runs r
   SET hold = 'provider', hold_detail = :detail, held_since = COALESCE(r.held_since, now()),
       held_until = now() + :pause::interval,
       rang_at = CASE WHEN :pause::interval IS NULL THEN now() + :quiet::interval ELSE 'infinity' END
 WHERE r.id = :run_id AND r.status = 'queued' AND r.cancel_requested_at IS NULL
   AND (r.hold IS NULL OR r.held_until IS NULL)
   AND (:pause::interval IS NULL
        OR EXISTS (SELECT FROM runs o WHERE o.hold IS NOT NULL AND o.held_until IS NOT NULL AND o.status = 'queued'
                     AND o.hold_detail ->> 'provider' = :provider
                     AND o.hold_detail ->> 'model' IS NOT DISTINCT FROM :model))
RETURNING r.id
"""

# Runs that would meet the same outage, of threads in which they are next. They keep their place.
_HOLD_ALIKE = f"""
WITH alike AS (
    SELECT r.id
      FROM runs r JOIN agents a ON a.tenant_id = r.tenant_id AND a.id = r.agent_id {CONFIGURATION}
     WHERE r.status = 'queued' AND r.hold IS NULL AND r.held_until IS NULL AND r.cancel_requested_at IS NULL
       AND {MODEL_OF} = :model_of
       AND NOT EXISTS (SELECT FROM runs o WHERE o.thread_id = r.thread_id AND o.status = 'queued'
                        AND (o.attempt = 0, NOT o.front, o.seq) < (r.attempt = 0, NOT r.front, r.seq))
       AND NOT EXISTS (SELECT FROM threads h WHERE h.id = r.thread_id AND h.active_run_id IS NOT NULL)
       FOR UPDATE OF r SKIP LOCKED
)
UPDATE runs r
   SET hold = 'provider', hold_detail = :detail, held_since = COALESCE(r.held_since, now()),
       held_until = now() + :pause::interval, rang_at = 'infinity'
  FROM alike
 WHERE r.id = alike.id
RETURNING r.id
"""

_SAME = """
r.hold IS NOT NULL AND r.status = 'queued' AND r.hold_detail ->> 'provider' = :provider
AND r.hold_detail ->> 'model' IS NOT DISTINCT FROM :model
"""

# A try failed: the others need not try before the time of its next one.
_POSTPONE = f"""
WITH same AS (
    SELECT r.id FROM runs r WHERE {_SAME} AND r.held_until < now() + :pause::interval FOR UPDATE SKIP LOCKED
)
UPDATE runs r
   SET hold_detail = :detail, held_until = now() + :pause::interval
  FROM same
 WHERE r.id = same.id
"""

# A try succeeded: all may be claimed.
_RELEASE = f"""
WITH same AS (
    SELECT r.id FROM runs r WHERE {_SAME} ORDER BY r.id LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE runs r
   SET hold = NULL, held_until = NULL, rang_at = now()
  FROM same
 WHERE r.id = same.id
RETURNING r.id AS run_id, r.thread_id, r.queue
"""

# A person cleared what workers know of a provider, a model or a profile, or of all: it is recorded, and the next try is
# due.
_HASTEN = """
WITH named AS (
    SELECT r.id
      FROM runs r
     WHERE r.hold IS NOT NULL AND r.status = 'queued' AND r.held_until > now()
       AND (:name::text IS NULL
            OR :name IN (r.hold_detail ->> 'provider', r.hold_detail ->> 'model', r.hold_detail ->> 'profile'))
       FOR UPDATE SKIP LOCKED
), due AS (
    UPDATE runs r SET held_until = now() FROM named WHERE r.id = named.id
)
SELECT record_act('provider.cleared', 'provider', COALESCE(:name, '*'), NULL)
"""

# Of the runs whose next try is due, one for each provider and model is released, another one each time: the others wait
# for its outcome, or for `probe` if there is none. Runs that waited for as long as their queue permits get a last try,
# and canceled ones their end.
_RELEASE_DUE = """
WITH held AS MATERIALIZED (
    SELECT r.id, r.queue, r.attempt, r.held_since,
           r.hold_detail ->> 'provider' AS provider, r.hold_detail ->> 'model' AS model,
           :all_now::boolean OR r.held_until <= now() AS is_due,
           r.cancel_requested_at IS NOT NULL
           OR r.held_since <= now() - CASE WHEN r.queue = 'interactive' AND r.source <> 'work_order'
                                           THEN :interactive::interval ELSE :background::interval END AS is_over
      FROM runs r
     WHERE r.hold IS NOT NULL AND r.status = 'queued'
       FOR UPDATE SKIP LOCKED
), due AS (
    SELECT h.id, h.is_over,
           row_number() OVER (PARTITION BY h.provider, h.model
                              ORDER BY h.is_over DESC, h.attempt, h.queue = 'background', h.held_since, h.id) AS nth
      FROM held h
     WHERE h.is_due OR h.is_over
), later AS (
    UPDATE runs r
       SET held_until = now() + :probe::interval
      FROM due
     WHERE r.id = due.id AND due.nth > 1 AND NOT due.is_over
)
UPDATE runs r
   SET hold = NULL, held_until = now(), rang_at = now()
  FROM due
 WHERE r.id = due.id AND (due.nth = 1 OR due.is_over)
RETURNING r.id AS run_id, r.thread_id, r.queue
"""

_COUNT = """
SELECT r.hold_detail ->> 'provider' AS provider, r.hold_detail ->> 'outage' AS outage,
       r.hold_detail ->> 'profile' AS profile, r.hold_detail ->> 'model' AS model,
       (array_agg(r.hold_detail ->> 'message' ORDER BY r.id DESC))[1] AS message,
       count(*)::int AS runs, min(r.held_since) AS since, min(r.held_until) AS next_try_at
  FROM runs r
 WHERE r.hold IS NOT NULL AND r.status = 'queued' AND (:tenant_id::text IS NULL OR r.tenant_id = :tenant_id)
 GROUP BY 1, 2, 3, 4
 ORDER BY runs DESC, 1, 2, 3, 4
 LIMIT 100
"""


@dataclass(frozen=True, slots=True)
class Held:
    """How a claim's run was requeued: held until a time or for another worker; or only queued, to be canceled."""

    is_held: bool
    until: datetime | None


async def hold_claimed(
    connection: Connection, claim: Claim, detail: HoldDetail, *, pause_s: float | None, afresh: bool
) -> Held:
    """Requeue a claim's run without a loss, and hold it.

    Args:
        pause_s: Until the next try; None for a run that another worker may execute at once.
        afresh: Whether its time to wait begins now, since the model answered after an earlier hold.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    row = await connection.fetchrow(
        _HOLD,
        run_id=claim.run_id,
        thread_id=claim.thread_id,
        fence=claim.fence,
        detail=detail.model_dump(mode="json"),
        pause=_interval(pause_s),
        afresh=afresh,
    )
    if row is None:
        row = await connection.fetchrow(_HELD, run_id=claim.run_id, fence=claim.fence)
    if row is None:
        raise RunLost(f"Run {claim.run_id!r} is no longer held under fence {claim.fence}.", run_id=claim.run_id)
    return Held(row["hold"] is not None, row["held_until"])


async def hold_next(
    connection: Connection, run_id: str, detail: HoldDetail, *, pause_s: float | None, quiet_s: float = 0.0
) -> bool:
    """Hold a queued run that the claim refused. Return whether it is held by this; not if the outage is over.

    Args:
        pause_s: As in `hold_claimed`.
        quiet_s: Without a pause: how much later than usual the reconciler rings.
    """
    held = await connection.fetchval(
        _HOLD_NEXT,
        run_id=run_id,
        detail=detail.model_dump(mode="json"),
        provider=detail.provider,
        model=detail.model,
        pause=_interval(pause_s),
        quiet=timedelta(seconds=quiet_s),
    )
    return held is not None


async def hold_alike(connection: Connection, model_of: str, detail: HoldDetail, *, pause_s: float) -> list[str]:
    """Hold all queued runs that would use the same model in the same way, and return which."""
    rows = await connection.fetch(
        _HOLD_ALIKE, model_of=model_of, detail=detail.model_dump(mode="json"), pause=_interval(pause_s)
    )
    return [row["id"] for row in rows]


async def postpone(connection: Connection, detail: HoldDetail, *, pause_s: float) -> None:
    """Let other runs that are held by the same outage wait for at least as long."""
    await connection.execute(
        _POSTPONE,
        provider=detail.provider,
        model=detail.model,
        detail=detail.model_dump(mode="json"),
        pause=_interval(pause_s),
    )


async def release(connection: Connection, provider: str, model: str | None, *, limit: int) -> list[Doorbell]:
    """Release runs that are held by a provider, for one model or for none in particular; return their doorbells."""
    rows = await connection.fetch(_RELEASE, provider=provider, model=model, limit=limit)
    return [Doorbell(**row) for row in rows]


async def hasten(connection: Connection, name: str | None) -> None:
    """Make the next try due of all runs that are held by a provider, a model or a profile of this name; None is all.

    The audit log records it as the clearing of this name.
    """
    await connection.execute(_HASTEN, name=name)


async def release_due(
    connection: Connection, *, interactive_s: float, background_s: float, probe_s: float, all_now: bool = False
) -> list[Doorbell]:
    """Release one run of each outage whose next try is due, and all that waited long enough.

    Args:
        interactive_s: The longest wait of an interactive run.
        background_s: The longest wait of a background run.
        probe_s: How long the others of an outage wait for the outcome.
        all_now: Whether every outage is tried now.
    """
    rows = await connection.fetch(
        _RELEASE_DUE,
        interactive=timedelta(seconds=interactive_s),
        background=timedelta(seconds=background_s),
        probe=timedelta(seconds=probe_s),
        all_now=all_now,
    )
    return [Doorbell(**row) for row in rows]


async def count_held(connection: Connection, tenant_id: str | None) -> list[HeldRuns]:
    """Return how many runs are held by which outage, of one tenant or of all; most first."""
    rows = await connection.fetch(_COUNT, tenant_id=tenant_id)
    return [HeldRuns(**row, advice=advice_for(row["outage"])) for row in rows]


def _interval(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
