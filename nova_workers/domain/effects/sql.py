"""Effects: the rows that drive post-run work, and what the title effect reads and writes.

An effect is due when its `due_at` has passed and the run's earlier effects have ended. Claiming an effect moves its
`due_at` to the end of a lease, which its worker renews while it works, so an effect whose worker crashed becomes due
again. `claims` grows with each claim and fences writes of earlier ones. `attempts` is no fence: a released or postponed
attempt gives its number back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from nova_workers.base.vocabulary import OPEN_EFFECTS, EffectStatus, sql_list
from nova_workers.domain.upkeep.sql.restored import HOLDS_DELIVERIES
from nova_workers.ledger.database import Connection

# That an effect `{}` has not ended. Said by its status, it would be in the words of the partial index of open effects,
# and a plan that was made when that was small reads all of them for each row.
_IS_OPEN = "{}.done_at IS NULL"

WAITS_FOR_EARLIER = "interval '5 minutes'"
"""When an effect is due that follows another of its run, unless that one ends before, which is what happens."""

# From then on. Short, since the earlier one may have ended while the claim that puts it off was on its way.
_LOOKED_AT_EVERY = "interval '30 seconds'"


@dataclass(frozen=True, slots=True)
class DueEffect:
    """A claimed effect, held until its lease ends.

    Attributes:
        attempt: Number of this attempt, from 1. A released or postponed one does not count.
        traceparent: The run's, so that the effect appears in the run's trace.
        age_s: Time since the end of its run.
        claim: Number of this claim. Late writes of an earlier one are ignored.
    """

    id: str
    tenant_id: str
    run_id: str
    thread_id: str
    kind: str
    attempt: int
    traceparent: str | None = None
    age_s: float = 0.0
    claim: int = 0


@dataclass(frozen=True, slots=True)
class WaitingEffect:
    """A due effect that was not claimed yet.

    Attributes:
        position: Its place among those of its kind.
    """

    effect: DueEffect
    position: tuple[datetime, str]


@dataclass(frozen=True, slots=True)
class UnclaimedEffects:
    """Due effects of one kind that no worker claims.

    Attributes:
        since: When the oldest was due.
    """

    kind: str
    number: int
    since: datetime


@dataclass(slots=True)
class ClaimedEffects:
    """What a claim of effects did.

    Attributes:
        claimed: Held until their leases end.
        given_up: Failed, since they had used up their attempts.
        put_off: How many were due, but wait for an earlier effect of their run.
    """

    claimed: list[DueEffect] = field(default_factory=list["DueEffect"])
    given_up: list[DueEffect] = field(default_factory=list["DueEffect"])
    put_off: int = 0


EffectOutcome = Literal["done", "retried", "postponed", "failed"]

_STATUS_AFTER: Final[Mapping[EffectOutcome, EffectStatus]] = {
    "done": "done",
    "retried": "pending",
    "postponed": "pending",
    "failed": "failed",
}


@dataclass(frozen=True, slots=True)
class EffectEnd:
    """How one attempt of an effect ended.

    Attributes:
        outcome: ``done``; ``retried``, due again after `delay`; ``postponed``, likewise, and the attempt does not
            count; or ``failed`` for good.
        error: Why it was not done.
    """

    effect: DueEffect
    outcome: EffectOutcome
    error: str | None = None
    delay: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class ConversationStart:
    """The beginning of a conversation that has no title yet."""

    user_texts: tuple[str, ...]
    answer: str


# Claims due effects, for each of `kinds` up to its number in `mosts`. Two processes never claim the same row: rows are
# locked, and locked rows are skipped. Those that wait for an earlier effect of their run are put off, so that later
# claims need not examine them; the end of the earlier one makes them due. An effect that used up its attempts without
# ending crashed its worker each time; it is failed here, so that it does not crash workers forever. A restored fleet
# claims none: titles call a model.
_CLAIM = f"""
WITH due AS (
    SELECT found.*
      FROM unnest(:kinds::text[], :mosts::int[]) AS wanted(kind, most)
     CROSS JOIN LATERAL (
           SELECT e.id, EXISTS (SELECT FROM effects earlier
                                 WHERE earlier.run_id = e.run_id AND earlier.position < e.position
                                   AND {_IS_OPEN.format("earlier")}) AS waits
             FROM effects e
            WHERE e.kind = wanted.kind AND e.status IN {sql_list(OPEN_EFFECTS)} AND e.due_at <= now()
            ORDER BY e.due_at
            LIMIT wanted.most
              FOR UPDATE OF e SKIP LOCKED) AS found
     WHERE NOT {HOLDS_DELIVERIES}
), put_off AS (
    UPDATE effects e SET due_at = now() + {_LOOKED_AT_EVERY} FROM due WHERE e.id = due.id AND due.waits
    RETURNING e.*
), claimed AS (
    UPDATE effects e
       SET status = CASE WHEN e.attempts < :max_attempts THEN 'running' ELSE 'failed' END,
           attempts = CASE WHEN e.attempts < :max_attempts THEN e.attempts + 1 ELSE e.attempts END,
           claims = e.claims + 1, due_at = now() + :lease::interval,
           done_at = CASE WHEN e.attempts < :max_attempts THEN NULL ELSE now() END,
           error = CASE WHEN e.attempts < :max_attempts THEN e.error
                        ELSE 'The worker was lost in each of ' || e.attempts || ' attempts. ' || coalesce(e.error, '')
                   END
      FROM due
     WHERE e.id = due.id AND NOT due.waits
    RETURNING e.*
)
SELECT e.id, e.tenant_id, e.run_id, e.thread_id, e.kind, e.attempts, e.claims, e.status, e.waits, r.traceparent,
       extract(epoch FROM now() - e.created_at)::float8 AS age_s
  FROM (SELECT *, false AS waits FROM claimed UNION ALL SELECT *, true FROM put_off) e JOIN runs r ON r.id = e.run_id
