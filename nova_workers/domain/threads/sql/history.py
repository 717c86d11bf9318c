"""Reads a conversation for the model: back to its root, or to its last compaction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from nova_workers.contracts.content import Message
from nova_workers.contracts.event_context import EventContext
from nova_workers.contracts.refusals import with_notes
from nova_workers.ledger.database import Connection

# Walks from the newest turn to the root. A compaction turn replaces all turns before its first kept turn, so the walk
# ends there, and a long conversation costs no more than a short one. Its summary comes first, then the turns that it
# kept, then those after it; the newer summary includes any older compaction among the kept turns. Of a turn that was
# compacted in its middle, the steps that the summary replaces are left out.
_HISTORY = """
WITH RECURSIVE lineage AS (
    SELECT t.id, t.parent_turn_id, 0 AS back, t.type, t.status, t.error_message, t.refused_blocks,
           t.type = 'compaction' AS compacted,
           c.first_kept_turn_id
      FROM turns t LEFT JOIN compactions c ON c.turn_id = t.id
     WHERE t.id = :turn_id AND t.tenant_id = :tenant_id
    UNION ALL
    SELECT t.id, t.parent_turn_id, l.back + 1, t.type, t.status, t.error_message, t.refused_blocks,
           l.compacted OR t.type = 'compaction',
           CASE WHEN l.compacted THEN l.first_kept_turn_id ELSE c.first_kept_turn_id END
      FROM lineage l
      JOIN turns t ON t.id = l.parent_turn_id
      LEFT JOIN compactions c ON c.turn_id = t.id
     WHERE NOT l.compacted OR (l.first_kept_turn_id IS NOT NULL AND l.id <> l.first_kept_turn_id)
), newest AS (
    SELECT min(back) AS back FROM lineage WHERE type = 'compaction'
)
SELECT l.id, l.type, l.status, l.error_message, l.refused_blocks, m.role, m.content, m.context
  FROM lineage l CROSS JOIN newest n JOIN messages m ON m.turn_id = l.id
  LEFT JOIN compactions p ON p.turn_id = l.parent_turn_id
 WHERE (l.type <> 'compaction' OR l.back = n.back)
   AND (p.through_step IS NULL OR m.step IS NULL OR m.step > p.through_step)
 ORDER BY CASE WHEN l.back = n.back THEN 0 WHEN l.back > n.back THEN 1 ELSE 2 END, l.back DESC, m.seq
"""


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """One turn of a conversation, as stored in the ledger.

    Attributes:
        summary: It is a compaction's.
        stopped: A person stopped it.
        error: Why it failed; None if it did not.
        event: What caused it; belongs to its first message.
    """

    id: str
    summary: bool
    messages: tuple[Message, ...]
    stopped: bool = False
    error: str | None = None
    event: EventContext | None = None


async def load_history_turns(connection: Connection, tenant_id: str, turn_id: str) -> tuple[HistoryTurn, ...]:
    """Return the conversation up to and including a turn, in the order in which the model reads it.

    A block that a provider refused in any of these turns is replaced by a note.
    """
    turns: dict[str, HistoryTurn] = {}
    messages: dict[str, list[Message]] = {}
    refused: dict[str, str] = {}
    for row in await connection.fetch(_HISTORY, turn_id=turn_id, tenant_id=tenant_id):
        turn_id = row["id"]
        if turn_id not in turns:
            refused |= row["refused_blocks"] or {}
            turns[turn_id] = HistoryTurn(
                turn_id,
                summary=row["type"] == "compaction",
                messages=(),
                stopped=row["status"] == "aborted",
                error=(row["error_message"] or "") if row["status"] == "failed" else None,
                event=None if row["context"] is None else EventContext.model_validate(row["context"]),
            )
        messages.setdefault(turn_id, []).append(Message(role=row["role"], content=tuple(row["content"])))
    return tuple(replace(turn, messages=with_notes(tuple(messages[turn.id]), refused)) for turn in turns.values())
