"""Reads of runs: one run with its queue position, lists, and the state that event streams need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nova_workers.base.errors import existing
from nova_workers.base.vocabulary import ENDED_RUNS, EXTERNAL_WAITS, sql_list
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.http.wire import RunError, RunView, UsageView
from nova_workers.contracts.installs import describe_needs
from nova_workers.contracts.queue_positions import count_before
from nova_workers.contracts.runs import SHARED_LOSSES
from nova_workers.contracts.waits import HoldDetail, HoldView, describe_waits
from nova_workers.domain.runs.sql.claim import PAUSES
from nova_workers.domain.runs.sql.filters import POSITION, QUEUE_ORDER
from nova_workers.domain.runs.sql.installs import LACKING
from nova_workers.ledger.database import Connection, Row

_OWN = """
       r.id, r.thread_id, r.agent_id, r.agent_version, r.status, r.queue, r.on_busy, r.source, r.model,
       r.max_turns, r.options, r.priority, r.trigger_id, r.meta AS metadata, r.attempt, r.losses, r.cancel_requested_at,
       r.turn_id,
       r.merged_into, r.stop_reason, r.limit_reached, r.result_text AS text, r.output, r.error_kind, r.error_message,
       r.error_retryable, r.created_at, r.start_at, r.started_at, r.finished_at, r.seq,
       r.hold AS held_for, r.hold_detail, r.held_since, r.held_until,
       u.input_tokens, u.output_tokens, u.cache_read_tokens, u.cache_write_tokens, u.reasoning_tokens,
       u.cost_usd::float8 AS cost_usd
"""


def view_of_runs(runs: str) -> str:
    """Return the statement that reads runs as they are shown.

    Queue position and waiting reason are computed for queued runs only. The order is that of the claim: runs that were
    begun, then runs that interrupted, then by seq. Without :media the blocks of a message have no base64 data.

    Args:
        runs: The table, or the rows of a page: a limit behind the joins would compute them for all that it leaves out.
    """
    return f"""
SELECT {_OWN},
       CASE WHEN :media::boolean THEN r.content
            ELSE (SELECT COALESCE(jsonb_agg(CASE WHEN part.block #>> '{{source,type}}' = 'base64'
                                                 THEN part.block #- '{{source,data}}' ELSE part.block END
                                            ORDER BY part.at), '[]')
                    FROM jsonb_array_elements(r.content) WITH ORDINALITY AS part (block, at)) END AS message,
       line.position, line.active_run_id, line.paused, line.pause_reason, line.full_cap, line.lacking,
       COALESCE(wait.waits, '[]') AS waits
  FROM {runs} r
  LEFT JOIN usage u ON u.run_id = r.id
  LEFT JOIN LATERAL (
        SELECT {POSITION} AS position,
               t.active_run_id, s.scope AS paused, s.reason AS pause_reason,
               CASE WHEN w.max_running IS NOT NULL
                     AND w.max_running <= (SELECT count(*) FROM runs o
                                            WHERE o.tenant_id = w.id AND o.status = 'running') THEN 'tenant'
                    WHEN a.max_running IS NOT NULL
                     AND a.max_running <= (SELECT count(*) FROM runs o
                                            WHERE o.tenant_id = w.id AND o.agent_id = a.id AND o.status = 'running')
                    THEN 'agent' END AS full_cap,
               {LACKING} AS lacking
          FROM threads t
          JOIN tenants w ON w.id = r.tenant_id
          JOIN agents a ON a.tenant_id = r.tenant_id AND a.id = r.agent_id
          LEFT JOIN LATERAL (
                SELECT s.scope, s.reason FROM switches s
                 WHERE {PAUSES}
                 LIMIT 1) s ON true
         WHERE t.id = r.thread_id) line ON r.status = 'queued'
  LEFT JOIN LATERAL (
        SELECT jsonb_agg(jsonb_build_object('id', w.id, 'run_id', w.run_id, 'thread_id', r.thread_id, 'agent_id',
                                            r.agent_id, 'tool_call_id', w.tool_call_id, 'request', w.request,
                                            'child_run_id', w.child_run_id, 'due_at', w.due_at, 'created_at',
                                            w.created_at) ORDER BY w.id) AS waits
          FROM run_waits w WHERE w.run_id = r.id AND w.status = 'open') wait ON r.status = 'waiting'
