"""What was said in threads, around a message: words of people and agents, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nova_workers.contracts.http.history import SaidMessage
from nova_workers.ledger.database import Connection

__all__ = ["PositionedMessage", "find_thread_message", "messages_around", "said_role"]


@dataclass(frozen=True, slots=True)
class PositionedMessage:
    """A message and where it stands in its thread: the turn's depth, then the place in the turn.

    Attributes:
        anchor_id: The message around which it was looked for.
    """

    anchor_id: str
    place: tuple[int, int]
    message: SaidMessage


_SAID = """
m.id, m.seq, u.depth, m.role, m.created_at,
btrim((SELECT string_agg(block->>'text', E'\\n') FROM jsonb_array_elements(m.content) block
        WHERE block->>'type' = 'text'), E' \\n\\t\\r') AS text
"""

# Words of people and agents; not what tools returned, nor steps that only call tools.
_IS_SAID = """
u.type = 'normal' AND m.kind IN ('query', 'steering', 'response')
           AND jsonb_path_exists(m.content, '$[*] ? (@.type == "text" && @.text like_regex "\\\\S")')
"""

# Each side is read from the index on the thread's turns, however long the thread is.
_AROUND = f"""
WITH anchors AS (
    SELECT m.id, m.seq, u.depth, u.thread_id
      FROM messages m JOIN turns u ON u.id = m.turn_id
     WHERE m.tenant_id = :tenant_id AND m.id = ANY(:message_ids::text[])
)
SELECT a.id AS anchor_id, w.*
  FROM anchors a
 CROSS JOIN LATERAL (
       (SELECT {_SAID} FROM turns u JOIN messages m ON m.turn_id = u.id
         WHERE u.thread_id = a.thread_id AND u.depth <= a.depth AND (u.depth, m.seq) <= (a.depth, a.seq)
           AND {_IS_SAID}
         ORDER BY u.depth DESC, m.seq DESC
         LIMIT :before + 1)
       UNION ALL
       (SELECT {_SAID} FROM turns u JOIN messages m ON m.turn_id = u.id
         WHERE u.thread_id = a.thread_id AND u.depth >= a.depth AND (u.depth, m.seq) > (a.depth, a.seq)
           AND {_IS_SAID}
         ORDER BY u.depth, m.seq
         LIMIT :after)) w
 ORDER BY a.id, w.depth, w.seq
"""

# Around a message, or around the newest where none is given.
_THREAD_SAID = f"""
SELECT t.id AS thread_id, t.title,
       COALESCE(:message_id::text, (SELECT m.id FROM turns u JOIN messages m ON m.turn_id = u.id
                            WHERE u.thread_id = t.id AND {_IS_SAID}
                            ORDER BY u.depth DESC, m.seq DESC
                            LIMIT 1)) AS message_id,
       :message_id::text IS NULL OR EXISTS (SELECT FROM messages m JOIN turns u ON u.id = m.turn_id
                                    WHERE m.id = :message_id AND m.tenant_id = :tenant_id AND u.thread_id = t.id
                                      AND {_IS_SAID}) AS there
  FROM threads t
 WHERE t.tenant_id = :tenant_id AND t.id = :thread_id AND t.agent_id = :agent_id AND t.deleted_at IS NULL
"""


async def messages_around(
    connection: Connection, tenant_id: str, message_ids: Sequence[str], *, before: int, after: int
) -> list[PositionedMessage]:
    """Return messages with what was said before and after each of them in its thread, in order."""
    rows = await connection.fetch(
        _AROUND, tenant_id=tenant_id, message_ids=list(message_ids), before=before, after=after
    )
    return [
        PositionedMessage(
            anchor_id=row["anchor_id"],
            place=(row["depth"], row["seq"]),
            message=SaidMessage(
                message_id=row["id"], role=said_role(row["role"]), said_at=row["created_at"], text=row["text"]
            ),
        )
        for row in rows
    ]


async def find_thread_message(
    connection: Connection, tenant_id: str, agent_id: str, thread_id: str, message_id: str | None
) -> tuple[str | None, str | None, bool] | None:
    """Look for a message of an agent's thread; without `message_id` for the newest.

    Returns:
        The thread's title, the message's id (None: nothing was said yet), and whether the thread has that message. None
        where the agent has no such thread.
    """
    row = await connection.fetchrow(
        _THREAD_SAID, tenant_id=tenant_id, thread_id=thread_id, agent_id=agent_id, message_id=message_id
    )
    return None if row is None else (row["title"], row["message_id"], row["there"])


def said_role(role: str) -> Literal["user", "assistant"]:
    """Return who said a message of this role."""
    return "assistant" if role == "assistant" else "user"