"""

# Due for so long that no live worker can have their package: any that has it looks at its kind every few seconds. A
# restored fleet claims none on purpose.
_OF_MISSING_PACKAGES = f"""
SELECT e.kind, count(*)::int AS number, min(e.due_at) AS since
  FROM effects e
 WHERE position(':' in e.kind) > 1 AND e.status IN {sql_list(OPEN_EFFECTS)}
   AND e.due_at < now() - interval '10 minutes' AND NOT {HOLDS_DELIVERIES}
 GROUP BY e.kind
 ORDER BY e.kind
"""

_UNCLAIMED = """
SELECT e.id, e.tenant_id, e.run_id, e.thread_id, e.due_at
  FROM effects e
 WHERE e.kind = :kind AND e.status = 'pending' AND e.due_at <= now() AND e.attempts = 0
   AND e.due_at >= COALESCE(:passed_at::timestamptz, '-infinity')
   AND (e.due_at, e.id) > (COALESCE(:passed_at::timestamptz, '-infinity'), COALESCE(:passed_id::text, ''))
 ORDER BY e.due_at, e.id
 LIMIT :limit
"""

# Ends a batch of attempts. An attempt whose lease was taken over changes nothing; by both numbers, since workers of the
# release before count only attempts. Later effects of the same run become
# due, or are delayed with an effect that will be retried.
_SETTLE = f"""
WITH tries AS (
    SELECT * FROM unnest(:ids::text[], :attempts::int[], :claims::int[], :statuses::text[], :uncounted::int[],
                         :errors::text[], :delays::interval[]) AS t(id, attempt, claim, status, uncounted, error, delay)
), settled AS (
    UPDATE effects e
       SET status = t.status, attempts = e.attempts - t.uncounted,
           error = CASE t.status WHEN 'done' THEN NULL ELSE t.error END,
           due_at = now() + t.delay,
           done_at = CASE t.status WHEN 'pending' THEN NULL ELSE now() END
      FROM tries t
     WHERE e.id = t.id AND e.attempts = t.attempt AND e.claims = t.claim
       AND {_IS_OPEN.format("e")} AND e.status <> 'pending'
    RETURNING e.id, e.run_id, e.position, e.status, e.due_at
), later AS (
    UPDATE effects later
       SET due_at = CASE s.status WHEN 'pending' THEN s.due_at ELSE now() END
      FROM settled s
     WHERE later.run_id = s.run_id AND later.position > s.position
       AND {_IS_OPEN.format("later")} AND later.status <> 'running'
)
SELECT count(*)::int FROM settled
"""

# Extends leases. An attempt whose lease was taken over changes nothing. Locks rows in the order of their ids.
_RENEW = f"""
WITH mine AS (
    SELECT e.id
      FROM effects e JOIN unnest(:effect_ids::text[], :attempts::int[], :claims::int[]) AS held(id, attempt, claim)
        ON held.id = e.id AND held.attempt = e.attempts AND held.claim = e.claims
     WHERE {_IS_OPEN.format("e")} AND e.status <> 'pending'
     ORDER BY e.id
       FOR UPDATE OF e
)
UPDATE effects e SET due_at = now() + :lease::interval FROM mine WHERE e.id = mine.id
"""

# Returns effects without counting the attempt, because the worker is shutting down.
_RELEASE = f"""
UPDATE effects e
   SET status = 'pending', attempts = e.attempts - 1, due_at = now()
  FROM unnest(:effect_ids::text[], :attempts::int[], :claims::int[]) AS held(id, attempt, claim)
 WHERE e.id = held.id AND e.attempts = held.attempt AND e.claims = held.claim
   AND {_IS_OPEN.format("e")} AND e.status <> 'pending'
"""

# The first messages of a thread that is not deleted, has no title, and has at least two user messages. Texts are
# truncated here, since a message may hold a megabyte.
_OPEN_TITLE = """
WITH thread AS (
    SELECT id FROM threads WHERE tenant_id = :tenant_id AND id = :thread_id AND title IS NULL AND deleted_at IS NULL
), said AS (
    SELECT m.id, m.kind,
           left((SELECT string_agg(block->>'text', ' ')
                   FROM jsonb_array_elements(m.content) block
                  WHERE block->>'type' = 'text'), :max_chars) AS text
      FROM messages m, thread
     WHERE m.tenant_id = :tenant_id AND m.thread_id = thread.id AND m.kind IN ('query', 'steering', 'response')
), asked AS (
    SELECT text, id FROM said WHERE kind <> 'response' ORDER BY id LIMIT :max_messages
)
SELECT (SELECT array_agg(coalesce(text, '') ORDER BY id) FROM asked) AS user_texts,
       (SELECT text FROM said WHERE kind = 'response' AND text <> '' ORDER BY id LIMIT 1) AS answer
  FROM thread
 WHERE (SELECT count(*) FROM asked) >= 2
