"""INSERT statements for tables that several statements write, each defined once with all columns a row may have.

A caller gives an SQL expression for each column. A column that it leaves out gets the table's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict, Unpack

from nova_workers.base.vocabulary import AttemptEnd


class NewRun(TypedDict):
    """An SQL expression for each column of a new run."""

    id: str
    tenant_id: str
    thread_id: str
    agent_id: str
    seq: str
    content: str
    queue: str
    source: str
    on_busy: NotRequired[str]
    model: NotRequired[str]
    max_turns: NotRequired[str]
    options: NotRequired[str]
    meta: NotRequired[str]
    parent_run_id: NotRequired[str]
    depth: NotRequired[str]
    trigger_id: NotRequired[str]
    traceparent: NotRequired[str]
    front: NotRequired[str]
    priority: NotRequired[str]
    status: NotRequired[str]
    start_at: NotRequired[str]


class NewTurn(TypedDict):
    """An SQL expression for each column of a new turn."""

    id: str
    tenant_id: str
    thread_id: str
    parent_turn_id: str
    depth: str
    agent_id: str
    agent_version: str
    run_id: NotRequired[str]
    rollout_id: NotRequired[str]
    source_event_id: NotRequired[str]
    type: NotRequired[str]
    status: NotRequired[str]
    model: NotRequired[str]
    provider: NotRequired[str]
    input_tokens: NotRequired[str]
    output_tokens: NotRequired[str]
    cache_read_tokens: NotRequired[str]
    cache_write_tokens: NotRequired[str]
    reasoning_tokens: NotRequired[str]
    cost_usd: NotRequired[str]
    context_tokens: NotRequired[str]
    steps: NotRequired[str]
    tool_call_count: NotRequired[str]
    stop_reason: NotRequired[str]
    started_at: NotRequired[str]
    completed_at: NotRequired[str]


class NewMessage(TypedDict):
    """An SQL expression for each column of a new message."""

    id: str
    tenant_id: str
    thread_id: str
    turn_id: str
    seq: str
    kind: str
    role: str
    content: str
    run_id: NotRequired[str]
    step: NotRequired[str]
    event_id: NotRequired[str]
    used: NotRequired[str]
    context: NotRequired[str]
    created_at: NotRequired[str]


class NewUsage(TypedDict):
    """An SQL expression for each column of a new usage row."""

    id: str
    tenant_id: str
    model: str
    provider: str
    input_tokens: str
    output_tokens: str
    cache_read_tokens: str
    cache_write_tokens: str
    reasoning_tokens: str
    cost_usd: str
    model_calls: str
    duration_ms: str
    run_id: NotRequired[str]
    turn_id: NotRequired[str]
    thread_id: NotRequired[str]
    agent_id: NotRequired[str]


class NewEffect(TypedDict):
    """An SQL expression for each column of a new effect."""

    id: str
    tenant_id: str
    run_id: str
    thread_id: str
    kind: str
    position: str
    due_at: NotRequired[str]


def insert_attempts(rows: str, /, *, ended: AttemptEnd) -> str:
    """Return a statement that records the end of an attempt for each row of `rows`.

    Each row must have `id`, `tenant_id`, `attempt` and `claimed_at` of its run, and the claim's `holder_id`.
    """
    columns = {
        "run_id": "id",
        "attempt": "attempt",
        "tenant_id": "tenant_id",
        "worker_id": "holder_id",
        "started_at": "claimed_at",
        "ended": f"'{ended}'",
    }
    return _insert("run_attempts", rows, columns)


def insert_runs(rows: str, /, **columns: Unpack[NewRun]) -> str:
    """Return a statement that inserts a run for each row of `rows` and returns the columns of `Accepted`."""
    return (
        f"{_insert('runs', rows, columns)}\nRETURNING id, thread_id, agent_id, seq, queue, created_at, status, start_at"
    )


def insert_threads(
    rows: str,
    /,
    *,
    id: str,
    agent_id: str,
    origin: str,
    created_by: str = "NULL",
    orchestration_id: str = "NULL",
    ephemeral: str = "false",
) -> str:
    """Return a statement that inserts a thread for each row of `rows`, together with its first run.

    The first run has `seq` 1. Each row of `rows` must have a `tenant_id`.
    """
    columns = {
        "id": id,
        "tenant_id": "tenant_id",
        "agent_id": agent_id,
        "next_seq": "2",
        "origin": origin,
        "created_by": created_by,
        "orchestration_id": orchestration_id,
        "ephemeral": ephemeral,
    }
    return _insert("threads", rows, columns)


def insert_turns(rows: str, /, **columns: Unpack[NewTurn]) -> str:
    """Return a statement that inserts a turn for each row of `rows`."""
    return _insert("turns", rows, columns)


def insert_messages(rows: str, /, **columns: Unpack[NewMessage]) -> str:
    """Return a statement that inserts a message for each row of `rows`."""
    return _insert("messages", rows, columns)


def insert_usage(rows: str, /, **columns: Unpack[NewUsage]) -> str:
    """Return a statement that inserts a usage row for each row of `rows`."""
    return _insert("usage", rows, columns)


def insert_effects(rows: str, /, **columns: Unpack[NewEffect]) -> str:
    """Return a statement that inserts an effect for each row of `rows`."""
    return _insert("effects", rows, columns)


def _insert(table: str, rows: str, columns: Mapping[str, object]) -> str:
    expressions = ", ".join(str(expression) for expression in columns.values())
    return f"INSERT INTO {table} ({', '.join(columns)})\nSELECT {expressions}\n  FROM {rows}"
