"""Inserts runs for messages, with idempotency keys.

Lock order in every transition: the thread's row first, then rows of its runs, so that two transitions cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import DUE_RUNS, sql_list
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.runs import Accepted, Submission
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.inserts import insert_runs, insert_threads
from nova_workers.ledger.stored import read_stored

_START = "COALESCE(:start_at::timestamptz, now() + :collect_ms * interval '1 millisecond')"

# A run of an inbound channel is a request of that channel's program.
_ORIGIN = "CASE WHEN :source = 'api' AND :metadata::jsonb ? 'channel' THEN 'channel' ELSE :source END"

_THREAD = insert_threads(
    "agent", id=":thread_id", agent_id="id", origin=_ORIGIN, created_by=":created_by", ephemeral=":ephemeral"
)
_RUN = insert_runs(
    "thread",
    id=":run_id",
    tenant_id="tenant_id",
    thread_id="id",
    agent_id="agent_id",
    seq="seq",
    content=":content",
    on_busy=":on_busy",
    queue=":queue",
    source=":source",
    model=":model",
    max_turns=":max_turns",
    options=":options",
    meta=":metadata",
    parent_run_id=":parent_run_id",
    traceparent=":traceparent",
    front=":front",
    priority=":priority",
    trigger_id=":trigger_id",
    status=f"CASE WHEN {_START} > now() THEN 'scheduled' ELSE 'queued' END",
    start_at=_START,
)

# One statement takes the next seq and inserts the run. The lock on the thread's row makes the order of seqs the order
# of commits. A thread may still have a former id of an agent that is being renamed.
_INSERT_RUN = f"""
WITH thread AS (
    UPDATE threads t
       SET next_seq = t.next_seq + 1, updated_at = now()
      FROM agents a
     WHERE t.id = :thread_id AND t.tenant_id = :tenant_id AND t.deleted_at IS NULL
       AND a.tenant_id = t.tenant_id AND a.id = t.agent_id
       AND (a.deleted_at IS NULL OR a.renamed_to IS NOT NULL)
    RETURNING t.id, t.tenant_id, t.agent_id, t.next_seq - 1 AS seq
)
{_RUN}
"""

# As above, and makes the thread in the same statement.
_INSERT_RUN_ON_NEW_THREAD = f"""
WITH agent AS (
    SELECT id, tenant_id FROM agents WHERE tenant_id = :tenant_id AND id = :agent_id AND deleted_at IS NULL
), thread AS (
    {_THREAD}
    RETURNING id, tenant_id, agent_id, 1 AS seq
)
{_RUN}
"""

_FIND_RUN = """
SELECT id, thread_id, agent_id, seq, queue, created_at, status, start_at
  FROM runs
 WHERE id = :run_id AND tenant_id = :tenant_id
"""

_LOCK_THREAD = (
    "SELECT id FROM threads WHERE id = :thread_id AND tenant_id = :tenant_id AND deleted_at IS NULL FOR UPDATE"
)

# The run that is running or waiting, else the one that a claim would take next; the order repeats the claim's.
_BUSY_RUN = f"""
SELECT id
  FROM runs
 WHERE thread_id = :thread_id AND status IN {sql_list(DUE_RUNS)}
 ORDER BY status IN ('running', 'waiting') DESC, attempt > 0 DESC, front DESC, seq
 LIMIT 1
"""

# Cancels the run that is running or waiting, or that was begun and is queued again.
_INTERRUPT = """
UPDATE runs
   SET cancel_requested_at = COALESCE(cancel_requested_at, now()),
       cancel_reason = COALESCE(cancel_reason, 'interrupt')
 WHERE thread_id = :thread_id AND (status IN ('running', 'waiting') OR (status = 'queued' AND attempt > 0))
RETURNING id
"""

# With what the claim would else look up: what the version needs. A former id has no versions.
_ASK_FOR_VERSION = """
UPDATE runs r
   SET asked_version = v.version, needs = agent_needs(v.spec)
  FROM agents a, agent_versions v
 WHERE r.tenant_id = :tenant_id AND r.id = ANY(:run_ids::text[]) AND r.agent_version IS NULL
   AND a.tenant_id = r.tenant_id AND a.id = r.agent_id
   AND v.tenant_id = a.tenant_id AND v.agent_id = COALESCE(a.renamed_to, a.id) AND v.version = :version::int
RETURNING r.id
"""

_ADDRESSED = """
SELECT a.spec, t.orchestration_id IS NOT NULL AS orchestrated
  FROM agents a LEFT JOIN threads t ON t.id = :thread_id AND t.tenant_id = a.tenant_id
 WHERE a.tenant_id = :tenant_id AND a.id = CASE WHEN :thread_id::text IS NULL THEN :agent_id ELSE t.agent_id END
"""

# A message that joined another run's turn ends with that run.
_CONTINUED = """
SELECT r.thread_id, t.id AS turn_id, COALESCE(o.status, r.status) AS status
  FROM runs r LEFT JOIN turns t ON t.id = r.turn_id LEFT JOIN runs o ON o.id = t.run_id
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id
"""

_HEAD = "SELECT head_turn_id FROM threads WHERE tenant_id = :tenant_id AND id = :thread_id AND deleted_at IS NULL"

_DELETED_AT = "SELECT deleted_at FROM agents WHERE tenant_id = :tenant_id AND id = :agent_id"

_WHY = """
SELECT t.deleted_at IS NOT NULL AS thread_deleted, t.agent_id
  FROM threads t WHERE t.id = :thread_id AND t.tenant_id = :tenant_id
