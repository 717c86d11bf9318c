"""The ledger of what was executed: turns, messages, tool calls, compactions, usage."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ForeignKeyConstraint, Index, text

from nova_workers.base.vocabulary import MessageKind, StopReason, ToolCallStatus, TurnStatus, TurnType

from .base import Table
from .columns import big, count, fk, id_ref, json, money, one_of, pk, string, time


class Turn(Table, table=True):
    """One executed run, child of the turn before it. Immutable once it is not running or waiting."""

    __tablename__ = "turns"
    __table_args__ = (
        one_of("type", TurnType),
        one_of("status", TurnStatus),
        one_of("stop_reason", StopReason),
        Index("uq_turns__run_id", "run_id", unique=True),
        Index(None, "thread_id", "depth"),
        Index(None, "parent_turn_id"),
        # The turns of each version in a rollout. Without columns that change: their updates would be in no heap-only
        # tuple, of whichever turn.
        Index(
            "ix_turns__rollout",
            "rollout_id",
            "agent_version",
            "id",
            postgresql_where=text("rollout_id IS NOT NULL"),
        ),
        {"postgresql_with": {"fillfactor": "80"}},
    )

    id: str = pk()
    tenant_id: str = id_ref()
    thread_id: str = fk("threads.id")
    run_id: str | None = id_ref(null=True, comment="Null for a compaction and for an imported turn")
    parent_turn_id: str | None = id_ref(null=True, comment="In another thread where this thread was forked")
    depth: int = count(comment="Distance from the root")
    type: str = string(default="normal")
    status: str = string(default="running")
    agent_id: str = id_ref()
    agent_version: int | None = count(null=True, default=None)
    rollout_id: str | None = id_ref(null=True, comment="The rollout in which it took part, with either version")
    engine: str | None = string(null=True)
    model: str | None = string(null=True)
    provider: str | None = string(null=True)
    role: str | None = string(null=True, comment="manager, worker or unified")
    toolset_name: str | None = string(null=True)
    tools_available: list[str] | None = json(null=True)
    permissions_granted: dict[str, Any] | None = json(null=True)
    permissions_used: dict[str, Any] | None = json(null=True)
    source_event_id: str | None = string(null=True)
    workspace_path: str | None = string(null=True)
    refused_blocks: dict[str, Any] | None = json(null=True, comment="Notes that replace refused blocks, by fingerprint")
    steps: int = count(comment="Committed steps")
    context_tokens: int | None = big(null=True, default=None, comment="Of the last model call: the conversation's size")
    tool_call_count: int = count()
    input_tokens: int = big()
    output_tokens: int = big()
    cache_read_tokens: int = big()
    cache_write_tokens: int = big()
    reasoning_tokens: int = big()
    cost_usd: Decimal | None = money(comment="Null where the price of the model is not known")
    reserved_usd: Decimal | None = money(comment="For open model calls, and what was used since the last commit")
    reserved_tokens: int | None = big(null=True, default=None)
    open_usd: Decimal | None = money(comment="Of reserved_usd: for open model calls; void without it")
    open_tokens: int | None = big(null=True, default=None)
    reserved_fence: int | None = big(null=True, default=None, comment="Of the claim that reserved; else it is void")
    stop_reason: str | None = string(null=True)
    error_kind: str | None = string(null=True)
    error_message: str | None = string(null=True)
    started_at: datetime = time(now=True)
    completed_at: datetime | None = time(null=True)


class Message(Table, table=True):
    """One message of a turn, its content blocks as they went over the wire."""

    __tablename__ = "messages"
    __table_args__ = (
        one_of("kind", MessageKind),
        Index("uq_messages__turn_id_seq", "turn_id", "seq", unique=True),
        Index(None, "thread_id"),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    thread_id: str = id_ref()
    turn_id: str = fk("turns.id")
    run_id: str | None = id_ref(null=True, comment="For steering: the run whose message this was")
    seq: int = count(default=None, comment="Order within the turn; 0 is the query")
    step: int | None = count(null=True, default=None, comment="The step that it belongs to; null for the query")
    kind: str = string()
    role: str = string()
    content: list[dict[str, Any]] = json()
    context: dict[str, Any] | None = json(null=True, comment="Of a query: contracts.event_context.EventContext")
    event_id: str | None = string(null=True, comment="<attempt>-<seq> of the live event that closed its step")
    used: dict[str, Any] | None = json(null=True, comment="Of a step's last message: the turn's usage so far")
    created_at: datetime = time(now=True)


class ToolCall(Table, table=True):
    """One tool call: pending before it starts, with a result after it ended."""

    __tablename__ = "tool_calls"
    __table_args__ = (
        one_of("status", ToolCallStatus),
        Index("uq_tool_calls__turn_id_call_id", "turn_id", "call_id", unique=True),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    turn_id: str = fk("turns.id")
    call_id: str = string(comment="The model's id of the call")
    step: int = count(default=None)
    sequence: int = count(default=None)
    tool_name: str = string()
    params: dict[str, Any] = json()
    status: str = string(default="pending")
    result: list[dict[str, Any]] | None = json(null=True)
    error: str | None = string(null=True)
    spawned_run_id: str | None = id_ref(null=True)
    started_at: datetime | None = time(null=True)
    completed_at: datetime | None = time(null=True)


class Compaction(Table, table=True):
    """What a compaction turn replaced, and what it cost."""

    __tablename__ = "compactions"
    __table_args__ = (ForeignKeyConstraint(["turn_id"], ["turns.id"], ondelete="CASCADE"),)

    turn_id: str = pk()
    tenant_id: str = id_ref()
    summary: str = string()
    summarized_through_turn_id: str = id_ref()
    first_kept_turn_id: str | None = id_ref(null=True)
    turns_summarized: int = count()
    model: str = string()
    provider: str = string()
    tokens_before: int = big()
    tokens_after: int = big()
    summary_tokens: int = big()
    summarization_input_tokens: int = big()
    summarization_output_tokens: int = big()
    duration_ms: int = big()
    trigger: str = string(comment="context_limit or overflow_recovery")
    through_step: int | None = count(
        null=True, default=None, comment="The last step of the next turn that the summary covers, if any"
    )
    created_at: datetime = time(now=True)


class Usage(Table, table=True):
    """Tokens and cost: one row per run, written when it ends, one per compaction, and one per judgement of models."""

    __tablename__ = "usage"
    __table_args__ = (
        Index("uq_usage__run_id", "run_id", unique=True),
        Index("uq_usage__turn_id", "turn_id", unique=True),
        # Reports and activity over time read it and not the table.
        Index(
            None,
            "tenant_id",
            "created_at",
            postgresql_include=[
                "agent_id",
                "model",
                "run_id",
                "duration_ms",
                "model_calls",
                "input_tokens",
                "output_tokens",
                "cache_read_tokens",
                "cache_write_tokens",
                "cost_usd",
            ],
        ),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    run_id: str | None = id_ref(null=True, comment="Null for a compaction and for a judgement")
    turn_id: str | None = id_ref(null=True, comment="Null for a judgement of models, which belongs to no run")
    thread_id: str | None = id_ref(null=True, comment="Null for a judgement")
    agent_id: str | None = id_ref(null=True, comment="Null for a judgement")
    model: str | None = string(null=True)
    provider: str | None = string(null=True)
    input_tokens: int = big()
    output_tokens: int = big()
    cache_read_tokens: int = big()
    cache_write_tokens: int = big()
    reasoning_tokens: int = big()
    cost_usd: Decimal | None = money()
    model_calls: int = count()
    duration_ms: int = big()
    created_at: datetime = time(now=True)
