"""The ledger's tables as the checker reads them: plain SQL, without any code of the fleet."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import asyncpg

_T = TypeVar("_T")

ENDED = ("succeeded", "failed", "canceled", "merged")


@dataclass(frozen=True)
class Run:
    """A row of `runs`. `key` is the client's, from the metadata."""

    id: str
    thread_id: str
    seq: int
    front: bool
    on_busy: str
    source: str
    status: str
    attempt: int
    losses: int
    key: str | None
    turn_id: str | None
    merged_into: str | None
    trigger_id: str | None
    cancel_requested: bool
    result_text: str | None
    error: str | None
    final_event_id: str | None
    usages: int
    created_at: datetime
    started_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None

    @property
    def has_ended(self) -> bool:
        """Whether its status is final."""
        return self.status in ENDED


_RUNS = """
SELECT r.id, r.thread_id, r.seq, r.front, r.on_busy, r.source, r.status, r.attempt, r.losses, r.meta->>'key' AS key,
       r.turn_id, r.merged_into, r.trigger_id, r.cancel_requested_at IS NOT NULL AS cancel_requested, r.result_text,
       r.error_kind || ': ' || r.error_message AS error, r.final_event_id,
       (SELECT count(*) FROM usage u WHERE u.run_id = r.id) AS usages,
       r.created_at, r.started_at, r.claimed_at, r.finished_at
  FROM runs r WHERE r.tenant_id = $1 ORDER BY r.thread_id, r.seq
"""


@dataclass(frozen=True)
class Attempt:
    """A row of `run_attempts`: an attempt that did not end its run."""

    run_id: str
    attempt: int
    ended: str
    started_at: datetime | None
    ended_at: datetime


_ATTEMPTS = """
SELECT run_id, attempt, ended, started_at, ended_at FROM run_attempts WHERE tenant_id = $1 ORDER BY run_id, attempt
"""


@dataclass(frozen=True)
class Turn:
    """A row of `turns`."""

    id: str
    run_id: str
    thread_id: str
    parent_turn_id: str | None
    status: str
    steps: int
    tool_call_count: int


_TURNS = """
SELECT id, run_id, thread_id, parent_turn_id, status, steps, tool_call_count
  FROM turns WHERE tenant_id = $1 AND type = 'normal'
"""


@dataclass(frozen=True)
class Message:
    """A row of `messages`, with the text of its blocks. `run_id` is of the message's own run where it was steered."""

    turn_id: str
    seq: int
    step: int | None
    kind: str
    run_id: str | None
    text: str
    event_id: str | None
    created_at: datetime


_MESSAGES = """
SELECT m.turn_id, m.seq, m.step, m.kind, m.run_id, m.event_id, m.created_at,
       coalesce((SELECT string_agg(block->>'text', '' ORDER BY place)
                   FROM jsonb_array_elements(m.content) WITH ORDINALITY AS b(block, place)
                  WHERE block->>'type' = 'text'), '') AS text
  FROM messages m WHERE m.tenant_id = $1 ORDER BY m.turn_id, m.seq
"""


@dataclass(frozen=True)
class Call:
    """A row of `tool_calls`. `key` is the argument of the tool that records its executions."""

    turn_id: str
    call_id: str
    step: int
    status: str
    key: str | None
    completed_at: datetime | None


_CALLS = """
SELECT turn_id, call_id, step, status, params->>'key' AS key, completed_at FROM tool_calls WHERE tenant_id = $1
"""


@dataclass(frozen=True)
class Wait:
    """A row of `run_waits`."""

    run_id: str
    tool_call_id: str
    status: str


_WAITS = "SELECT run_id, tool_call_id, status FROM run_waits WHERE tenant_id = $1"


@dataclass(frozen=True)
class Thread:
    """A row of `threads`."""

    id: str
    head_turn_id: str | None
    active_run_id: str | None
    turn_count: int


_THREADS = "SELECT id, head_turn_id, active_run_id, turn_count FROM threads WHERE tenant_id = $1"


@dataclass(frozen=True)
class HeadMove:
    """A row of `thread_heads`."""

    id: int
    thread_id: str
    turn_id: str | None


_HEAD_MOVES = "SELECT id, thread_id, turn_id FROM thread_heads WHERE tenant_id = $1 ORDER BY id"


@dataclass(frozen=True)
class Effect:
    """A row of `effects`. `overdue_s`: how long it is due by the database's clock, or its lease is over."""

    id: str
    run_id: str
    kind: str
    status: str
    attempts: int
    error: str | None
    overdue_s: float


