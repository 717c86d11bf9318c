"""Claims the next run of a thread for a worker, with everything that the worker needs to execute it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from nova_workers.base.errors import NewerValue
from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import OPEN_ROLLOUTS, sql_list
from nova_workers.contracts.agents import AgentSpec, Ceilings
from nova_workers.contracts.event_context import EventContext
from nova_workers.contracts.installs import NOTHING_INSTALLED, Installation
from nova_workers.contracts.orchestration import OrchestrationPlace
from nova_workers.contracts.run_options import StoredOptions
from nova_workers.contracts.runs import COMMON_POOL, SHARED_LOSSES, Claim, DailyBudgets, WorkerPool
from nova_workers.contracts.waits import HoldDetail
from nova_workers.domain.runs.sql.filters import QUEUE_ORDER
from nova_workers.domain.runs.sql.finish import requeue_claimed
from nova_workers.ledger.database import Connection, Row
from nova_workers.ledger.inserts import insert_messages, insert_turns
from nova_workers.ledger.stored import read_stored

_PAUSES = """
s.scope = 'fleet'
OR (s.scope = 'tenant' AND s.tenant_id = r.tenant_id)
OR (s.scope IN {of_agent} AND s.tenant_id = r.tenant_id AND s.target = r.agent_id)
"""
# A pause blocks new runs, and so does the rename of an agent; canceled runs are still ended.
PAUSES = _PAUSES.format(of_agent="('agent', 'rename')")
"""The condition that a switch ``s`` holds back the run ``r``."""
PAUSED = f"EXISTS (SELECT 1 FROM switches s WHERE {PAUSES})"
_PAUSES_OF_PEOPLE = _PAUSES.format(of_agent="('agent')")
PAUSED_BY_PEOPLE = f"EXISTS (SELECT 1 FROM switches s WHERE {_PAUSES_OF_PEOPLE})"

# The pool of workers of a tenant `w`: of its ceilings, else by their trust; empty for the common workers.
TENANT_POOL = "COALESCE(w.ceilings ->> 'pool', CAST(:trust_pools AS jsonb) ->> (w.ceilings ->> 'trust'), '')"

# The configuration `s` of the run `r` of the agent `a`: that of the version that was asked for, else the newest.
CONFIGURATION = """
CROSS JOIN LATERAL (
      SELECT COALESCE((SELECT v.spec FROM agent_versions v
                        WHERE v.tenant_id = a.tenant_id AND v.agent_id = COALESCE(a.renamed_to, a.id)
                          AND v.version = r.asked_version), a.spec) AS spec) s
"""

# What determines which provider executes the run `r`: its engine and model as they are configured, by `CONFIGURATION`.
# Runs with the same text meet the same outage. None for runs whose configuration is elsewhere: code names its models.
MODEL_OF = """
CASE WHEN r.source <> 'work_order'
          AND NOT EXISTS (SELECT FROM threads h WHERE h.id = r.thread_id AND h.orchestration_id IS NOT NULL)
          AND s.spec ->> 'engine' IS DISTINCT FROM 'code'
     THEN COALESCE(s.spec ->> 'engine', '') || ' ' || COALESCE(r.model, s.spec ->> 'model', '') END
"""

# What code of users the run `r` of the agent `a` needs: as the agent is now, or was when the run began, or is in the
# version that was asked for, whose needs are written beside it. Null is none.
NEEDS = "CASE WHEN r.agent_version IS NULL AND r.asked_version IS NULL THEN a.needs ELSE r.needs END"

# The code of an agent in Python is the first of its needs, as `agent_needs` orders them.
_CODE = """
CASE WHEN r.agent_version IS NOT NULL THEN split_part(r.code_version, '@', 1)
     WHEN r.asked_version IS NOT NULL THEN r.needs[1] ELSE a.code END
"""

# Whether this worker has it: of an agent in Python in the version that began the run, unless `any_version`.
_HAS_CODE = f"""
COALESCE({NEEDS} <@ CAST(:provides AS text[])
         AND (:any_version OR r.code_version IS NULL
              OR r.code_version = CAST(:versions AS jsonb) ->> split_part(r.code_version, '@', 1)), true)
