"""Messages of users and agents in a thread, around a given message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nova_workers.contracts.http.history import SaidMessage
from nova_workers.ledger.database import Connection


@dataclass(frozen=True, slots=True)
class PositionedMessage:
    """A message and its position in the thread: the turn's depth, then the seq in the turn.

    Attributes:
        anchor_id: The message whose context this is.
    """

    anchor_id: str
    place: tuple[int, int]
    message: SaidMessage


_SAID = """
m.id, m.seq, u.depth, m.role, m.created_at,
btrim((SELECT string_agg(block->>'text', E'\\n') FROM jsonb_array_elements(m.content) block
        WHERE block->>'type' = 'text'), E' \\n\\t\\r') AS text
"""

# Text of users and agents: no tool results, and no steps that only call tools.
_IS_SAID = """
u.type = 'normal' AND m.kind IN ('query', 'steering', 'response')
           AND jsonb_path_exists(m.content, '$[*] ? (@.type == "text" && @.text like_regex "\\\\S")')
"""

# Each side is read from the index on the thread's turns, so the cost does not grow with the thread.
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

# Finds a message, or the newest one if none is given.
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
    """Return messages with those before and after each of them in its thread, in order."""
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
    """Find a message of an agent's thread; without `message_id` the newest one.

    Returns:
        The thread's title, the message's id (None: there are no messages yet), and whether the thread has that message.
        None if the agent has no such thread.
    """
    row = await connection.fetchrow(
        _THREAD_SAID, tenant_id=tenant_id, thread_id=thread_id, agent_id=agent_id, message_id=message_id
    )
    return None if row is None else (row["title"], row["message_id"], row["there"])


def said_role(role: str) -> Literal["user", "assistant"]:
    """Return the role as search results show it."""
    return "assistant" if role == "assistant" else "user"
