"""Writes the turns of a conversation that took place elsewhere into a new thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nova_workers.base.vocabulary import MessageKind, Role
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.domain.search.sql.embeddings import MAX_WORD_CHARS, save_texts_of_turns
from nova_workers.domain.upkeep.sql.cursors import add_import_cursor
from nova_workers.ledger.database import Connection
from nova_workers.ledger.inserts import insert_messages, insert_turns


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """A message of an imported turn."""

    id: str
    seq: int
    step: int | None
    kind: MessageKind
    role: Role
    content: list[ContentBlock]
    created_at: datetime


@dataclass(slots=True)
class ImportedCall:
    """A tool call of an imported turn."""

    id: str
    call_id: str
    step: int
    sequence: int
    tool_name: str
    params: JsonObject
    started_at: datetime
    completed_at: datetime | None = None
    result: list[ContentBlock] | None = None
    failed: bool = False

    def end(self, result: list[ContentBlock], completed_at: datetime, *, failed: bool) -> None:
        """Take the call's result."""
        self.result, self.completed_at, self.failed = result, completed_at, failed


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    """A turn that took place elsewhere.

    Attributes:
        context_tokens: An estimate of the conversation's size up to its end, for compaction.
    """

    id: str
    depth: int
    steps: int
    context_tokens: int
    started_at: datetime
    completed_at: datetime
    messages: Sequence[ImportedMessage]
    calls: Sequence[ImportedCall]


_TURN_COLUMNS = (
    "id text, parent_turn_id text, depth int, steps int, tool_call_count int, context_tokens bigint, "
    "started_at timestamptz, completed_at timestamptz"
)
_MESSAGE_COLUMNS = (
    "id text, turn_id text, seq int, step int, kind text, role text, content jsonb, created_at timestamptz"
)
_CALL_COLUMNS = (
    "id text, turn_id text, call_id text, step int, sequence int, tool_name text, params jsonb, status text, "
    "result jsonb, error text, started_at timestamptz, completed_at timestamptz"
)

# A turn without a run is one that took place elsewhere. It has no usage.
_TURNS = insert_turns(
    f"jsonb_to_recordset(:turns) AS x({_TURN_COLUMNS})",
    id="x.id",
    tenant_id=":tenant_id",
    thread_id=":thread_id",
    parent_turn_id="x.parent_turn_id",
    depth="x.depth",
    status="'succeeded'",
    agent_id=":agent_id",
    agent_version="NULL",
    steps="x.steps",
    tool_call_count="x.tool_call_count",
    context_tokens="x.context_tokens",
    stop_reason="'end_turn'",
    started_at="x.started_at",
    completed_at="x.completed_at",
)
_MESSAGES = insert_messages(
    f"jsonb_to_recordset(:messages) AS x({_MESSAGE_COLUMNS})",
    id="x.id",
    tenant_id=":tenant_id",
    thread_id=":thread_id",
    turn_id="x.turn_id",
    seq="x.seq",
    step="x.step",
    kind="x.kind",
    role="x.role",
    content="x.content",
    created_at="x.created_at",
)
_CALLS = f"""
INSERT INTO tool_calls (id, tenant_id, turn_id, call_id, step, sequence, tool_name, params, status, result, error,
                        started_at, completed_at)
SELECT x.id, :tenant_id, x.turn_id, x.call_id, x.step, x.sequence, x.tool_name, x.params, x.status, x.result, x.error,
       x.started_at, x.completed_at
  FROM jsonb_to_recordset(:calls) AS x({_CALL_COLUMNS})
"""
_MOVE = """
WITH moved AS (
    INSERT INTO thread_heads (tenant_id, thread_id, turn_id, move)
    VALUES (:tenant_id, :thread_id, :head_turn_id, 'import')
)
UPDATE threads
   SET head_turn_id = :head_turn_id, turn_count = :turn_count, imported_at = now()
 WHERE tenant_id = :tenant_id AND id = :thread_id
"""


async def import_turns(
    transaction: Connection,
    tenant_id: str,
    thread_id: str,
    agent_id: str,
    turns: Sequence[ImportedTurn],
    *,
    embed: bool,
) -> None:
    """Write turns into a thread, in the transaction that made it, and index their words. One statement a table.

    Args:
        turns: The conversation, oldest first; at least one.
        embed: Whether the backfill makes vectors of the messages.
    """
    await transaction.execute(
        _TURNS, tenant_id=tenant_id, thread_id=thread_id, agent_id=agent_id, turns=list(_turn_rows(turns))
    )
    messages = [_message_row(turn.id, message) for turn in turns for message in turn.messages]
    await transaction.execute(_MESSAGES, tenant_id=tenant_id, thread_id=thread_id, messages=messages)
    calls = [_call_row(turn.id, call) for turn in turns for call in turn.calls]
    if calls:
        await transaction.execute(_CALLS, tenant_id=tenant_id, calls=calls)
    await transaction.execute(
        _MOVE, tenant_id=tenant_id, thread_id=thread_id, head_turn_id=turns[-1].id, turn_count=len(turns)
    )
    await save_texts_of_turns(transaction, tenant_id, [turn.id for turn in turns], max_chars=MAX_WORD_CHARS)
    if embed:
        await add_import_cursor(transaction, tenant_id, thread_id)


def _turn_rows(turns: Iterable[ImportedTurn]) -> Iterable[JsonObject]:
    parent_turn_id: str | None = None
    for turn in turns:
        yield {
            "id": turn.id,
            "parent_turn_id": parent_turn_id,
            "depth": turn.depth,
            "steps": turn.steps,
            "tool_call_count": len(turn.calls),
            "context_tokens": turn.context_tokens,
            "started_at": turn.started_at.isoformat(),
            "completed_at": turn.completed_at.isoformat(),
        }
        parent_turn_id = turn.id


def _message_row(turn_id: str, message: ImportedMessage) -> JsonObject:
    return {
        "id": message.id,
        "turn_id": turn_id,
        "seq": message.seq,
        "step": message.step,
        "kind": message.kind,
        "role": message.role,
        "content": message.content,
        "created_at": message.created_at.isoformat(),
    }


def _call_row(turn_id: str, call: ImportedCall) -> JsonObject:
    texts: list[Any] = [block.get("text") for block in call.result or () if block.get("type") == "text"]
    return {
        "id": call.id,
        "turn_id": turn_id,
        "call_id": call.call_id,
        "step": call.step,
        "sequence": call.sequence,
        "tool_name": call.tool_name,
        "params": call.params,
        "status": "failed" if call.failed else "completed",
        "result": call.result,
        "error": "\n".join(texts) if call.failed else None,
        "started_at": call.started_at.isoformat(),
        "completed_at": None if call.completed_at is None else call.completed_at.isoformat(),
    }
