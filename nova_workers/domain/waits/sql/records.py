"""Waits of runs, and how a wait ends: the last answer requeues the run.

A waiting run keeps its thread, so later runs of the thread wait too. An answer is a transaction of two statements: the
first locks the thread's row, so that the second sees what was committed meanwhile. Two answers to one run are
serialized, and the second sees the result of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog
from pydantic import ValidationError

from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import ANSWERABLE, ENDED_RUNS, EndedRunStatus, ResolvedWaitStatus, sql_list
from nova_workers.contracts.content import ContentBlock, JsonObject, storable
from nova_workers.contracts.runs import Doorbell
from nova_workers.contracts.user_tools import GivenAnswer
from nova_workers.contracts.waits import MAX_DELEGATION_DEPTH, AskUser, WaitRequest, wait_adapter
from nova_workers.domain.waits.sql.questions import close_questions
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.inserts import insert_runs, insert_threads
from nova_workers.ledger.stored import read_stored

_log = structlog.get_logger(__name__)

_WAIT_COLUMNS = """
w.id, w.tenant_id, w.run_id, w.tool_call_id, w.kind, w.request, w.child_run_id, w.status, w.answer, w.due_at,
w.created_at, r.thread_id, r.agent_id
"""

_FIND = f"""
SELECT {_WAIT_COLUMNS}
  FROM run_waits w JOIN runs r ON r.id = w.run_id
 WHERE w.tenant_id = :tenant_id AND w.run_id = :run_id AND (:wait_id::text IS NULL OR w.id = :wait_id)
 ORDER BY w.status <> 'open', w.id
"""

_LIST = f"""
SELECT {_WAIT_COLUMNS}
  FROM run_waits w JOIN runs r ON r.id = w.run_id
 WHERE w.tenant_id = :tenant_id AND w.status = 'open' AND w.kind = ANY(:kinds::text[])
   AND (:before::text IS NULL OR w.id < :before) AND (:agent_id::text IS NULL OR r.agent_id = :agent_id)
 ORDER BY w.id DESC
 LIMIT :limit
"""

_ENDS: Mapping[str | None, EndedRunStatus] = {"COMPLETED": "succeeded", "FAILED": "failed", "KILLED": "canceled"}

_LOCK = """
SELECT t.id FROM threads t JOIN runs r ON r.thread_id = t.id WHERE r.id = :run_id FOR UPDATE OF t
"""

# Ends waits of a run. The run's last open wait requeues it, to continue with its open step. Of two concurrent answers
# to one wait only one finds it `open`. One that was passed to an agent since it was read is left as it is: its caller
# does not know that agent's run.
_RESOLVE = """
WITH given AS (
    SELECT * FROM jsonb_to_recordset(:resolutions) AS x(wait_id text, child_run_id text, status text, answer jsonb,
                                                        call_status text, result jsonb, error text)
), wait AS (
    UPDATE run_waits w SET status = g.status, answer = g.answer, resolved_at = now()
      FROM given g
     WHERE w.id = g.wait_id AND w.run_id = :run_id AND w.status = 'open'
       AND w.child_run_id IS NOT DISTINCT FROM g.child_run_id
    RETURNING w.id, w.run_id, w.tool_call_id, g.call_status, g.result, g.error
), call AS (
    UPDATE tool_calls c
       SET status = wait.call_status, result = wait.result, error = wait.error,
           completed_at = CASE WHEN wait.call_status = 'approved' THEN NULL ELSE clock_timestamp() END
      FROM wait JOIN runs r ON r.id = wait.run_id
     WHERE c.turn_id = r.turn_id AND c.call_id = wait.tool_call_id AND c.status = 'deferred'
), back AS (
    UPDATE runs r
       SET status = 'queued', queued_at = now(), rang_at = now()
     WHERE r.id = :run_id AND r.status = 'waiting' AND EXISTS (SELECT 1 FROM wait)
       AND NOT EXISTS (SELECT 1 FROM run_waits o
                        WHERE o.run_id = r.id AND o.status = 'open' AND o.id NOT IN (SELECT wait.id FROM wait))
    RETURNING r.id, r.thread_id, r.queue, r.turn_id
), freed AS (
    UPDATE threads t SET active_run_id = NULL FROM back WHERE t.id = back.thread_id AND t.active_run_id = back.id
), turn AS (
    UPDATE turns t SET status = 'running' FROM back WHERE t.id = back.turn_id
)
SELECT wait.id AS wait_id, back.id, back.thread_id, back.queue FROM wait LEFT JOIN back ON true
"""

_ANSWERS = """
SELECT request->>'question' AS question, answer->>'text' AS text
  FROM run_waits
 WHERE run_id = :run_id AND tool_call_id = :call_id AND kind = 'user' AND status IN ('resolved', 'timed_out')
 ORDER BY created_at, id
