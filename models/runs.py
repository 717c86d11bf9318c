"""Requests to execute a turn: what is queued, claimed, canceled and retried."""

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Column, Index, LargeBinary, Text, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlmodel import Field

from nova_workers.base.vocabulary import (
    ANSWERABLE,
    DUE_RUNS,
    OPEN_RUNS,
    AttemptEnd,
    HoldReason,
    OnBusy,
    RunQueue,
    RunSource,
    RunStatus,
    StopReason,
    SwitchScope,
    WaitKind,
    WaitStatus,
    sql_list,
)

from .base import Table
from .columns import big, boolean, count, fk, id_ref, json, one_of, pk, string, time, words


class Run(Table, table=True):
    """One run. See docs/run-protocol.md for every transition."""

    __tablename__ = "runs"
    __table_args__ = (
        one_of("status", RunStatus),
        one_of("queue", RunQueue),
        one_of("on_busy", OnBusy),
        one_of("source", RunSource),
        one_of("hold", HoldReason),
        one_of("stop_reason", StopReason),
        CheckConstraint("(status = 'running') = (lease_expires_at IS NOT NULL)", name="running_has_lease"),
        Index("uq_runs__thread_id_seq", "thread_id", "seq", unique=True),
        # At most one run of a thread runs, whatever the code above does.
        Index("uq_runs__running_thread", "thread_id", unique=True, postgresql_where=text("status = 'running'")),
        # The claim: the front of a thread's queue. Finished runs are not in the index, so its cost does not grow.
        Index(
            "ix_runs__queue",
            "thread_id",
            text("(attempt > 0) DESC"),
            text("front DESC"),
            "seq",
            postgresql_where=text("status = 'queued'"),
        ),
        # The reconciler: doorbells that are due, expired leases. The first has a condition that no other statement has:
        # plans that were made while few runs were queued would read all of it to find those of one thread.
        Index("ix_runs__overdue", "rang_at", postgresql_where=text("status = 'queued' AND rang_at < 'infinity'")),
        Index("ix_runs__lease", "lease_expires_at", postgresql_where=text("status = 'running'")),
        Index(
            "ix_runs__open",
            "tenant_id",
            "id",
            postgresql_where=text(f"status IN {sql_list(OPEN_RUNS)}"),
        ),
        # Runs that start later: those that are due, and those of a thread that may join one turn.
        Index("ix_runs__scheduled", "start_at", postgresql_where=text("status = 'scheduled'")),
        Index("ix_runs__scheduled_of_thread", "thread_id", postgresql_where=text("status = 'scheduled'")),
        Index("ix_runs__tenant_id_id", "tenant_id", "id", postgresql_include=["agent_id"]),
        # Activity over time. A run enters it when it ends.
        Index(
            "ix_runs__ended",
            "tenant_id",
            "finished_at",
            postgresql_include=["status", "agent_id", "created_at", "start_at", "started_at"],
            postgresql_where=text("finished_at IS NOT NULL"),
        ),
        # An agent's runs by their last change: of each status the newest ends. A run enters it when it ends.
        Index(
            "ix_runs__ended_of_agent",
            "tenant_id",
            "agent_id",
            "status",
            "finished_at",
            "id",
            postgresql_where=text("finished_at IS NOT NULL"),
        ),
        # Lists by agent, of failed runs, and of recently ended runs.
        Index("ix_runs__tenant_id_agent_id_id", "tenant_id", "agent_id", "id"),
        Index(
            "ix_runs__not_succeeded",
            "tenant_id",
            "status",
            "id",
            postgresql_where=text("status IN ('failed', 'canceled', 'merged')"),
        ),
        Index(
            "ix_runs__stuck",
            "id",
            postgresql_where=text("status = 'waiting' AND cancel_requested_at IS NOT NULL"),
        ),
        Index("ix_runs__parent", "parent_run_id", "id", postgresql_where=text("parent_run_id IS NOT NULL")),
        Index("ix_runs__trigger_id_id", "trigger_id", "id", postgresql_where=text("trigger_id IS NOT NULL")),
        Index("ix_runs__trigger", "trigger_id", "created_at", postgresql_where=text("trigger_id IS NOT NULL")),
        Index(
            "ix_runs__trigger_open",
            "trigger_id",
            postgresql_where=text(f"trigger_id IS NOT NULL AND status IN {sql_list(DUE_RUNS)}"),
        ),
        # Ended runs whose triggers have not recorded how they ended.
        Index(
            "ix_runs__trigger_ended",
            "finished_at",
            postgresql_where=text(
                "trigger_id IS NOT NULL AND NOT trigger_told AND status NOT IN ('queued', 'running', 'waiting')"
            ),
        ),
        # A busy fleet: the next run by agent of each tenant, and how many runs each has running.
        Index(
            "ix_runs__fair",
            "queue",
            "tenant_id",
            "agent_id",
            text("priority DESC"),
            "queued_at",
            postgresql_where=text("status = 'queued'"),
        ),
        # Held runs: those of a thread, and all of them, to be released.
        Index("ix_runs__held", "thread_id", postgresql_where=text("hold IS NOT NULL")),
        # Runs that wait without doorbells for a worker with the code that they need.
        Index(
            "ix_runs__parked",
            "rang_at",
            postgresql_where=text("status = 'queued' AND rang_at = 'infinity' AND hold IS NULL"),
        ),
        Index("ix_runs__running_of", "tenant_id", "agent_id", postgresql_where=text("status = 'running'")),
        Index("ix_runs__finished_at", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
        {"postgresql_with": {"fillfactor": "70"}},
    )

    id: str = pk()
    tenant_id: str = id_ref()
    thread_id: str = fk("threads.id")
    agent_id: str = id_ref()
    agent_version: int | None = count(null=True, default=None, comment="The version that the claim used")
    asked_version: int | None = count(null=True, default=None, comment="The version that the claim is to use")
    needs: list[str] | None = Field(
        default=None,
        sa_column=Column(ARRAY(Text), comment="Of that version: the projects and code that it needs; null is none"),
    )
    code_version: str | None = string(
        null=True, comment="Of an agent in Python: code and digest of the worker that claimed it last"
    )
    seq: int = big(default=None, comment="Position in the thread's queue")
    front: bool = boolean(comment="Goes before the rest of the queue: it interrupted the active run")
    status: str = string(default="queued")
    queue: str = string(default="interactive")
    on_busy: str = string(default="enqueue")
    source: str = string(default="api")
    content: list[dict[str, Any]] = json(comment="The user's message as content blocks")
    model: str | None = string(null=True)
    max_turns: int | None = count(null=True, default=None)
    options: dict[str, Any] | None = json(null=True, comment="contracts.run_options.RunOptions")
    meta: dict[str, Any] = json(default="'{}'")
    parent_run_id: str | None = id_ref(null=True, comment="The run that started this one")
    trigger_id: str | None = id_ref(null=True, comment="The trigger that fired it")
    trigger_told: bool = boolean(comment="Whether its trigger has recorded how it ended")
    priority: int = count(comment="Higher goes first among the runs of its tenant")
    depth: int = count(comment="Number of runs above it: its parent, the parent's parent, …")

    attempt: int = count(comment="Claims so far")
    losses: int = count(comment="Expired leases: workers that crashed or hung with this run")
    fence: int | None = big(null=True, default=None, comment="Of the latest claim")
    worker_id: str | None = id_ref(null=True)
    lease_expires_at: datetime | None = time(null=True)
    cancel_requested_at: datetime | None = time(null=True)
    cancel_reason: str | None = string(null=True, comment="cancel or interrupt")
    start_at: datetime | None = time(null=True, comment="Earliest start; a scheduled run is in no queue")
    rang_at: datetime = time(now=True, comment="When its doorbell was last rung, as far as is recorded")

    hold: str | None = string(null=True, comment="Why it is queued and not to be claimed")
    hold_detail: dict[str, Any] | None = json(null=True, comment="contracts.waits.HoldDetail, of the latest hold")
    held_since: datetime | None = time(null=True, comment="When the first hold since its last step began")
    held_until: datetime | None = time(
        null=True, comment="The next try of a held run; null: of any worker that can. Of others: a try was granted"
    )

    turn_id: str | None = id_ref(null=True)
    merged_into: str | None = id_ref(null=True, comment="The run whose turn absorbed this message")
    stop_reason: str | None = string(null=True)
    limit_reached: str | None = string(null=True, comment="turns, tokens, cost or time: the bound that ended the turn")
    output: Any = json(null=True, comment="With an output schema: the answer as a value that matches it")
    result_text: str | None = string(null=True)
    error_kind: str | None = string(null=True)
    has_push_configs: bool = boolean(comment="Whether a row of push_configs names an address for its changes")
    refused_by: str | None = string(
        null=True,
        comment="ceiling, tenant, agent, trigger or orchestration: the budget that refused it, with budget_exceeded",
    )
    error_message: str | None = string(null=True)
    error_retryable: bool | None = Field(default=None, nullable=True)
    final_event_id: str | None = string(null=True, comment="<attempt>-<seq> of its last live event")
    traceparent: str | None = string(null=True, comment="W3C trace context of the request")

    created_at: datetime = time(now=True)
    queued_at: datetime = time(now=True, comment="Latest entry into the queue")
    started_at: datetime | None = time(null=True, comment="First claim")
    claimed_at: datetime | None = time(null=True, comment="Latest claim")
    first_token_at: datetime | None = time(null=True)
    finished_at: datetime | None = time(null=True)


class RunAttempt(Table, table=True):
    """An attempt that ended and did not end its run. The latest attempt is in the run itself."""

    __tablename__ = "run_attempts"
    __table_args__ = (one_of("ended", AttemptEnd),)

    run_id: str = fk("runs.id", primary=True)
    attempt: int = count(default=None, primary=True)
    tenant_id: str = id_ref()
    worker_id: str | None = id_ref(null=True)
    started_at: datetime | None = time(null=True)
    ended_at: datetime = time(now=True)
    ended: str = string()


class RunWait(Table, table=True):
    """What a run waits for, or waited for, and until when. A tool call has at most one open wait."""

    __tablename__ = "run_waits"
    __table_args__ = (
        one_of("kind", WaitKind),
        one_of("status", WaitStatus),
        Index("ix_run_waits__due", "due_at", postgresql_where=text("status = 'open'")),
        Index("ix_run_waits__child", "child_run_id", postgresql_where=text("status = 'open'")),
        Index(None, "run_id"),
        # What waits for a person: a few of the open waits, most of which are for agents and times.
        Index(
            "ix_run_waits__asks",
            "tenant_id",
            "id",
            postgresql_where=text(f"status = 'open' AND kind IN {sql_list(ANSWERABLE)}"),
        ),
        Index("ix_run_waits__tenant_open", "tenant_id", "id", postgresql_where=text("status = 'open'")),
        # An approved call may wait again, for another answer.
        Index(
            "uq_run_waits__run_id_tool_call_id",
            "run_id",
            "tool_call_id",
            unique=True,
            postgresql_where=text("status = 'open'"),
        ),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    run_id: str = fk("runs.id")
    tool_call_id: str = string(comment="The model's id of the call whose result this wait writes")
    kind: str = string()
    request: dict[str, Any] = json(comment="contracts.waits.WaitRequest")
    child_run_id: str | None = id_ref(null=True, comment="The run whose end is the answer")
    status: str = string(default="open")
    answer: dict[str, Any] | None = json(null=True)
    due_at: datetime | None = time(null=True)
    created_at: datetime = time(now=True)
    resolved_at: datetime | None = time(null=True)


class IdempotencyKey(Table, table=True):
    """An Idempotency-Key that was used, what its request made and a hash of the body it came with."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index(None, "expires_at"),)

    tenant_id: str = id_ref(primary=True)
    key: str = string(primary=True)
    run_id: str = id_ref(comment="What it made: a run, or the id of a task, a trigger, a firing or an orchestration")
    body_hash: bytes = Field(sa_column=Column(LargeBinary, nullable=False))
    expires_at: datetime = time()


class Switch(Table, table=True):
    """A pause: nothing new starts within its scope while the row exists."""

    __tablename__ = "switches"
    __table_args__ = (one_of("scope", SwitchScope),)

    scope: str = string(primary=True)
    tenant_id: str = id_ref(primary=True, comment="Empty for the fleet")
    target: str = id_ref(primary=True, comment="The agent's id; empty for fleet and tenant")
    reason: str | None = string(null=True)
    holds_deliveries: bool = boolean(comment="Of the fleet's pause: nothing is sent outside either, as after a restore")
    created_at: datetime = time(now=True)


class RunList(Table, table=True):
    """The filter and the order of a list of runs, which a person saved under a name."""

    __tablename__ = "run_lists"
    __table_args__ = (Index(None, "tenant_id", "owner_id", "name", unique=True),)

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    owner_id: str = id_ref(comment="The first of the keys that replaced each other")
    name: str = string()
    query: dict[str, Any] = json(comment="contracts.http.run_lists.RunListQuery")
    created_at: datetime = time(now=True)


class WorkerInstall(Table, table=True):
    """The code of users that a live worker has; the worker renews the row."""

    __tablename__ = "worker_installs"

    worker_id: str = id_ref(primary=True)
    pool: str = string(comment="Empty for the common workers")
    key: str = string(comment="Equal for workers that have the same; part of the name of their queue")
    provides: list[str] = words(default=None, comment="What runs may need, as agents.needs has it")
    versions: list[str] = words(default=None, comment="As runs.code_version has them")
    codes: list[dict[str, Any]] = json(comment="contracts.installs.InstalledCode, for people")
    seen_at: datetime = time(now=True)


class WorkerSession(Table, table=True):
    """A worker that holds its lock in a session of its own: without one it has ended."""

    __tablename__ = "worker_sessions"

    worker_id: str = id_ref(primary=True)
    began_at: datetime = time(now=True)


class WorkerDrainOrder(Table, table=True):
    """A worker that an operator ordered to drain, and when its process ended."""

    __tablename__ = "worker_drains"

    worker_id: str = id_ref(primary=True)
    ordered_at: datetime = time(now=True)
    ended_at: datetime | None = time(null=True, comment="Null also of a process that ended without recording it")
