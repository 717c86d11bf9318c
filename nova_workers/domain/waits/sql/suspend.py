"""Suspends a run, which frees its worker slot until its waits end, in one fenced statement. See `waits.sql.records`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from nova_workers.base.errors import RunLost
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import SuspendedStatus
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.deliveries import INBOX
from nova_workers.contracts.runs import Claim, Doorbell, TurnFacts
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import WaitRequest
from nova_workers.domain.runs.sql.filters import IS_RUNNING
from nova_workers.domain.runs.sql.journal import FACTS, FACTS_ROW, usage_values
from nova_workers.domain.waits.sql.questions import inbox_item
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_attempts, insert_runs, insert_threads

_CHILDREN = insert_runs(
    "asked",
    id="child_run_id",
    tenant_id="tenant_id",
    thread_id="child_thread_id",
    agent_id="child_agent_id",
    seq="1",
    content="child_content",
    queue="queue",
    priority="priority",
    source="'agent'",
    parent_run_id="run_id",
    depth="depth + 1",
    traceparent="traceparent",
)

# Suspends a run under its fence. If a cancellation was requested meanwhile, the run is queued instead, and the next
# claim ends it. Child runs with their threads, and inbox items, are inserted by the same statement: a crash leaves no
# child without a waiting parent. `tool_…` is the model usage of the open step's tools.
_SUSPEND = f"""
WITH thread AS (
    SELECT id FROM threads WHERE id = :thread_id FOR UPDATE
), mine AS (
    UPDATE runs r
       SET status = CASE WHEN r.cancel_requested_at IS NULL THEN 'waiting' ELSE 'queued' END,
           lease_expires_at = NULL, worker_id = NULL, queued_at = now(), rang_at = now(),
           losses = CASE WHEN :clears THEN 0 ELSE r.losses END
      FROM thread, runs o
     WHERE r.id = :run_id AND r.fence = :fence AND {IS_RUNNING} AND r.thread_id = thread.id AND o.id = r.id
    RETURNING r.*, o.worker_id AS holder_id
), ended AS (
    {insert_attempts("mine", ended="waiting")}
), freed AS (
    UPDATE threads SET active_run_id = NULL FROM mine WHERE threads.id = mine.thread_id AND mine.status = 'queued'
), wanted AS (
    SELECT mine.tenant_id, mine.id AS run_id, mine.turn_id, mine.queue, mine.priority, mine.depth, mine.traceparent,
           mine.agent_id, mine.thread_id, x.*
      FROM mine, jsonb_to_recordset(:waits) AS x(id text, tool_call_id text, kind text, request jsonb, due_in_s float8,
                                             child_run_id text, child_thread_id text, child_agent_id text,
                                             child_content jsonb, item_kind text, item jsonb,
                                             started_at timestamptz)
     WHERE mine.status = 'waiting'
), waits AS (
    INSERT INTO run_waits (id, tenant_id, run_id, tool_call_id, kind, request, child_run_id, due_at)
    SELECT id, tenant_id, run_id, tool_call_id, kind, request, child_run_id, now() + due_in_s * interval '1 second'
      FROM wanted
), questions AS (
    INSERT INTO deliveries (id, tenant_id, kind, target, payload, agent_id, thread_id, run_id)
    SELECT 'dlv_' || substr(id, 6), tenant_id, item_kind, '{INBOX}',
           item || jsonb_build_object('due_at', now() + due_in_s * interval '1 second'), agent_id, thread_id, run_id
      FROM wanted WHERE item_kind IS NOT NULL
), calls AS (
    UPDATE tool_calls c
       SET status = 'deferred', spawned_run_id = w.child_run_id, started_at = COALESCE(c.started_at, w.started_at)
      FROM wanted w
     WHERE c.turn_id = w.turn_id AND c.call_id = w.tool_call_id
), asked AS (
    SELECT * FROM wanted WHERE child_thread_id IS NOT NULL
), children_threads AS (
    {insert_threads("asked", id="child_thread_id", agent_id="child_agent_id", origin="'agent'")}
), children AS (
    {_CHILDREN}
), turn AS (
    UPDATE turns t
       SET status = CASE WHEN mine.status = 'waiting' THEN 'waiting' ELSE t.status END,
           input_tokens = t.input_tokens + :tool_input_tokens, output_tokens = t.output_tokens + :tool_output_tokens,
           cache_read_tokens = t.cache_read_tokens + :tool_cache_read_tokens,
           cache_write_tokens = t.cache_write_tokens + :tool_cache_write_tokens,
           reasoning_tokens = t.reasoning_tokens + :tool_reasoning_tokens,
           cost_usd = t.cost_usd + :tool_cost_usd::float8::numeric,
           {FACTS}
      FROM mine, {FACTS_ROW}
     WHERE t.id = mine.turn_id
)
SELECT status FROM mine
"""

# Whether this claim already suspended its run: the reply was lost, and no worker has claimed the run since.
_SUSPENDED = "SELECT status FROM runs WHERE id = :run_id AND fence = :fence AND status IN ('waiting', 'queued')"


@dataclass(frozen=True, slots=True)
class NewWait:
    """A call whose result comes from outside.

    With `agent_id`, a child run of that agent is made to produce it; `child_run_id` is a run that exists.
    """

    tool_call_id: str
    request: WaitRequest
    due_in_s: float | None = None
    agent_id: str | None = None
    message: str | None = None
    child_run_id: str | None = None
    started_at: datetime | None = None
    """When a call began that is made again with the answer; None of others."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """The run's new status, and the doorbells of its child runs."""

    status: SuspendedStatus
    children: tuple[Doorbell, ...]