"""


_GET = f"{view_of_runs('runs')} WHERE r.tenant_id = :tenant_id AND r.id = :run_id"

# What a request that waited for the end reads. An ended run has no place in a queue and waits for nothing; without
# these joins the view costs Postgres 0.045 ms of CPU in place of 0.115.
_GET_ENDED = f"""
SELECT {_OWN}, r.content AS message, NULL::int AS position, '[]'::jsonb AS waits
  FROM runs r
  LEFT JOIN usage u ON u.run_id = r.id
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id AND r.status IN {sql_list(ENDED_RUNS)}
"""

# By seq, which has an index with the thread.
_PAGE_OF_THREAD = """
(SELECT * FROM runs r
  WHERE r.tenant_id = :tenant_id AND r.thread_id = :thread_id AND (:before_seq::bigint IS NULL OR r.seq < :before_seq)
  ORDER BY r.seq DESC
  LIMIT :limit)
"""
_LIST_OF_THREAD = f"{view_of_runs(_PAGE_OF_THREAD)} ORDER BY r.seq DESC"

_STATE = """
SELECT id, thread_id, agent_id, status, attempt, final_event_id, merged_into
  FROM runs WHERE tenant_id = :tenant_id AND id = :run_id
"""

_OPEN_OF_THREAD = f"""
SELECT COALESCE(t.active_run_id,
                (SELECT r.id FROM runs r
                  WHERE r.thread_id = t.id AND r.status = 'queued'
                  ORDER BY {QUEUE_ORDER}
                  LIMIT 1)) AS id
  FROM threads t
 WHERE t.tenant_id = :tenant_id AND t.id = :thread_id
"""

_ENDED_AMONG = f"""
SELECT id FROM runs WHERE id = ANY(:run_ids::text[]) AND status IN {sql_list(ENDED_RUNS)}
"""

_WAITING_AMONG = f"""
SELECT r.id, r.attempt,
       EXISTS (SELECT 1 FROM run_waits w
                WHERE w.run_id = r.id AND w.status = 'open' AND w.kind IN {sql_list(EXTERNAL_WAITS)}) AS asks
  FROM runs r
 WHERE r.id = ANY(:run_ids::text[])
   AND (r.status = 'waiting' OR (r.status = 'queued' AND r.hold IS NOT NULL AND r.attempt = 0))
"""


@dataclass(frozen=True, slots=True)
class SuspendedRun:
    """A run that waits, or is held before its first attempt.

    Attributes:
        attempt: The attempt that suspended it; 0 of a run that is held.
        asks: Whether it waits for a person, or for its caller.
    """

    attempt: int
    asks: bool


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run that its event streams need."""

    run_id: str
    thread_id: str
    agent_id: str
    status: str
    attempt: int
    final_event: EventCursor | None
    merged_into: str | None = None

    @classmethod
    def accepted(cls, run_id: str, thread_id: str, agent_id: str) -> RunState:
        """Return the state of a run that was just accepted, without a read."""
        return cls(run_id, thread_id, agent_id, status="queued", attempt=0, final_event=None)

    @property
    def ended(self) -> bool:
        """Whether the run has ended."""
        return self.status in ENDED_RUNS


async def get_run(connection: Connection, tenant_id: str, run_id: str) -> RunView:
    """Return a run.

    Raises:
        NotFound: There is no such run.
    """
    row = existing(await connection.fetchrow(_GET, tenant_id=tenant_id, run_id=run_id, media=True), "run", run_id)
    return _view(row)


async def get_ended_run(connection: Connection, tenant_id: str, run_id: str) -> RunView | None:
    """Return a run that has ended; None if it has not, or there is no such run."""
    row = await connection.fetchrow(_GET_ENDED, tenant_id=tenant_id, run_id=run_id)
    return None if row is None else _view(row)


async def list_thread_runs(
    connection: Connection,
    tenant_id: str,
    thread_id: str,
    *,
    before_seq: int | None,
    limit: int,
    media: bool = True,
) -> list[tuple[RunView, int]]:
    """Return a thread's runs with their seq, newest first, from before `before_seq`.

    Without `media`, images and documents of messages have no base64 data.
    """
    rows = await connection.fetch(
        _LIST_OF_THREAD, tenant_id=tenant_id, thread_id=thread_id, before_seq=before_seq, limit=limit, media=media
    )
    return [(_view(row), row["seq"]) for row in rows]


async def run_state(connection: Connection, tenant_id: str, run_id: str) -> RunState:
    """Return a run's state.

    Raises:
        NotFound: There is no such run.
    """
    row = existing(await connection.fetchrow(_STATE, tenant_id=tenant_id, run_id=run_id), "run", run_id)
    final = row["final_event_id"]
    return RunState(
        run_id=row["id"],
        thread_id=row["thread_id"],
        agent_id=row["agent_id"],
        status=row["status"],
        attempt=row["attempt"],
        final_event=None if final is None else EventCursor.parse(final),
        merged_into=row["merged_into"],
    )