"""


async def insert_run(
    connection: Connection, submission: Submission, run_id: str, *, front: bool = False
) -> Accepted | None:
    """Queue a run at the end of its thread. None if there is no such thread or agent."""
    row = await connection.fetchrow(
        _INSERT_RUN, **_values(submission, run_id), thread_id=submission.thread_id, front=front
    )
    return _accepted(row)


async def insert_run_on_new_thread(connection: Connection, submission: Submission, run_id: str) -> Accepted | None:
    """Make a thread with the run as its first. None if there is no such agent."""
    row = await connection.fetchrow(
        _INSERT_RUN_ON_NEW_THREAD,
        **_values(submission, run_id),
        thread_id=new_id("thr"),
        agent_id=submission.agent_id,
        created_by=submission.created_by,
        ephemeral=submission.ephemeral,
        front=False,
    )
    return _accepted(row)


async def ask_for_version(connection: Connection, tenant_id: str, run_ids: Sequence[str], version: int) -> bool:
    """Let runs that have not begun use a version of their agent. Return whether all of them have such a version."""
    rows = await connection.fetch(_ASK_FOR_VERSION, tenant_id=tenant_id, run_ids=list(run_ids), version=version)
    return len(rows) == len(run_ids)


async def find_accepted(connection: Connection, tenant_id: str, run_id: str) -> Accepted | None:
    """Return a run as it was accepted; None if there is none of this id."""
    return _accepted(await connection.fetchrow(_FIND_RUN, tenant_id=tenant_id, run_id=run_id))


async def lock_thread(connection: Connection, tenant_id: str, thread_id: str) -> str | None:
    """Lock a thread until the transaction ends, and return the run that makes it busy, if any.

    Two statements on purpose: the second one sees what was committed while the first one waited for the lock.
    """
    if await connection.fetchval(_LOCK_THREAD, tenant_id=tenant_id, thread_id=thread_id) is None:
        return None
    return await connection.fetchval(_BUSY_RUN, thread_id=thread_id)


async def find_continued(connection: Connection, tenant_id: str, run_id: str) -> Row | None:
    """Return the thread, the turn and the status of a run that a message continues; None if there is no such run."""
    return await connection.fetchrow(_CONTINUED, tenant_id=tenant_id, run_id=run_id)


async def find_head(connection: Connection, tenant_id: str, thread_id: str) -> str | None:
    """Return the turn at the head of a thread; None if it has none, or was deleted."""
    return await connection.fetchval(_HEAD, tenant_id=tenant_id, thread_id=thread_id)


async def interrupt_active(connection: Connection, thread_id: str) -> str | None:
    """Request an interrupt of the active run of a locked thread, and return its id."""
    return await connection.fetchval(_INTERRUPT, thread_id=thread_id)


async def agent_deleted_at(connection: Connection, tenant_id: str, agent_id: str | None) -> datetime | None:
    """Return when an agent was deleted, in UTC, to explain a refusal. None if it does not exist or is not deleted."""
    return await connection.fetchval(_DELETED_AT, tenant_id=tenant_id, agent_id=agent_id)


@dataclass(frozen=True, slots=True)
class AddressedAgent:
    """The current configuration of the agent that a message is for."""

    spec: AgentSpec
    orchestrated: bool
    """Whether its thread belongs to an orchestration, which has a configuration of its own."""


async def addressed_agent(connection: Connection, submission: Submission) -> AddressedAgent | None:
    """Return the agent that a message is for; None if there is none."""
    row = await connection.fetchrow(
        _ADDRESSED,
        tenant_id=submission.tenant_id,
        thread_id=submission.thread_id,
        agent_id=submission.agent_id,
    )
    if row is None:
        return None
    return AddressedAgent(read_stored(AgentSpec.model_validate, row["spec"]), row["orchestrated"])


async def why_no_thread(connection: Connection, tenant_id: str, thread_id: str) -> Row | None:
    """Return ``thread_deleted`` and ``agent_id`` of a thread, to explain a refusal."""
    return await connection.fetchrow(_WHY, tenant_id=tenant_id, thread_id=thread_id)


def _values(submission: Submission, run_id: str) -> dict[str, object]:
    return {
        "run_id": run_id,
        "tenant_id": submission.tenant_id,
        "content": list(submission.content),
        "on_busy": submission.on_busy,
        "queue": submission.queue,
        "source": submission.source,
        "model": submission.model,
        "max_turns": submission.max_turns,
        "options": None if submission.options is None else submission.options.stored(),
        "metadata": dict(submission.metadata),
        "parent_run_id": submission.parent_run_id,
        "traceparent": submission.traceparent,
        "priority": submission.priority,
        "trigger_id": submission.trigger_id,
        "start_at": submission.start_at,
        "collect_ms": submission.collect_ms,
    }


def _accepted(row: Row | None) -> Accepted | None:
    if row is None:
        return None
    return Accepted(
        run_id=row["id"],
        thread_id=row["thread_id"],
        agent_id=row["agent_id"],
        seq=row["seq"],
        queue=row["queue"],
        created_at=row["created_at"],
        start_at=row["start_at"] if row["status"] == "scheduled" else None,
    )
