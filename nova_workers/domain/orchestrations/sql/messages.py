"""Messages between agents of an orchestration, and the waits that they end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nova_workers.base.ids import new_id
from nova_workers.base.vocabulary import RoutedMessageType
from nova_workers.contracts.content import storable_json
from nova_workers.contracts.orchestration import RoutedMessage
from nova_workers.contracts.waits import AwaitMessages
from nova_workers.domain.orchestrations.sql.locking import LockedTree
from nova_workers.domain.waits.sql.records import Wait, wait_of
from nova_workers.ledger.database import Connection, Row

_COLUMNS = "m.id, m.orchestration_id, m.type, m.source_id, m.target_id, m.payload, m.correlation_id"

# A repeated send finds its key and inserts nothing.
_SEND = """
INSERT INTO orchestration_messages (id, tenant_id, orchestration_id, type, source_id, target_id, correlation_id,
                                    payload, send_key, delivered_at)
VALUES (:id, :tenant_id, :orchestration_id, :type, :source_id, :target_id, COALESCE(:correlation_id, :id), :payload,
        :send_key, CASE WHEN :delivered THEN now() END)
ON CONFLICT (orchestration_id, send_key) DO NOTHING
RETURNING id
"""
_SENT = f"""
SELECT {_COLUMNS} FROM orchestration_messages m
 WHERE m.orchestration_id = :orchestration_id AND m.send_key = :send_key
"""

_PENDING = f"""
SELECT {_COLUMNS} FROM orchestration_messages m
 WHERE m.target_id = ANY(:agent_ids::text[]) AND m.delivered_at IS NULL ORDER BY m.id
"""
_DELIVERED_TO = f"""
SELECT {_COLUMNS} FROM orchestration_messages m
 WHERE m.orchestration_id = :orchestration_id AND m.target_id = :target_id AND m.delivered_to = :to ORDER BY m.id
"""
_MARK = """
UPDATE orchestration_messages SET delivered_at = now(), delivered_to = :to
 WHERE id = ANY(:ids::text[]) AND delivered_at IS NULL
RETURNING id
"""

# An unanswered question of a child to its parent, delivered or not.
_QUESTION = f"""
SELECT {_COLUMNS} FROM orchestration_messages m
 WHERE m.orchestration_id = :orchestration_id AND m.type = 'QUESTION' AND m.target_id = :target_id
   AND m.source_id = :source_id AND (:correlation_id::text IS NULL OR m.correlation_id = :correlation_id)
   AND NOT EXISTS (SELECT 1 FROM orchestration_messages x
                    WHERE x.orchestration_id = m.orchestration_id AND x.type = 'ANSWER'
                      AND x.correlation_id = m.correlation_id)
 ORDER BY m.id DESC
 LIMIT 1
"""

# Every open wait of a tree's agents, with what else the agent waits for.
_OPEN_WAITS = """
SELECT a.id AS waiter, w.id, w.tenant_id, w.run_id, w.tool_call_id, w.request, w.child_run_id, w.status, w.answer,
       w.due_at, w.created_at, r.thread_id, r.agent_id
  FROM orchestration_agents a
  JOIN runs r ON r.id = a.run_id AND r.status = 'waiting'
  JOIN run_waits w ON w.run_id = r.id AND w.status = 'open'
 WHERE a.orchestration_id = :orchestration_id
 ORDER BY w.id
"""

# Agents whose latest run ended without a report: its end did not pass through a worker (canceled in the queue), or the
# process died in between.
_UNREPORTED = """
SELECT a.id AS agent_id, r.id AS run_id, r.status, r.result_text, r.error_kind, r.error_message
  FROM orchestration_agents a JOIN runs r ON r.id = a.run_id
 WHERE a.orchestration_id = :orchestration_id AND a.state NOT IN ('COMPLETED', 'FAILED', 'KILLED')
   AND r.status IN ('succeeded', 'failed', 'canceled', 'merged')
"""


# Agents that wait for any message, and for nothing else.
_IDLE = """
SELECT a.id
  FROM orchestration_agents a JOIN runs r ON r.id = a.run_id AND r.status = 'waiting'
 WHERE a.id = ANY(:agent_ids::text[])
   AND NOT EXISTS (SELECT 1 FROM run_waits w
                    WHERE w.run_id = r.id AND w.status = 'open'
                      AND NOT (w.kind = 'message' AND w.request ->> 'sender' = 'any'))