async def find_open_run(connection: Connection, tenant_id: str, thread_id: str) -> RunView | None:
    """Return the run that holds a thread, or the next in its queue; None if it has no open run."""
    run_id = await connection.fetchval(_OPEN_OF_THREAD, tenant_id=tenant_id, thread_id=thread_id)
    return None if run_id is None else await get_run(connection, tenant_id, run_id)


async def find_ended(connection: Connection, run_ids: Sequence[str]) -> set[str]:
    """Return the ids of `run_ids` that have ended. Does not check tenants: callers have done so."""
    return {row["id"] for row in await connection.fetch(_ENDED_AMONG, run_ids=list(run_ids))}


async def find_waiting(connection: Connection, run_ids: Sequence[str]) -> dict[str, SuspendedRun]:
    """Return those of `run_ids` that wait, or are held before their first attempt.

    Does not check tenants: callers have done so.
    """
    rows = await connection.fetch(_WAITING_AMONG, run_ids=list(run_ids))
    return {row["id"]: SuspendedRun(row["attempt"], row["asks"]) for row in rows}


_USAGE = tuple(UsageView.model_fields)


def views(rows: Iterable[Row]) -> list[RunView]:
    """Return runs as they are shown, from rows of `view_of_runs`."""
    return [_view(row) for row in rows]


def _view(row: Row) -> RunView:
    error = None
    if row["error_kind"] is not None:
        error = RunError(
            kind=row["error_kind"], message=row["error_message"] or "", retryable=bool(row["error_retryable"])
        )
    return RunView(
        **row,
        **shown_options(row["options"]),
        suspect=row["status"] not in ENDED_RUNS and row["losses"] >= SHARED_LOSSES,
        waiting_for=_waiting_for(row),
        hold=_hold(row),
        error=error,
        # By its own names: the row has eight times as many, which cost 3 µs of each request that waits for a run.
        usage=None if row["input_tokens"] is None else UsageView(**{name: row[name] for name in _USAGE}),
    )


def shown_options(stored: JsonObject | None) -> dict[str, Any]:
    """Return the options of a run as its view has them: of the tools of its caller, the names."""
    if stored is None:
        return {}
    return {**stored, "client_tools": [tool["name"] for tool in stored.get("client_tools", ())]}


def _hold(row: Row) -> HoldView | None:
    if row["held_for"] is None or row["status"] != "queued":
        return None
    detail = HoldDetail.model_validate(row["hold_detail"])
    return HoldView.of(row["held_for"], detail, row["held_since"], row["held_until"])


FREE_WORKER = "a free worker"
"""What a queued run waits for if nothing else holds it back."""

_PAUSED = {
    "fleet": "the fleet is paused",
    "tenant": "the tenant is paused",
    "agent": "its agent is paused",
    "rename": "its agent is being renamed",
}


def _waiting_for(row: Row) -> str | None:
    match row["status"]:
        case "waiting":
            return describe_waits(wait["request"]["kind"] for wait in row["waits"]) or "its turn"
        case "scheduled":
            return f"its start at {row['start_at'].isoformat(timespec='seconds')}"
        case "queued" if row["held_for"] is not None and row["paused"] is None:
            return f"its model provider: {HoldDetail.model_validate(row['hold_detail']).summary}"
        case "queued":
            return _why_queued(row)
        case _:
            return None


def _why_queued(row: Row) -> str:
    if row["paused"] is not None:
        reason = row["pause_reason"]
        return _PAUSED[row["paused"]] + (f": {reason}" if reason else "")
    return _which_run_is_before(row) or _which_worker_lacks(row)


def _which_run_is_before(row: Row) -> str | None:
    if row["active_run_id"] is not None:
        return f"run {row['active_run_id']}, which holds the thread"
    if row["position"]:
        return f"{count_before(row['position'])} earlier in the thread's line"
    return None


def _which_worker_lacks(row: Row) -> str:
    full = row["full_cap"]
    if full is not None:
        return f"room: its {full} has as many runs at once as it may"
    if row["lacking"] is not None:
        return f"a worker that has {describe_needs(row['lacking'])}"
    if row["losses"] >= SHARED_LOSSES:
        return f"a process of its own, since it lost its worker {row['losses']} times"
    return FREE_WORKER
