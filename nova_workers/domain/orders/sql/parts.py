"""The transitions of a part: a worker begins it, reserves each model call, and stores its answer.

A worker's writes carry the number of its attempt: beginning a part again makes writes of earlier attempts void.
Reservations and figures are in the parts' rows alone. Who changes them holds the lock of the order, so that calls of
parts that run at the same time cannot together exceed its limits.

A call is reserved, then settled with its true figures. A call whose worker crashed is lost: it may have been charged,
so its reservation counts for the limits as long as the order runs, but not among the figures of finished calls.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nova_workers.base.vocabulary import OrderState, OutageReason, WorkStopReason
from nova_workers.contracts.agents import Ceilings
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.orders.sql.records import PART_COLUMNS, PartRow
from nova_workers.ledger.database import Connection
from nova_workers.ledger.stored import read_stored

# What an earlier attempt had reserved and not settled is lost.
_BEGIN = """
UPDATE work_order_parts p
   SET attempts = p.attempts + 1, calls = p.calls - (p.reserved_tokens > 0)::int,
       lost_tokens = p.lost_tokens + p.reserved_tokens, lost_usd = p.lost_usd + p.reserved_usd,
       reserved_tokens = 0, reserved_usd = 0
  FROM work_orders o
 WHERE p.run_id = :run_id AND o.id = p.order_id AND p.stop_reason IS NULL
RETURNING p.id, p.order_id, p.run_id, p.tenant_id, p.attempts, p.calls, p.usage, p.kind, p.role, p.round, p.position,
          o.state, o.data_key, o.data_key_id, o.sealed, extract(epoch FROM o.deadline_at - now())::float8 AS left_s,
          (SELECT w.ceilings FROM tenants w WHERE w.id = p.tenant_id) AS ceilings,
          (SELECT r.hold_detail ->> 'outage' FROM runs r WHERE r.id = p.run_id) AS outage
"""

_STORED = f"SELECT {PART_COLUMNS} FROM work_order_parts p WHERE p.run_id = :run_id AND p.stop_reason IS NOT NULL"

_LOCK_ORDER = "SELECT state FROM work_orders WHERE id = :order_id FOR UPDATE"

# Grants a call as many output tokens as the order can afford, at most what the role wants: tokens and cost that are
# used, reserved or lost by all of its parts are taken off first. The call's input is counted as it was estimated. The
# number of the call makes it safe to repeat the statement when only its reply was lost.
_RESERVE = """
WITH spent AS (
    SELECT sum(p.used_tokens + p.lost_tokens + CASE WHEN p.id = :part_id THEN :used_tokens::bigint
                                                    ELSE p.reserved_tokens END) AS tokens,
           sum(p.used_usd + p.lost_usd + CASE WHEN p.id = :part_id THEN :used_usd::float8::numeric
                                              ELSE p.reserved_usd END) AS usd
      FROM work_order_parts p WHERE p.order_id = :order_id
), room AS (
    SELECT o.state, o.least_output_tokens, extract(epoch FROM o.deadline_at - now())::float8 AS left_s,
           LEAST(:wanted::bigint, o.max_tokens - s.tokens - :input_tokens::bigint,
                 CASE WHEN :usd_per_output_token::float8 > 0
                      THEN floor((o.max_cost_usd - s.usd - :input_usd::float8::numeric)
                                 / :usd_per_output_token::float8::numeric)
                      WHEN s.usd <= o.max_cost_usd THEN :wanted::bigint
                      ELSE 0 END)::bigint AS granted
      FROM work_orders o, spent s WHERE o.id = :order_id
), made AS (
    UPDATE work_order_parts p
       SET calls = :call, usage = :usage, used_tokens = p.used_tokens + :used_tokens::bigint,
           used_usd = p.used_usd + :used_usd::float8::numeric,
           reserved_tokens = :input_tokens::bigint + room.granted,
           reserved_usd = :input_usd::float8::numeric
                          + room.granted * :usd_per_output_token::float8::numeric
      FROM room
     WHERE p.id = :part_id AND p.attempts = :attempt AND p.stop_reason IS NULL AND p.calls = :call - 1
       AND room.state = 'running'
       AND room.left_s > 0 AND room.granted >= LEAST(room.least_output_tokens, :wanted::bigint)
    RETURNING p.id
)
SELECT room.state, room.left_s,
       CASE WHEN p.calls = :call THEN p.reserved_tokens - :input_tokens::bigint ELSE room.granted END AS granted,
       p.calls = :call OR EXISTS (SELECT FROM made) AS made, p.id IS NOT NULL AS held
  FROM room
  LEFT JOIN work_order_parts p ON p.id = :part_id AND p.attempts = :attempt AND p.stop_reason IS NULL