"""


@dataclass(frozen=True, slots=True)
class OpenWait:
    """An open wait of an agent of the tree (`waiter`)."""

    waiter: str
    wait: Wait

    @property
    def messages(self) -> AwaitMessages | None:
        """The request, if it is for messages of the tree."""
        request = self.wait.request
        return request if isinstance(request, AwaitMessages) else None


async def send(
    connection: Connection,
    tree: LockedTree,
    type: RoutedMessageType,
    *,
    source_id: str | None,
    target_id: str,
    payload: Mapping[str, Any],
    correlation_id: str | None = None,
    send_key: str | None = None,
    delivered: bool = False,
) -> str:
    """Send a message, and return its id; a repeated `send_key` returns the first message's.

    Args:
        connection: The ledger.
        tree: The orchestration.
        type: What it is.
        source_id: The sending agent; None is a person.
        target_id: The receiving agent.
        payload: The content.
        correlation_id: What it answers; by default its own id, for an answer to refer to.
        send_key: Makes the send idempotent within the orchestration.
        delivered: For the record only: no wait or call receives it.
    """
    message_id = await connection.fetchval(
        _SEND,
        id=new_id("omsg"),
        tenant_id=tree.tenant_id,
        orchestration_id=tree.id,
        type=type,
        source_id=source_id,
        target_id=target_id,
        correlation_id=correlation_id,
        payload=storable_json(dict(payload)),
        send_key=send_key,
        delivered=delivered,
    )
    if message_id is None and send_key is not None:
        sent = await find_sent(connection, tree, send_key)
        message_id = None if sent is None else sent.id
    return str(message_id)


async def find_sent(connection: Connection, tree: LockedTree, send_key: str) -> RoutedMessage | None:
    """Return the message that was sent with this key, if one was."""
    row = await connection.fetchrow(_SENT, orchestration_id=tree.id, send_key=send_key)
    return None if row is None else RoutedMessage(**row)


async def pending(connection: Connection, agent_ids: Sequence[str]) -> list[RoutedMessage]:
    """Return undelivered messages to these agents, oldest first."""
    return _messages(await connection.fetch(_PENDING, agent_ids=list(agent_ids)))


async def delivered_to(connection: Connection, orchestration_id: str, target_id: str, to: str) -> list[RoutedMessage]:
    """Return the messages of an agent that were delivered to this wait, run or call, oldest first."""
    return _messages(
        await connection.fetch(_DELIVERED_TO, orchestration_id=orchestration_id, target_id=target_id, to=to)
    )


async def mark_delivered(connection: Connection, message_ids: Sequence[str], to: str) -> int:
    """Record the wait or run that received messages; return how many were still undelivered."""
    return len(await connection.fetch(_MARK, ids=list(message_ids), to=to))


async def find_question(
    connection: Connection, tree: LockedTree, *, child_id: str, parent_id: str, correlation_id: str | None
) -> RoutedMessage | None:
    """Return the unanswered question of a child to its parent: the newest, or the one with this correlation id."""
    row = await connection.fetchrow(
        _QUESTION,
        orchestration_id=tree.id,
        source_id=child_id,
        target_id=parent_id,
        correlation_id=correlation_id,
    )
    return None if row is None else RoutedMessage(**row)


async def open_waits(connection: Connection, orchestration_id: str) -> list[OpenWait]:
    """Return every open wait of the agents of a tree, oldest first."""
    rows = await connection.fetch(_OPEN_WAITS, orchestration_id=orchestration_id)
    return [OpenWait(row["waiter"], wait_of(row)) for row in rows]


async def idle_agents(connection: Connection, agent_ids: Sequence[str]) -> set[str]:
    """Return those of the agents that are in `wait_for_message`."""
    return {row["id"] for row in await connection.fetch(_IDLE, agent_ids=list(agent_ids))}


async def unreported(connection: Connection, orchestration_id: str) -> list[Row]:
    """Return agents whose run ended without a report, with the run's end."""
    return await connection.fetch(_UNREPORTED, orchestration_id=orchestration_id)


def _messages(rows: Iterable[Row]) -> list[RoutedMessage]:
    return [RoutedMessage(**row) for row in rows]