"""

_DUE = f"""
SELECT {_WAIT_COLUMNS}
  FROM run_waits w JOIN runs r ON r.id = w.run_id
 WHERE w.status = 'open' AND w.due_at <= now()
 ORDER BY w.due_at
 LIMIT :limit
"""

_OF_ENDED_CHILDREN = f"""
SELECT {_WAIT_COLUMNS}, c.status AS child_status, COALESCE(a.summary, c.result_text) AS result_text,
       COALESCE(a.error_message, c.error_message) AS error_message, a.state
  FROM run_waits w JOIN runs c ON c.id = w.child_run_id JOIN runs r ON r.id = w.run_id
  LEFT JOIN orchestration_agents a ON a.thread_id = c.thread_id AND a.run_id = c.id
 WHERE w.status = 'open' AND c.status IN {sql_list(ENDED_RUNS)}
   AND (:child_run_ids::text[] IS NULL OR c.id = ANY(:child_run_ids))
   AND (:ended_within::interval IS NULL OR c.finished_at > now() - :ended_within)
 LIMIT :limit
"""

_CHILD = insert_runs(
    "asked",
    id=":run_id",
    tenant_id="tenant_id",
    thread_id=":thread_id",
    agent_id="agent_id",
    seq="1",
    content=":content",
    queue="queue",
    priority="priority",
    source="'agent'",
    parent_run_id="run_id",
    depth="depth + 1",
    traceparent="traceparent",
)

# Passes an unanswered question to an agent: the wait stays open, and waits for that agent's run. It does nothing if the
# wait was answered meanwhile, or its run is to be canceled; a cancel that comes now waits for the run, and then finds
# the new child. At most `max_depth` agents wait for one another. An agent that was renamed is asked under its id now.
_ESCALATE = f"""
WITH asked AS (
    SELECT w.id, w.tenant_id, w.tool_call_id, a.id AS agent_id, r.id AS run_id, r.turn_id, r.queue, r.priority, r.depth,
           r.traceparent
      FROM run_waits w JOIN runs r ON r.id = w.run_id
      JOIN agents f ON f.tenant_id = w.tenant_id AND f.id = :agent_id
      JOIN agents a ON a.tenant_id = w.tenant_id AND a.id = COALESCE(f.renamed_to, f.id) AND a.deleted_at IS NULL
     WHERE w.id = :wait_id AND w.status = 'open' AND w.child_run_id IS NULL AND r.depth + 1 < :max_depth
       AND r.cancel_requested_at IS NULL
       FOR UPDATE OF r, w
), thread AS (
    {insert_threads("asked", id=":thread_id", agent_id="agent_id", origin="'agent'")}
), child AS (
    {_CHILD}
), moved AS (
    UPDATE run_waits w SET child_run_id = :run_id, due_at = NULL FROM asked WHERE w.id = asked.id
), call AS (
    UPDATE tool_calls c SET spawned_run_id = :run_id
      FROM asked WHERE c.turn_id = asked.turn_id AND c.call_id = asked.tool_call_id
)
SELECT id AS run_id, thread_id, queue FROM child
"""


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait and its run."""

    id: str
    tenant_id: str
    run_id: str
    thread_id: str
    agent_id: str
    tool_call_id: str
    request: WaitRequest
    child_run_id: str | None
    status: str
    answer: JsonObject | None
    due_at: datetime | None
    created_at: datetime
    child_end: tuple[str, str] | None = None
    """Status of the child run, and its answer or error."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a wait ends, and the result of its tool call.

    Attributes:
        result: Content for the model. None if the call is approved: executing it gives the result.
    """

    status: ResolvedWaitStatus
    answer: JsonObject
    result: tuple[ContentBlock, ...] | None
    failed: bool = False
    error: str | None = None


async def find_wait(connection: Connection, tenant_id: str, run_id: str, wait_id: str | None) -> list[Wait]:
    """Return the waits of a tenant's run, open ones first; only `wait_id` if given."""
    return _waits(await connection.fetch(_FIND, tenant_id=tenant_id, run_id=run_id, wait_id=wait_id))


async def find_answers(connection: Connection, run_id: str, call_id: str) -> tuple[GivenAnswer, ...]:
    """Return the answers to the questions that a call has asked, in their order."""
    rows = await connection.fetch(_ANSWERS, run_id=run_id, call_id=call_id)
    return tuple(GivenAnswer(question=row["question"], text=row["text"]) for row in rows)


async def list_waits(
    connection: Connection,
    tenant_id: str,
    *,
    kinds: Sequence[str],
    before: str | None,
    agent_id: str | None,
    limit: int,
) -> list[Wait]:
    """Return a tenant's open waits, newest first, from before `before`."""
    return _waits(
        await connection.fetch(
            _LIST, tenant_id=tenant_id, kinds=list(kinds), before=before, agent_id=agent_id, limit=limit
        )
    )