"""

# Never overwrites a title: a user or another effect may have set one meanwhile.
_SET_TITLE = """
UPDATE threads
   SET title = :title, updated_at = now()
 WHERE tenant_id = :tenant_id AND id = :thread_id AND title IS NULL AND deleted_at IS NULL
RETURNING id
"""


async def effects_of_missing_packages(connection: Connection) -> list[UnclaimedEffects]:
    """Return the effects of packages that are due for ten minutes, which no live worker has, of all tenants."""
    return [UnclaimedEffects(**row) for row in await connection.fetch(_OF_MISSING_PACKAGES)]


async def claim_effects(
    connection: Connection, wanted: Sequence[tuple[str, int]], *, max_attempts: int, lease: timedelta
) -> ClaimedEffects:
    """Claim effects that are due, oldest first.

    Args:
        connection: One statement.
        wanted: Kinds, each with the most to claim.
        max_attempts: An effect that was claimed this often without ending is failed.
        lease: Time until a claimed effect is due again.
    """
    rows = await connection.fetch(
        _CLAIM,
        kinds=[kind for kind, _ in wanted],
        mosts=[most for _, most in wanted],
        max_attempts=max_attempts,
        lease=lease,
    )
    found = ClaimedEffects()
    for row in rows:
        if row["waits"]:
            found.put_off += 1
            continue
        effect = DueEffect(
            id=row["id"],
            tenant_id=row["tenant_id"],
            run_id=row["run_id"],
            thread_id=row["thread_id"],
            kind=row["kind"],
            attempt=row["attempts"],
            traceparent=row["traceparent"],
            age_s=row["age_s"],
            claim=row["claims"],
        )
        (found.claimed if row["status"] == "running" else found.given_up).append(effect)
    return found


async def settle_effects(connection: Connection, ends: Sequence[EffectEnd]) -> int:
    """Record how attempts ended, in one statement. Returns how many were still current."""
    return await connection.fetchval(
        _SETTLE,
        ids=[end.effect.id for end in ends],
        attempts=[end.effect.attempt for end in ends],
        claims=[end.effect.claim for end in ends],
        statuses=[_STATUS_AFTER[end.outcome] for end in ends],
        uncounted=[int(end.outcome == "postponed") for end in ends],
        errors=[end.error for end in ends],
        delays=[end.delay for end in ends],
    )


async def unclaimed_effects(
    connection: Connection, kind: str, *, after: tuple[datetime, str] | None, limit: int
) -> list[WaitingEffect]:
    """Return due effects of a kind that no worker has claimed yet, oldest first, after a position."""
    passed_at, passed_id = after or (None, None)
    rows = await connection.fetch(_UNCLAIMED, kind=kind, passed_at=passed_at, passed_id=passed_id, limit=limit)
    return [
        WaitingEffect(
            DueEffect(row["id"], row["tenant_id"], row["run_id"], row["thread_id"], kind, attempt=0),
            (row["due_at"], row["id"]),
        )
        for row in rows
    ]


async def renew_effects(connection: Connection, effects: Sequence[DueEffect], *, lease: timedelta) -> None:
    """Extend the leases of claimed effects."""
    await connection.execute(
        _RENEW,
        effect_ids=[effect.id for effect in effects],
        attempts=[effect.attempt for effect in effects],
        claims=[effect.claim for effect in effects],
        lease=lease,
    )


async def release_effects(connection: Connection, effects: Sequence[DueEffect]) -> None:
    """Return claimed effects, due at once, without counting the attempt."""
    await connection.execute(
        _RELEASE,
        effect_ids=[effect.id for effect in effects],
        attempts=[effect.attempt for effect in effects],
        claims=[effect.claim for effect in effects],
    )


async def load_conversation_start(
    connection: Connection, tenant_id: str, thread_id: str, *, max_messages: int, max_chars: int
) -> ConversationStart | None:
    """Return the beginning of a thread that needs a title.

    Returns:
        None if the thread has a title, is deleted, or has fewer than two user messages.
    """
    row = await connection.fetchrow(
        _OPEN_TITLE, tenant_id=tenant_id, thread_id=thread_id, max_messages=max_messages, max_chars=max_chars
    )
    return None if row is None else ConversationStart(user_texts=tuple(row["user_texts"]), answer=row["answer"] or "")


async def set_title(connection: Connection, tenant_id: str, thread_id: str, title: str) -> bool:
    """Set a thread's title unless it has one. Returns whether it was set."""
    return await connection.fetchval(_SET_TITLE, tenant_id=tenant_id, thread_id=thread_id, title=title) is not None