_EFFECTS = """
SELECT id, run_id, kind, status, attempts, error, extract(epoch FROM now() - due_at)::float8 AS overdue_s
  FROM effects WHERE tenant_id = $1
"""


@dataclass(frozen=True)
class Delivery:
    """A row of `deliveries` about the end of a run."""

    id: str
    run_id: str | None
    target: str
    status: str
    attempts: int
    error: str | None
    overdue_s: float


_DELIVERIES = """
SELECT id, run_id, target, status, attempts, error, extract(epoch FROM now() - due_at)::float8 AS overdue_s
  FROM deliveries WHERE tenant_id = $1 AND kind = 'run_completed'
"""


@dataclass(frozen=True)
class Trigger:
    """A row of `triggers`. `title`: ``every 2 s``, or ``occurrences`` and the times at which it must have fired."""

    id: str
    title: str | None
    created_at: datetime


_TRIGGERS = "SELECT id, title, created_at FROM triggers WHERE tenant_id = $1"


@dataclass(frozen=True)
class Firing:
    """A row of `trigger_firings`."""

    trigger_id: str
    scheduled_for: datetime
    fired_at: datetime
    outcome: str
    run_id: str | None


_FIRINGS = """
SELECT trigger_id, scheduled_for, fired_at, outcome, run_id
  FROM trigger_firings WHERE tenant_id = $1 AND NOT manual ORDER BY trigger_id, scheduled_for
"""

_WEBHOOKS = "SELECT id FROM webhooks WHERE tenant_id = $1"


@dataclass(frozen=True)
class Ledger:
    """All rows that the checker looks at.

    Attributes:
        webhooks: The ids of webhooks that get the end of every run.
        read_at: When reading began, by the wall clock. Triggers fire on, so what comes later is in no row of it.
    """

    runs: list[Run] = field(default_factory=list[Run])
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    turns: list[Turn] = field(default_factory=list[Turn])
    messages: list[Message] = field(default_factory=list[Message])
    calls: list[Call] = field(default_factory=list[Call])
    waits: list[Wait] = field(default_factory=list[Wait])
    threads: list[Thread] = field(default_factory=list[Thread])
    head_moves: list[HeadMove] = field(default_factory=list[HeadMove])
    effects: list[Effect] = field(default_factory=list[Effect])
    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    triggers: list[Trigger] = field(default_factory=list[Trigger])
    firings: list[Firing] = field(default_factory=list[Firing])
    webhooks: list[str] = field(default_factory=list[str])
    read_at: float = math.inf

    def messages_by_turn(self) -> dict[str, list[Message]]:
        """Return the messages of each turn, in their order."""
        by_turn: dict[str, list[Message]] = {}
        for message in self.messages:
            by_turn.setdefault(message.turn_id, []).append(message)
        return by_turn

    def turns_by_run(self) -> dict[str, list[Turn]]:
        """Return the turns of each run."""
        by_run: dict[str, list[Turn]] = {}
        for turn in self.turns:
            by_run.setdefault(turn.run_id, []).append(turn)
        return by_run


async def load(database_url: str, tenant_id: str) -> Ledger:
    """Read a tenant's rows at one moment."""
    connection = await asyncpg.connect(database_url)
    read_at = time.time()
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            read = _Reader(connection, tenant_id)
            return Ledger(
                runs=await read.rows(Run, _RUNS),
                attempts=await read.rows(Attempt, _ATTEMPTS),
                turns=await read.rows(Turn, _TURNS),
                messages=await read.rows(Message, _MESSAGES),
                calls=await read.rows(Call, _CALLS),
                waits=await read.rows(Wait, _WAITS),
                threads=await read.rows(Thread, _THREADS),
                head_moves=await read.rows(HeadMove, _HEAD_MOVES),
                effects=await read.rows(Effect, _EFFECTS),
                deliveries=await read.rows(Delivery, _DELIVERIES),
                triggers=await read.rows(Trigger, _TRIGGERS),
                firings=await read.rows(Firing, _FIRINGS),
                webhooks=[row["id"] for row in await connection.fetch(_WEBHOOKS, tenant_id)],
                read_at=read_at,
            )
    finally:
        await connection.close()


@dataclass(frozen=True)
class _Reader:
    connection: asyncpg.Connection
    tenant_id: str

    async def rows(self, kind: type[_T], statement: str) -> list[_T]:
        return [kind(**dict(row)) for row in await self.connection.fetch(statement, self.tenant_id)]