"""

# What the provider of the next run is, and whether the worker knows of its outage.
_MODEL_OF_NEXT = (
    f"(SELECT {MODEL_OF} FROM agents a {CONFIGURATION} WHERE a.tenant_id = r.tenant_id AND a.id = r.agent_id)"
)
_IS_UNUSABLE = """
NOT n.over AND (n.hold IS NOT NULL OR n.held_until IS NULL)
AND COALESCE(n.model_of = ANY(CAST(:unusable AS text[])), false)
"""

# The first claim of a run inserts its turn with the query.
_TURN = insert_turns(
    "claimed c WHERE c.turn_id = :turn_id",
    id="c.turn_id",
    tenant_id="c.tenant_id",
    thread_id="c.thread_id",
    run_id="c.id",
    parent_turn_id="c.head_turn_id",
    depth="COALESCE((SELECT p.depth + 1 FROM turns p WHERE p.id = c.head_turn_id), 0)",
    agent_id="c.agent_id",
    agent_version="c.agent_version",
    rollout_id="c.rollout_id",
    source_event_id="""CASE WHEN c.trigger_id IS NULL THEN left(c.meta->>'event_id', 256)
                ELSE (SELECT f.id FROM trigger_firings f WHERE f.run_id = c.id) END""",
)
_QUERY = insert_messages(
    "event",
    id=":message_id",
    tenant_id="tenant_id",
    thread_id="thread_id",
    turn_id="turn_id",
    run_id="id",
    seq="0",
    kind="'query'",
    role="'user'",
    content="content",
    context="context",
)

# What caused the turn. Written once: later attempts and later turns read it, so that the model is shown the same.
_EVENT = """
SELECT c.id, c.tenant_id, c.thread_id, c.turn_id, c.content, jsonb_strip_nulls(jsonb_build_object(
           'at', c.started_at, 'timezone', COALESCE(g.timezone, c.tenant_timezone), 'source', c.source,
           'queue', c.queue, 'channel', left(c.meta->>'channel', 64), 'thread', c.thread_title,
           'asked_by_agent', c.parent_run_id IS NOT NULL,
           'trigger', CASE WHEN g.id IS NOT NULL THEN jsonb_build_object(
               'id', g.id, 'title', g.title, 'scheduled_for', f.scheduled_for, 'manual', f.manual) END)) AS context
  FROM claimed c
  LEFT JOIN triggers g ON g.tenant_id = c.tenant_id AND g.id = c.trigger_id
  LEFT JOIN trigger_firings f ON f.trigger_id = g.id AND f.run_id = c.id
 WHERE c.turn_id = :turn_id
"""

# How long a run has waited in total. Waits that began together count once, until the last of them ends.
_WAITED = """
(SELECT COALESCE(sum(s.took), interval '0')
   FROM (SELECT max(COALESCE(w.resolved_at, now())) - w.created_at AS took
           FROM run_waits w WHERE w.run_id = c.id GROUP BY w.created_at) s)
"""

# How long a run was held in total, between an attempt and the next.
_HELD = """
(SELECT COALESCE(sum(COALESCE(x.next_at, c.claimed_at) - x.ended_at), interval '0')
   FROM (SELECT e.ended, e.ended_at, lead(e.started_at) OVER (ORDER BY e.attempt) AS next_at
           FROM run_attempts e WHERE e.run_id = c.id) x
  WHERE x.ended = 'held')
"""

# The open rollout `o` in which the first claim of a run takes part, and whether the run uses its candidate: since its
# thread did before, or by a hash of the thread that differs from rollout to rollout.
_ROLLOUT = f"""
rollouts o ON o.tenant_id = n.tenant_id AND o.agent_id = n.agent_id AND o.status IN {sql_list(OPEN_ROLLOUTS)}
          AND n.may_choose
          AND (t.rollout_id = o.id OR (n.meta @> o.run_metadata AND (o.key_id IS NULL OR o.key_id = t.created_by)))