"""

# Settles the last call of an attempt that was stopped, or whose part was ended meanwhile. A reservation is settled
# once: each counts the call's input at least.
_SETTLE = """
UPDATE work_order_parts p
   SET used_tokens = p.used_tokens + :used_tokens::bigint, used_usd = p.used_usd + :used_usd::float8::numeric,
       usage = :usage, reserved_tokens = 0, reserved_usd = 0, engine = COALESCE(p.engine, :engine),
       model = COALESCE(p.model, :model), provider = COALESCE(p.provider, :provider)
 WHERE p.id = :part_id AND p.attempts = :attempt AND p.reserved_tokens > 0
"""

# Ends a part, once. Without an attempt it is ended for a run that did not do so itself. A reservation that it does not
# settle stays, and counts for the limits as before.
_END = """
UPDATE work_order_parts p
   SET stop_reason = :stop_reason, used_tokens = p.used_tokens + :used_tokens,
       used_usd = p.used_usd + :used_usd::float8::numeric,
       reserved_tokens = CASE WHEN :settles THEN 0 ELSE p.reserved_tokens END,
       reserved_usd = CASE WHEN :settles THEN 0 ELSE p.reserved_usd END,
       usage = CASE WHEN :settles THEN :usage ELSE p.usage END, engine = :engine, model = :model,
       provider = :provider, sealed_output = :sealed_output, fingerprint = :fingerprint,
       confidence = :confidence::float8, approved = :approved::bool, ended_at = now()
 WHERE p.id = :part_id AND p.stop_reason IS NULL AND (:attempt::int IS NULL OR p.attempts = :attempt)
