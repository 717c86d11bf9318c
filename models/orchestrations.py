"""Orchestrations: trees of agents that work on one task, and the messages between them."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, text

from nova_workers.base.vocabulary import (
    ENDED_AGENTS,
    AgentRole,
    AgentState,
    PermissionMode,
    RoutedMessageType,
    sql_list,
)

from .base import Table
from .columns import big, boolean, count, fk, id_ref, json, one_of, pk, string, time, words


class Orchestration(Table, table=True):
    """One task for a tree of agents. Its row is locked by every transaction that routes messages in the tree."""

    __tablename__ = "orchestrations"
    __table_args__ = (
        Index(None, "tenant_id", "id"),
        Index(None, "thread_id"),
        Index("ix_orchestrations__open", "id", postgresql_where=text("finished_at IS NULL")),
        # A repeated tool call starts no second orchestration.
        Index(
            "uq_orchestrations__start_key",
            "tenant_id",
            "start_key",
            unique=True,
            postgresql_where=text("start_key IS NOT NULL"),
        ),
    )

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    agent_id: str = id_ref(comment="The agent whose trust, directories and budgets bound the tree")
    master_id: str = id_ref()
    thread_id: str = fk("threads.id", comment="Of its master; the orchestration is deleted with it")
    task: str = string()
    config: dict[str, Any] = json(default="'{}'", comment="orchestration.config.OrchestrationConfig, frozen")
    config_version: int | None = count(null=True, default=None, comment="Of the tenant's; null without one")
    limits: dict[str, Any] = json(default="'{}'", comment="contracts.orchestration.OrchestrationLimits, frozen")
    queue: str = string(default="interactive")
    source: str = string(default="api", comment="What started it")
    source_run_id: str | None = id_ref(null=True, comment="The run whose agent started it")
    meta: dict[str, Any] = json(default="'{}'")
    deadline_at: datetime | None = time(null=True, comment="End of its time budget")
    allowed_calls: list[dict[str, Any]] = json(
        default="'[]'", comment="Tools, and shell commands, that a person allowed for all of its agents"
    )
    start_key: str | None = string(null=True, comment="Turn and tool call that started it")
    report_thread_id: str | None = id_ref(null=True, comment="The thread that gets a message when it ends")
    is_external: bool = boolean(comment="Its master is a program outside of the fleet, which acts over HTTP")
    master_seen_at: datetime | None = time(null=True, comment="Latest request of an external master")
    master_waits: dict[str, Any] = json(
        default="'{}'",
        comment="By call, what an external master waits for: contracts.waits.AwaitMessages",
    )
    created_at: datetime = time(now=True)
    finished_at: datetime | None = time(null=True, comment="When its master ended; null again after a continuation")


class OrchestrationAgent(Table, table=True):
    """An agent of an orchestration: one thread, one run per activation."""

    __tablename__ = "orchestration_agents"
    __table_args__ = (
        one_of("role", AgentRole),
        one_of("state", AgentState),
        one_of("permission_mode", PermissionMode),
        Index(None, "orchestration_id", "id"),
        Index("uq_orchestration_agents__thread_id", "thread_id", unique=True),
        Index(
            "ix_orchestration_agents__active",
            "orchestration_id",
            postgresql_where=text(f"state NOT IN {sql_list(ENDED_AGENTS)}"),
        ),
        # Discovery of rankings: agents that ended since a time.
        Index("ix_orchestration_agents__ended_at", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    orchestration_id: str = fk("orchestrations.id")
    parent_id: str | None = id_ref(null=True, comment="The agent that spawned it; null for the master")
    thread_id: str = fk("threads.id")
    run_id: str = id_ref(comment="The run of its latest activation")
    role: str = string()
    state: str = string(default="PENDING")
    depth: int = count(comment="0 for the master")
    name: str = string(comment="For people")
    prompt: str = string(comment="What its latest activation is to do")
    tools: list[str] | None = json(null=True, comment="Native tools that it may use; null is all of its trust")
    model: str | None = string(null=True)
    cwd: str | None = string(null=True)
    plugins: list[str] = words(comment="MCP servers, by name")
    permission_mode: str = string(default="DEFAULT")
    expert_id: str | None = string(null=True)
    category: str | None = string(null=True, comment="Task category, for the ranking of models")
    spec: dict[str, Any] = json(comment="contracts.agents.AgentSpec that its runs use")
    activations: int = count(default=1)
    reasoning_ms: int = big(comment="Model time of this activation in attempts that ended")
    summary: str | None = string(null=True, comment="Result of its latest activation")
    artifacts: dict[str, Any] = json(default="'{}'")
    error_code: str | None = string(null=True, comment="Why it failed: the code of an error")
    error_message: str | None = string(null=True)
    progress: dict[str, Any] | None = json(null=True, comment="Latest report_progress: status, percent, at")
    state_at: datetime = time(now=True, comment="Latest change of state")
    created_at: datetime = time(now=True)
    ended_at: datetime | None = time(null=True)


class OrchestrationMessage(Table, table=True):
    """A message from one agent of an orchestration to another. It is delivered to one wait or tool call, once."""

    __tablename__ = "orchestration_messages"
    __table_args__ = (
        one_of("type", RoutedMessageType),
        Index(None, "orchestration_id", "id"),
        Index(
            "ix_orchestration_messages__pending",
            "target_id",
            "id",
            postgresql_where=text("delivered_at IS NULL"),
        ),
        # A repeated tool call, or a run whose end is reported twice, sends no second message.
        Index("uq_orchestration_messages__send_key", "orchestration_id", "send_key", unique=True),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    orchestration_id: str = fk("orchestrations.id")
    type: str = string()
    source_id: str | None = id_ref(null=True, comment="The sending agent; null is a person")
    target_id: str = id_ref()
    correlation_id: str | None = string(null=True, comment="What it answers: a question, or the run of a child")
    payload: dict[str, Any] = json(default="'{}'")
    send_key: str | None = string(null=True, comment="Turn and tool call, or the run whose end it reports")
    created_at: datetime = time(now=True)
    delivered_at: datetime | None = time(null=True)
    delivered_to: str | None = id_ref(null=True, comment="The wait, or the run whose tool call received it")