async def resolve_wait(connection: Connection, wait: Wait, resolution: Resolution) -> tuple[bool, Doorbell | None]:
    """End a wait and close its inbox item. Call it in a transaction.

    Returns:
        Whether it was still open and as it was read, and the run's doorbell if the run is queued again.
    """
    ended, bell = await resolve_waits(connection, [(wait, resolution)])
    return bool(ended), bell


async def resolve_waits(
    connection: Connection, resolutions: Sequence[tuple[Wait, Resolution]]
) -> tuple[set[str], Doorbell | None]:
    """End waits of one run and close their inbox items. Call it in a transaction.

    Returns:
        The ids of those that were still open and as they were read, and the run's doorbell if it is queued again.
    """
    run_id = resolutions[0][0].run_id
    await connection.fetchval(_LOCK, run_id=run_id)
    given = [_resolution_row(wait, resolution) for wait, resolution in resolutions]
    rows = await connection.fetch(_RESOLVE, run_id=run_id, resolutions=given)
    if not rows:
        return set(), None
    ended = {row["wait_id"] for row in rows}
    await close_questions(connection, [wait.id for wait, _ in resolutions if wait.id in ended and _asks(wait)])
    first = rows[0]
    return ended, None if first["id"] is None else Doorbell(first["id"], first["thread_id"], first["queue"])


def _asks(wait: Wait) -> bool:
    return wait.request.kind in ANSWERABLE


def _resolution_row(wait: Wait, resolution: Resolution) -> JsonObject:
    if isinstance(wait.request, AskUser) and wait.request.repeats_call:
        # Its tool is called again, and reads the answer: `find_answers`.
        resolution = replace(resolution, result=None, error=None)
    return {
        "wait_id": wait.id,
        "child_run_id": wait.child_run_id,
        "status": resolution.status,
        "answer": resolution.answer,
        "call_status": "approved" if resolution.result is None else "failed" if resolution.failed else "completed",
        "result": None if resolution.result is None else list(resolution.result),
        "error": None if resolution.error is None else storable(resolution.error),
    }


async def find_due_waits(connection: Connection, *, limit: int) -> list[Wait]:
    """Return open waits that are due, oldest first."""
    return _waits(await connection.fetch(_DUE, limit=limit))


async def find_waits_of_ended_children(
    connection: Connection,
    *,
    child_run_ids: Sequence[str] | None = None,
    ended_within: timedelta | None = None,
    limit: int = 500,
) -> list[Wait]:
    """Return open waits whose child run has ended.

    Args:
        child_run_ids: Only of these children; None for all.
        ended_within: Only children that ended in this period.
        limit: Most waits to return.
    """
    ids = None if child_run_ids is None else list(child_run_ids)
    rows = await connection.fetch(_OF_ENDED_CHILDREN, child_run_ids=ids, ended_within=ended_within, limit=limit)
    return _waits(rows, _child_end)


async def escalate(connection: Connection, wait: Wait, agent_id: str, message: str) -> Doorbell | None:
    """Pass an unanswered question to an agent. Call it in a transaction.

    None if there is no such agent, too many agents wait for one another, or the question was answered meanwhile.
    """
    content = [{"type": "text", "text": message}]
    await connection.fetchval(_LOCK, run_id=wait.run_id)
    row = await connection.fetchrow(
        _ESCALATE,
        wait_id=wait.id,
        agent_id=agent_id,
        thread_id=new_id("thr"),
        run_id=new_id("run"),
        content=content,
        max_depth=MAX_DELEGATION_DEPTH,
    )
    return None if row is None else Doorbell(**row)


def _child_end(row: Row) -> tuple[str, str]:
    """Return how a child run ended. For the master of an orchestration: how the orchestration did."""
    status = _ENDS.get(row["state"])
    if status is None:
        return row["child_status"], row["result_text"] or row["error_message"] or ""
    return status, "\n\n".join(filter(None, (row["error_message"], row["result_text"])))


def _waits(rows: Iterable[Row], child_end: Callable[[Row], tuple[str, str] | None] = lambda _: None) -> list[Wait]:
    """Return the waits of rows. A wait that cannot be parsed is logged and skipped, so it does not block the others."""
    waits: list[Wait] = []
    for row in rows:
        try:
            waits.append(wait_of(row, child_end(row)))
        except ValidationError:
            _log.exception("wait.not_read", tenant_id=row["tenant_id"], run_id=row["run_id"], wait_id=row["id"])
    return waits


def wait_of(row: Row, child_end: tuple[str, str] | None = None) -> Wait:
    """Return the wait of a row."""
    return Wait(
        id=row["id"],
        tenant_id=row["tenant_id"],
        run_id=row["run_id"],
        thread_id=row["thread_id"],
        agent_id=row["agent_id"],
        tool_call_id=row["tool_call_id"],
        request=read_stored(wait_adapter.validate_python, row["request"]),
        child_run_id=row["child_run_id"],
        status=row["status"],
        answer=row["answer"],
        due_at=row["due_at"],
        created_at=row["created_at"],
        child_end=child_end,
    )