RETURNING p.id
"""


@dataclass(frozen=True, slots=True)
class BegunPart:
    """A part that a worker begins, with the sealed content of its order."""

    id: str
    order_id: str
    run_id: str
    tenant_id: str
    attempts: int
    calls: int
    """That are settled, of earlier attempts."""
    usage: dict[str, Any]
    """The usage of these calls."""
    kind: str
    role: str
    round: int
    position: int
    state: OrderState
    data_key: bytes | None
    data_key_id: str | None
    sealed: bytes | None
    left_s: float
    ceilings: Ceilings | None
    """Of the tenant, now."""
    outage: OutageReason | None
    """Why an earlier attempt waited for its model provider."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Whether a model call may be made.

    Attributes:
        max_tokens: Of its response; 0 if it may not be made.
        left_s: Of the order's time.
        refused: Why it may not be made.
        held: False if the part was begun again, or ended, elsewhere.
    """

    max_tokens: int
    left_s: float
    refused: WorkStopReason | None = None
    held: bool = True


@dataclass(frozen=True, slots=True)
class Spent:
    """What a part used: in all settled calls and the last one, and in the last one, which no statement has settled."""

    usage: TokenUsage
    last_call: TokenUsage


@dataclass(frozen=True, slots=True)
class PartEnd:
    """How a part ended.

    Attributes:
        spent: What the part used in total, and in its last call, which is to be settled. None leaves a reservation as
            it is, since the figures of its call are not known.
    """

    stop_reason: WorkStopReason
    spent: Spent | None
    sealed_output: bytes | None = None
    fingerprint: str | None = None
    confidence: float | None = None
    approved: bool | None = None
    engine: str | None = None
    model: str | None = None
    provider: str | None = None


async def begin_part(connection: Connection, run_id: str) -> BegunPart | None:
    """Begin the part of a run. None if it has none, or it has ended."""
    row = await connection.fetchrow(_BEGIN, run_id=run_id)
    if row is None:
        return None
    ceilings = None if row["ceilings"] is None else read_stored(Ceilings.model_validate, row["ceilings"])
    fields: dict[str, Any] = {**row, "ceilings": ceilings}
    return BegunPart(**fields)


async def stored_part(connection: Connection, run_id: str) -> PartRow | None:
    """Return the ended part of a run."""
    row = await connection.fetchrow(_STORED, run_id=run_id)
    return None if row is None else PartRow(**row)


async def reserve_call(
    connection: Connection,
    part: BegunPart,
    *,
    call: int,
    spent: Spent,
    wanted_tokens: int,
    input_tokens: int,
    input_usd: float,
    usd_per_output_token: float,
) -> Grant:
    """Settle a part's previous call, and reserve its next one. In a transaction of its own.

    Args:
        connection: The transaction.
        part: The part, as it was begun.
        call: The number of the call among those of the part, from 1.
        spent: By the calls before; its last call is to be settled.
        wanted_tokens: Most output tokens that the call needs.
        input_tokens: Estimate of what it reads.
        input_usd: What that costs.
        usd_per_output_token: The model's price.
    """
    # Two statements on purpose: the second one sees what was committed while the first one waited for the lock.
    await connection.execute(_LOCK_ORDER, order_id=part.order_id)
    row = await connection.fetchrow(
        _RESERVE,
        order_id=part.order_id,
        part_id=part.id,
        attempt=part.attempts,
        call=call,
        usage=asdict(spent.usage),
        used_tokens=spent.last_call.total_tokens,
        used_usd=spent.last_call.cost_usd or 0.0,
        wanted=wanted_tokens,
        input_tokens=input_tokens,
        input_usd=input_usd,
        usd_per_output_token=usd_per_output_token,
    )
    if row is None or not row["held"]:
        return Grant(0, 0.0, held=False)
    if row["made"]:
        return Grant(row["granted"], row["left_s"])
    if row["left_s"] <= 0 or row["state"] != "running":
        return Grant(0, row["left_s"], "round_cap_exceeded")
    return Grant(0, row["left_s"], "cost_cap_exceeded")


async def settle_call(
    connection: Connection, part: BegunPart, spent: Spent, *, engine: str, model: str | None, provider: str
) -> None:
    """Count the last call of an attempt that cannot end its part. Changes nothing if another attempt has begun."""
    await connection.execute(
        _SETTLE,
        part_id=part.id,
        attempt=part.attempts,
        usage=asdict(spent.usage),
        used_tokens=spent.last_call.total_tokens,
        used_usd=spent.last_call.cost_usd or 0.0,
        engine=engine,
        model=model,
        provider=provider,
    )


async def end_part(connection: Connection, part_id: str, end: PartEnd, *, attempt: int | None) -> bool:
    """End a part. The caller holds the lock of its order. False if it has ended, or a later attempt began it."""
    spent = end.spent or Spent(TokenUsage(), TokenUsage())
    ended = await connection.fetchval(
        _END,
        part_id=part_id,
        attempt=attempt,
        stop_reason=end.stop_reason,
        settles=end.spent is not None,
        used_tokens=spent.last_call.total_tokens,
        used_usd=spent.last_call.cost_usd or 0.0,
        usage=asdict(spent.usage),
        engine=end.engine,
        model=end.model,
        provider=end.provider,
        sealed_output=end.sealed_output,
        fingerprint=end.fingerprint,
        confidence=end.confidence,
        approved=end.approved,
    )
    return ended is not None
