"""Small rows of an archive, for the tables that most tests of imports need."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, DateTime, Integer, LargeBinary, Numeric, SmallInteger

from models.tables import metadata
from nova_workers.domain.archive.sql.tables import KEPT, Column, KeptTable, shaped

MOMENT = "2026-03-01T12:30:15.123456+00:00"
SKILL = "---\nname: pdf\ndescription: Reads PDFs.\n---\n\nOpen it.\u2028Read it.\n"


_TYPES = (
    (SmallInteger, "smallint"),
    (BigInteger, "bigint"),
    (Integer, "integer"),
    (Numeric, "numeric"),
    (DateTime, "timestamp with time zone"),
    (LargeBinary, "bytea"),
)


def archive_tables() -> dict[str, KeptTable]:
    """Return the tables of an archive with their columns, from the models, in the form of the catalog."""

    def columns(table: str) -> list[Column]:
        return [
            Column(
                column.name,
                next((name for kind, name in _TYPES if isinstance(column.type, kind)), "text"),
                column.computed is not None,
            )
            for column in metadata.tables[table].columns
        ]

    return {table.name: shaped(table, columns(table.name)) for table in KEPT}


def small_row(table: str, **given: Any) -> tuple[str, dict[str, Any]]:
    """Return a small row of an archive."""
    now = MOMENT
    known: dict[str, dict[str, Any]] = {
        "threads": {
            "id": "thr_9", "agent_id": "nova", "fence": 1, "next_seq": 1, "turn_count": 0, "meta": {},
            "created_at": now, "updated_at": now,
        },
        "thread_states": {"thread_id": "thr_9", "state": {}, "version": 1, "updated_at": now},
        "turns": {
            "id": "turn_9", "thread_id": "thr_9", "depth": 0, "type": "normal", "status": "succeeded",
            "agent_id": "nova", "steps": 0, "tool_call_count": 0, "input_tokens": 0, "output_tokens": 0,
            "cache_read_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0, "started_at": now,
        },
        "messages": {
            "id": "msg_9", "thread_id": "thr_9", "turn_id": "turn_9", "seq": 0, "kind": "query", "role": "user",
            "content": [], "created_at": now,
        },
        "memories": {"id": "mem_9", "agent_id": "nova", "content": "x", "created_at": now},
        "agents": {"id": "x", "version": 1, "spec": {"name": "x"}, "created_at": now, "updated_at": now},
        "agent_versions": {
            "agent_id": "x", "version": 1, "spec": {"name": "x"}, "created_by": "person", "created_at": now,
        },
        "runs": {
            "id": "run_9", "thread_id": "thr_9", "agent_id": "nova", "seq": 1, "front": False, "status": "succeeded",
            "queue": "interactive", "on_busy": "enqueue", "source": "api", "content": [], "meta": {}, "priority": 0,
            "trigger_told": True, "depth": 0, "attempt": 1, "losses": 0, "rang_at": now, "created_at": now,
            "queued_at": now,
        },
        "run_waits": {
            "id": "wait_9", "run_id": "run_9", "tool_call_id": "c1", "kind": "user", "status": "resolved",
            "request": {"kind": "user", "question": "Which?"}, "created_at": now,
        },
        "feedback": {
            "id": "fbk_9", "run_id": "run_9", "thread_id": "thr_9", "agent_id": "nova", "name": "rating", "score": 1,
            "source": "person", "author": "", "key_id": "key_9", "created_at": now, "updated_at": now,
        },
        "tool_calls": {
            "id": "tc_9", "turn_id": "turn_9", "call_id": "c1", "step": 0, "sequence": 0, "tool_name": "Read",
            "params": {}, "status": "completed",
        },
        "thread_heads": {"thread_id": "thr_9", "turn_id": "turn_9", "move": "turn", "changed_at": now},
        "compactions": {
            "turn_id": "turn_9", "summary": "x", "summarized_through_turn_id": "turn_9", "turns_summarized": 1,
            "model": "m", "provider": "p", "tokens_before": 2, "tokens_after": 1, "summary_tokens": 1,
            "summarization_input_tokens": 1, "summarization_output_tokens": 1, "duration_ms": 1,
            "trigger": "context_limit", "created_at": now,
        },
        "usage": {
            "id": "use_9", "turn_id": "turn_9", "thread_id": "thr_9", "agent_id": "nova", "input_tokens": 0,
            "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0,
            "model_calls": 0, "duration_ms": 0, "created_at": now,
        },
        "triggers": {
            "id": "trg_9", "agent_id": "nova", "kind": "cron", "schedule": "0 6 * * *", "timezone": "UTC",
            "prompt": "Go.", "action": "run", "enabled": True, "jitter_s": 0, "overlap": "skip", "catchup_s": 60,
            "catchup": "once", "pause_after_failures": 5, "failures": 0, "created_by": "person", "created_at": now,
            "updated_at": now,
        },
        "trigger_firings": {
            "id": "fir_9", "trigger_id": "trg_9", "scheduled_for": now, "fired_at": now, "outcome": "skipped",
            "skip_reason": "gate", "manual": False,
        },
        "tasks": {
            "id": 9, "title": "T", "description": "", "owner_agent_id": "nova", "created_by": "person",
            "status": "draft", "revision": 1, "idle_invocations": 0, "created_at": now, "updated_at": now,
        },
        "task_changes": {
            "id": "tch_9", "task_id": 9, "revision": 1, "actor": "person", "kind": "made", "details": {},
            "created_at": now,
        },
        "deliveries": {
            "id": "dlv_9", "kind": "note", "target": "user", "payload": {}, "status": "pending", "routed": True,
            "attempts": 0, "due_at": now, "created_at": now,
        },
        "skills": {"name": "pdf", "skill_md": SKILL, "created_at": now, "updated_at": now},
        "skill_files": {"skill_name": "pdf", "path": "x", "executable": False, "content": "\\x00"},
    }  # fmt: skip
    return table, known.get(table, {}) | given