"""
_IS_CANDIDATE = """
(t.rollout_id = o.id OR (hashtextextended(t.id, hashtext(o.id)) & 2147483647) % 10000 < o.share)
"""

# The place of the run's agent in its orchestration, with the configuration that its runs use.
_PLACE = """
(SELECT jsonb_build_object('spec', p.spec, 'place', jsonb_build_object(
               'orchestration_id', o.id, 'agent_id', p.id, 'parent_id', p.parent_id, 'role', p.role, 'depth', p.depth,
               'permission_mode', p.permission_mode, 'expert_id', p.expert_id, 'cwd', p.cwd, 'limits', o.limits,
               'deadline_at', o.deadline_at,
               'reasoning_ms', p.reasoning_ms,
               'whitelist', COALESCE(o.config #> '{engine,command_policy,whitelist}', '[]'),
               'blacklist', COALESCE(o.config #> '{engine,command_policy,blacklist}', '[]')))
   FROM orchestration_agents p JOIN orchestrations o ON o.id = p.orchestration_id
  WHERE p.thread_id = c.thread_id)
"""


# Not all columns of the run: each part of the statement that reads them would list them again in its plan.
_CLAIMED = """
r.id, r.tenant_id, r.thread_id, r.turn_id, r.agent_id, r.agent_version, r.fence, r.attempt, r.losses, r.source, r.queue,
r.content, r.meta, r.model, r.max_turns, r.options, r.depth, r.parent_run_id, r.trigger_id, r.traceparent, r.created_at,
r.started_at, r.cancel_requested_at, r.cancel_reason, r.hold_detail, r.held_since
"""


def _claiming(has_room: str, *, in_outage: bool) -> str:
    """Return the statement that claims the next run of a thread.

    The lock on the thread's row and `active_run_id IS NULL` let one claim through; the fence grows in the same
    statement, so every later write can distinguish this claim from all before. Order: a run that was begun, then one
    that interrupted, then by seq. Queued runs of a deleted thread are claimed to be canceled, so that none stays queued
    forever. Runs that are only to be ended need no room, and no process of their own, and are not held.

    A run that asks for no version may take part in the open rollout of its agent, which its turn records.

    A held run keeps its place: it is found, and neither it nor a later one is claimed.

    The queued runs are found by the parameter: joined to `thread`, a plan that was made while few runs were queued
    reads those of all threads.

    Args:
        has_room: Whether the caps of tenant ``w`` and agent ``a`` permit another run.
        in_outage: Whether the worker knows of an outage, and so must know of the run's provider, for which
            configurations are read.
    """
    model_of, is_unusable = (_MODEL_OF_NEXT, _IS_UNUSABLE) if in_outage else ("CAST(NULL AS text)", "false")
    return f"""
WITH thread AS (
    SELECT id, head_turn_id, fence + 1 AS fence, session_id, task_id, title, label, orchestration_id,
           created_by, rollout_id, deleted_at IS NOT NULL AS deleted
      FROM threads
     WHERE id = :thread_id AND active_run_id IS NULL
       FOR UPDATE
), next AS (
    SELECT r.id, r.tenant_id, r.queued_at,
           r.cancel_requested_at IS NOT NULL OR t.deleted OR r.losses >= :max_attempts AS over,
           r.losses >= :most_losses AS suspect,
           (SELECT {TENANT_POOL} FROM tenants w WHERE w.id = r.tenant_id) AS pool,
           r.agent_id, r.meta, r.agent_version IS NULL AND r.asked_version IS NULL AND r.source <> 'work_order'
                               AND t.orchestration_id IS NULL AS may_choose,
           r.hold, r.held_until, {model_of} AS model_of
      FROM runs r, thread t
     WHERE r.thread_id = :thread_id AND r.status = 'queued'
       AND (r.cancel_requested_at IS NOT NULL OR t.deleted OR NOT {PAUSED})
     ORDER BY {QUEUE_ORDER}
     LIMIT 1
       FOR UPDATE OF r
), chosen AS (
    SELECT n.*, NOT n.over AND n.hold IS NOT NULL AND n.held_until IS NOT NULL AS is_held,
           {is_unusable} AS is_unusable,
           o.id AS rollout_id, CASE WHEN {_IS_CANDIDATE} THEN o.version END AS candidate
      FROM next n CROSS JOIN thread t LEFT JOIN {_ROLLOUT}
), claimed AS (
    UPDATE runs r
       SET status = 'running', hold = NULL, held_until = NULL, attempt = r.attempt + 1, fence = t.fence,
           worker_id = :worker_id, lease_expires_at = now() + :lease_ttl, turn_id = COALESCE(r.turn_id, :turn_id),
           started_at = COALESCE(r.started_at, now()), claimed_at = now(),
           agent_version = COALESCE(r.agent_version, r.asked_version, n.candidate, a.version),
           needs = {NEEDS},
           code_version = CAST(:versions AS jsonb) ->> {_CODE}
      FROM chosen n, thread t, agents a, tenants w
     WHERE r.id = n.id AND NOT n.is_held AND NOT n.is_unusable
       AND a.tenant_id = r.tenant_id AND a.id = r.agent_id AND w.id = r.tenant_id
       AND (n.over OR n.pool = :pool)
       AND (n.over OR (NOT n.suspect AND {_HAS_CODE} AND {has_room}))
    RETURNING {_CLAIMED}, t.head_turn_id, t.session_id AS thread_session_id, t.task_id AS thread_task_id,
              t.orchestration_id, n.rollout_id, n.candidate,
              t.title AS thread_title, t.label AS thread_label, t.deleted AS thread_deleted, n.queued_at AS entered_at,
              w.timezone AS tenant_timezone, w.max_running IS NOT NULL OR a.max_running IS NOT NULL AS capped,
              w.max_cost_usd_per_day AS tenant_budget, w.ceilings, a.max_cost_usd_per_day AS agent_budget,
              a.directory AS agent_directory, COALESCE(a.renamed_to, a.id) AS current_agent_id
), held AS (
    UPDATE threads
       SET fence = c.fence, active_run_id = c.id,
           rollout_id = CASE WHEN c.candidate IS NULL THEN threads.rollout_id ELSE c.rollout_id END
      FROM claimed c
     WHERE threads.id = c.thread_id
), turn AS (
    {_TURN}
), event AS (
    {_EVENT}
), query AS (
    {_QUERY}
)
SELECT n.id AS next_id, n.tenant_id AS next_tenant_id, n.over OR n.pool = :pool AS next_is_ours, n.pool AS next_pool,
       n.suspect AND NOT n.over AS next_is_suspect,
       n.is_held AS next_is_held, n.is_unusable AS next_is_unusable, n.model_of AS next_model_of,
       c.id, c.tenant_id, c.thread_id, c.turn_id, c.agent_id, c.agent_version, v.spec,
       c.fence, c.attempt, c.losses, c.losses >= :max_attempts AS spent,
       c.cancel_requested_at IS NOT NULL OR c.thread_deleted AS canceled, c.cancel_reason,
       c.head_turn_id AS parent_turn_id, c.orchestration_id,
       (SELECT h.context_tokens FROM turns h WHERE h.id = c.head_turn_id) AS context_tokens,
       c.thread_session_id, c.thread_task_id, c.content, c.model, c.max_turns, c.options, c.queue, c.source, c.depth,
       c.parent_run_id, c.traceparent, c.created_at,
       (SELECT e.context FROM event e) AS context,
       c.thread_label, left(c.meta->>'channel', 64) AS channel, left(c.meta->>'to', 256) AS recipient,
       c.trigger_id, c.capped, c.agent_directory, c.hold_detail, c.held_since,
       c.ceilings, c.tenant_budget::float8, c.agent_budget::float8,
       EXISTS (SELECT 1 FROM memories m WHERE m.tenant_id = c.tenant_id) AS has_memories,
       EXISTS (SELECT 1 FROM thread_states s WHERE s.thread_id = c.thread_id) AS has_state,
       EXTRACT(EPOCH FROM now() - c.entered_at)::float8 AS claim_latency_s
  FROM chosen n
  LEFT JOIN claimed c ON c.id = n.id
  LEFT JOIN agent_versions v ON v.tenant_id = c.tenant_id AND v.agent_id = c.current_agent_id
                           AND v.version = c.agent_version
"""


_NO_OPTIONS = StoredOptions()

ANY_LOSSES = 2**31 - 1
"""More losses than a run can have."""

_UNCAPPED = "(w.max_running IS NULL AND a.max_running IS NULL)"
_BELOW_CAPS = """
((w.max_running IS NULL
  OR w.max_running > (SELECT count(*) FROM runs o WHERE o.tenant_id = w.id AND o.status = 'running'))
 AND (a.max_running IS NULL
      OR a.max_running > (SELECT count(*) FROM runs o
                           WHERE o.tenant_id = a.tenant_id AND o.agent_id = a.id AND o.status = 'running')))
"""

_CLAIM = _claiming(_UNCAPPED, in_outage=False)
_CLAIM_IN_OUTAGE = _claiming(_UNCAPPED, in_outage=True)
# With `lock_caps`, which was taken before this statement, so the counts include every claim made under it. In the other
# ones they would cost each claim a seventh of its CPU, although they were not executed.
_CLAIM_BELOW_CAPS = _claiming(_BELOW_CAPS, in_outage=False)
_CLAIM_BELOW_CAPS_IN_OUTAGE = _claiming(_BELOW_CAPS, in_outage=True)

# What few claimed runs have: those that were begun before, of a trigger, or in an orchestration. As parts of the claim,
# these subqueries cost each claim an eighth of its CPU, although they were not executed.
_DETAILS = f"""
SELECT (SELECT p.parent_turn_id FROM turns p WHERE p.id = c.turn_id) AS parent_turn_id,
       (SELECT m.context FROM messages m WHERE m.turn_id = c.turn_id AND m.seq = 0) AS context,
       (SELECT g.max_cost_usd_per_day::float8 FROM triggers g WHERE g.id = c.trigger_id) AS trigger_budget,
       CASE WHEN c.attempt = 1 THEN 0
            ELSE EXTRACT(EPOCH FROM now() - c.started_at - {_WAITED} - {_HELD})::float8 END AS elapsed_s,
       COALESCE((SELECT e.ended = 'held' FROM run_attempts e WHERE e.run_id = c.id ORDER BY e.attempt DESC LIMIT 1),
                true) AS was_held,
       CASE WHEN c.cancel_requested_at IS NOT NULL THEN c.error_message END AS failed_for,
       {_PLACE} AS orchestrated
  FROM runs c
 WHERE c.id = :run_id
"""

# One lock per tenant, until the transaction ends. Only claims under a cap take it.
_LOCK_CAPS = "SELECT pg_advisory_xact_lock(hashtextextended('nova caps ' || :tenant_id, 0))"


@dataclass(frozen=True, slots=True)
class Capped:
    """The next run is under a cap, so a claim needs a transaction that holds `lock_caps`; or it is `Refused`."""

    tenant_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The next run is held back by a full cap, or needs code of users that this worker does not have."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The next run is of a tenant whose runs another pool of workers executes; empty: the common workers."""

    pool: str


@dataclass(frozen=True, slots=True)
class Suspect:
    """The next run lost so many workers that it is executed in a process of its own."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Unusable:
    """The next run needs what this worker knows to be unusable.

    Attributes:
        model_of: As `MODEL_OF` writes it.
    """

    run_id: str
    model_of: str


async def lock_caps(connection: Connection, tenant_id: str) -> None:
    """Serialize claims under a tenant's caps until the transaction ends."""
    await connection.execute(_LOCK_CAPS, tenant_id=tenant_id)


async def claim_next(
    connection: Connection,
    thread_id: str,
    *,
    worker_id: str,
    lease_ttl_s: float,
    max_attempts: int,
    pool: WorkerPool = COMMON_POOL,
    with_suspects: bool = True,
    unusable: Collection[str] = (),
    installation: Installation = NOTHING_INSTALLED,
    any_version: bool = False,
    caps_locked: bool = False,
) -> Claim | Capped | Elsewhere | Suspect | Unusable | Refused | None:
    """Claim a thread's next run, in one statement, and read what the worker needs for it.

    Args:
        pool: The pool of the worker. Runs that are only to be ended are claimed by any.
        with_suspects: Whether the process executes this run alone, and so may claim a suspect.
        unusable: What this worker cannot use now, as `MODEL_OF` writes it. Runs with a granted try are claimed anyway.
        installation: The code of users that the worker has.
        any_version: Whether a run may be claimed that another version of the code began.
        caps_locked: Whether the transaction already holds `lock_caps` of the tenant.

    Returns:
        The claim; None if no run is queued, another run is active, or a pause or a hold blocks it.

    Raises:
        NewerValue: A later release gave its agent what this one does not know; the run is queued again.
    """
    if unusable:
        statement, known = _CLAIM_BELOW_CAPS_IN_OUTAGE if caps_locked else _CLAIM_IN_OUTAGE, {"unusable": [*unusable]}
    else:
        statement, known = _CLAIM_BELOW_CAPS if caps_locked else _CLAIM, {}
    row = await connection.fetchrow(
        statement,
        thread_id=thread_id,
        worker_id=worker_id,
        lease_ttl=timedelta(seconds=lease_ttl_s),
        turn_id=new_id("turn"),
        message_id=new_id("msg"),
        max_attempts=max_attempts,
        most_losses=ANY_LOSSES if with_suspects else SHARED_LOSSES,
        pool=pool.name,
        trust_pools=dict(pool.by_trust),
        provides=list(installation.provides),
        versions=installation.versions,
        any_version=any_version,
        **known,
    )
    if row is None or row["next_is_held"]:
        return None
    if not row["next_is_ours"]:
        return Elsewhere(row["next_pool"])
    if row["next_is_suspect"]:
        return Suspect(row["next_id"])
    if row["next_is_unusable"]:
        return Unusable(row["next_id"], row["next_model_of"])
    if row["id"] is None:
        return Refused(row["next_id"]) if caps_locked else Capped(row["next_tenant_id"])
    details: Row | None = None
    if row["attempt"] > 1 or row["trigger_id"] is not None or row["orchestration_id"] is not None:
        details = await connection.fetchrow(_DETAILS, run_id=row["id"])
    try:
        return _claim(row, details)
    except NewerValue:
        # For a worker of the later release, whose doorbell the reconciler rings.
        await requeue_claimed(connection, run_id=row["id"], thread_id=row["thread_id"], fence=row["fence"])
        raise


def _claim(row: Row, details: Row | None) -> Claim:
    orchestrated = None if details is None else details["orchestrated"]
    # For a run that was begun before, the claim's statement has the thread's head, and no context.
    began = row if details is None else details
    agent = read_stored(AgentSpec.model_validate, row["spec"] if orchestrated is None else orchestrated["spec"])
    options = None if row["options"] is None else read_stored(StoredOptions.model_validate, row["options"])
    ceilings = None if row["ceilings"] is None else read_stored(Ceilings.model_validate, row["ceilings"])
    return Claim(
        run_id=row["id"],
        tenant_id=row["tenant_id"],
        thread_id=row["thread_id"],
        turn_id=row["turn_id"],
        agent_id=row["agent_id"],
        agent_version=row["agent_version"],
        agent=agent if options is None else options.over(agent),
        fence=row["fence"],
        attempt=row["attempt"],
        max_attempts_spent=row["spent"],
        cancel_reason=(row["cancel_reason"] or "cancel") if row["canceled"] else None,
        failed_for=None if details is None else details["failed_for"],
        parent_turn_id=began["parent_turn_id"],
        context_tokens=row["context_tokens"] or 0,
        losses=row["losses"],
        session_id=row["thread_session_id"],
        content=tuple(row["content"]),
        model=row["model"],
        max_turns=row["max_turns"],
        options=options or _NO_OPTIONS,
        queue=row["queue"],
        source=row["source"],
        depth=row["depth"],
        parent_run_id=row["parent_run_id"],
        task_id=row["thread_task_id"],
        traceparent=row["traceparent"],
        created_at=row["created_at"],
        claim_latency_s=row["claim_latency_s"],
        elapsed_s=0.0 if details is None else details["elapsed_s"],
        event=None if began["context"] is None else EventContext.model_validate(began["context"]),
        directory=row["agent_directory"],
        thread_label=row["thread_label"],
        channel=row["channel"],
        recipient=row["recipient"],
        trigger_id=row["trigger_id"],
        capped=row["capped"],
        place=None if orchestrated is None else read_stored(OrchestrationPlace.model_validate, orchestrated["place"]),
        has_memories=row["has_memories"],
        has_state=row["has_state"],
        held=None if row["hold_detail"] is None else HoldDetail.model_validate(row["hold_detail"]),
        held_since=row["held_since"] if details is None or details["was_held"] else None,
        ceilings=ceilings,
        budgets=DailyBudgets(
            tenant_usd=row["tenant_budget"],
            agent_usd=row["agent_budget"],
            trigger_usd=None if details is None else details["trigger_budget"],
            ceiling_usd=None if ceilings is None else ceilings.max_cost_usd_per_day,
        ),
    )