async def suspend_run(
    connection: Connection,
    claim: Claim,
    waits: Sequence[NewWait],
    tool_usage: TokenUsage,
    facts: TurnFacts,
    *,
    clears: bool = False,
) -> Suspended:
    """Suspend a run until its waits end.

    Args:
        waits: Of the calls of its open step.
        tool_usage: Of the model, by the other calls of this step.
        facts: Configuration of the turn.
        clears: Whether to set the losses of the run back to none.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    rows = [_row(wait) for wait in waits]
    status = await connection.fetchval(
        _SUSPEND,
        run_id=claim.run_id,
        fence=claim.fence,
        waits=rows,
        thread_id=claim.thread_id,
        **usage_values(tool_usage, of="tool_"),
        facts=asdict(facts),
        clears=clears,
    )
    if status is None:
        status = await connection.fetchval(_SUSPENDED, run_id=claim.run_id, fence=claim.fence)
    if status is None:
        raise RunLost(f"Run {claim.run_id!r} is no longer held under fence {claim.fence}.", run_id=claim.run_id)
    children = tuple(
        Doorbell(row["child_run_id"], row["child_thread_id"], claim.queue)
        for row in rows
        if row["child_thread_id"] is not None
    )
    return Suspended(status, children if status == "waiting" else ())


def _row(wait: NewWait) -> JsonObject:
    asks = wait.agent_id is not None
    wait_id = new_id("wait")
    item = inbox_item(wait_id, wait.request)
    request = wait.request.model_dump(mode="json")
    for added in ("only_options", "repeats_call"):
        # Releases before these fields read the requests of questions without them.
        if not request.get(added):
            request.pop(added, None)
    return {
        "id": wait_id,
        "tool_call_id": wait.tool_call_id,
        "kind": wait.request.kind,
        "request": request,
        "due_in_s": wait.due_in_s,
        "child_run_id": new_id("run") if asks else wait.child_run_id,
        "child_thread_id": new_id("thr") if asks else None,
        "child_agent_id": wait.agent_id,
        "child_content": [{"type": "text", "text": wait.message}] if asks else None,
        "item_kind": None if item is None else item[0],
        "item": None if item is None else item[1],
        "started_at": wait.started_at,
    }
