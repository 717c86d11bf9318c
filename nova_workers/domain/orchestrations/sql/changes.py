"""What changed in a tree, as events: by the present transaction, or since a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from nova_workers.base.vocabulary import ANSWERABLE, sql_list
from nova_workers.contracts.events import Waiting
from nova_workers.contracts.orchestration.events import (
    AgentMessageSent,
    AgentStateChanged,
    OrchestrationEnd,
    TreeNews,
    TreeRecord,
)
from nova_workers.contracts.waits import wait_adapter
from nova_workers.ledger.database import Connection, Row

_AGENTS = """
SELECT a.id AS agent_id, a.parent_id, a.depth, a.role, a.name, a.state, a.model, a.activations, a.summary, a.error_code,
       a.error_message, a.run_id, a.state_at AS at,
       ARRAY(SELECT DISTINCT e.id
               FROM runs r JOIN run_waits w ON w.run_id = r.id AND w.status = 'open' AND w.kind = 'message',
                    jsonb_array_elements_text(w.request->'agent_ids') AS e(id)
              WHERE r.id = a.run_id AND r.status = 'waiting' ORDER BY e.id) AS waits_for
  FROM orchestration_agents a
 WHERE a.orchestration_id = :id
"""
_MESSAGES = """
SELECT m.id AS message_id, m.type AS message_type, m.source_id, m.target_id, m.correlation_id,
       COALESCE(m.payload->>'text', '') AS text,
       (m.payload->>'percent')::float8 AS percent, m.created_at AS at
  FROM orchestration_messages m
 WHERE m.orchestration_id = :id
"""
_END = """
SELECT o.id AS orchestration_id, o.master_id, a.run_id, a.state, a.summary, a.error_code, a.error_message,
       o.finished_at AS at
  FROM orchestrations o JOIN orchestration_agents a ON a.id = o.master_id
 WHERE o.id = :id AND o.finished_at IS NOT NULL
"""

_QUESTIONS = f"""
SELECT a.id, w.run_id, w.tool_call_id, w.request, w.created_at AS at
  FROM orchestration_agents a JOIN runs r ON r.id = a.run_id AND r.status = 'waiting'
  JOIN run_waits w ON w.run_id = r.id AND w.status = 'open' AND w.kind IN {sql_list(ANSWERABLE)}
 WHERE a.orchestration_id = :id AND w.created_at < now() - :older_than_s * interval '1 s'
 ORDER BY w.id
"""

# now() is the start of the transaction, and the time that its statements write.
_AGENTS_NOW = f"{_AGENTS} AND a.state_at = now() ORDER BY a.id"
_MESSAGES_NOW = f"{_MESSAGES} AND m.created_at = now() ORDER BY m.id"
_END_NOW = f"{_END} AND o.finished_at = now()"
_NOW = f"""
SELECT (SELECT jsonb_agg(to_jsonb(x)) FROM ({_MESSAGES_NOW}) x) AS sent,
       (SELECT jsonb_agg(to_jsonb(x)) FROM ({_AGENTS_NOW}) x) AS moved,
       (SELECT jsonb_agg(to_jsonb(x)) FROM ({_END_NOW}) x) AS ended
"""
_AGENTS_OF = f"{_AGENTS} AND a.id = ANY(:agent_ids::text[])"
_MESSAGE_OF = f"{_MESSAGES} AND m.id = :message_id"
_AGENTS_ALL = f"{_AGENTS} ORDER BY a.state_at, a.id"
_MESSAGES_ALL = f"{_MESSAGES} ORDER BY m.id"


async def changed_now(connection: Connection, orchestration_id: str) -> TreeNews:
    """Return the changes to a tree in the present transaction so far."""
    row = await connection.fetchrow(_NOW, id=orchestration_id)
    if row is None:
        return _news(orchestration_id, ())
    found = (*map(_sent, row["sent"] or ()), *map(_moved, row["moved"] or ()), *map(_ended, row["ended"] or ()))
    return _news(orchestration_id, found)


async def news_of_agents(connection: Connection, orchestration_id: str, agent_ids: Sequence[str]) -> TreeNews:
    """Return the states of agents as they stand."""
    rows = await connection.fetch(_AGENTS_OF, id=orchestration_id, agent_ids=list(agent_ids))
    return _news(orchestration_id, [_moved(row) for row in rows])


async def news_of_message(connection: Connection, orchestration_id: str, message_id: str) -> TreeNews:
    """Return a message as an event."""
    rows = await connection.fetch(_MESSAGE_OF, id=orchestration_id, message_id=message_id)
    return _news(orchestration_id, [_sent(row) for row in rows])


async def recorded_news(connection: Connection, orchestration_id: str) -> list[tuple[datetime, TreeRecord]]:
    """Return the past of a tree in the ledger, oldest first: messages, latest states and the end."""
    messages = await connection.fetch(_MESSAGES_ALL, id=orchestration_id)
    agents = await connection.fetch(_AGENTS_ALL, id=orchestration_id)
    ended = await connection.fetch(_END, id=orchestration_id)
    rows = [
        *((row["at"], 0, row["message_id"], _sent(row)) for row in messages),
        *((row["at"], 1, row["agent_id"], _moved(row)) for row in agents),
        *((row["at"], 2, row["master_id"], _ended(row)) for row in ended),
    ]
    return [(at, record) for at, _, _, record in sorted(rows, key=lambda each: each[:3])]


async def open_questions(connection: Connection, orchestration_id: str, *, older_than_s: float) -> list[TreeRecord]:
    """Return the questions of a tree's agents to a person that are at least so old, oldest first."""
    return [_asked(row) for row in await connection.fetch(_QUESTIONS, id=orchestration_id, older_than_s=older_than_s)]


def _news(orchestration_id: str, records: Sequence[TreeRecord]) -> TreeNews:
    return TreeNews(orchestration_id=orchestration_id, records=tuple(records))


def _moved(row: Row | Mapping[str, Any]) -> TreeRecord:
    return TreeRecord(agent_id=row["agent_id"], run_id=row["run_id"], event=AgentStateChanged(**row))


def _sent(row: Row | Mapping[str, Any]) -> TreeRecord:
    return TreeRecord(agent_id=row["source_id"] or row["target_id"], event=AgentMessageSent(**row))


def _asked(row: Row) -> TreeRecord:
    event = Waiting.of(row["tool_call_id"], wait_adapter.validate_python(row["request"]))
    return TreeRecord(agent_id=row["id"], run_id=row["run_id"], event=event.model_copy(update={"at": row["at"]}))


def _ended(row: Row | Mapping[str, Any]) -> TreeRecord:
    return TreeRecord(agent_id=row["master_id"], run_id=row["run_id"], event=OrchestrationEnd(**row))
