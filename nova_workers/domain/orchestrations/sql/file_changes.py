"""Reads the tool calls of a tree that changed files, each with the messages before it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from nova_workers.ledger.database import Connection, Row

_BLOCKS = ("text", "thinking", "tool_use", "tool_result")
"""The types of content blocks that a history has entries for."""

# A call that failed changed nothing. The messages are the newest :messages of the agent's thread up to the one that
# made the call. Their results and parameters of calls are left out: they may be whole files.
_CHANGES = """
WITH changed AS (
    SELECT c.id, c.call_id, c.tool_name, c.params->>'file_path' AS path, c.completed_at AS at, a.id AS agent_id,
           a.thread_id, t.run_id, t.depth,
           (SELECT max(m.seq) FROM messages m
             WHERE m.turn_id = c.turn_id AND m.step <= c.step AND m.kind = 'response') AS seq
      FROM orchestration_agents a
      JOIN turns t ON t.thread_id = a.thread_id
      JOIN tool_calls c ON c.turn_id = t.id
     WHERE a.tenant_id = :tenant_id AND a.orchestration_id = :orchestration_id
       AND (:agent_id::text IS NULL OR a.id = :agent_id)
       AND c.status = 'completed' AND c.tool_name = ANY(:tools::text[]) AND c.params ? 'file_path'
       AND (:after_at::timestamptz IS NULL OR (c.completed_at, c.id) > (:after_at, :after_id::text))
     ORDER BY c.completed_at, c.id
     LIMIT :limit
)
SELECT changed.*,
       (SELECT jsonb_agg(jsonb_build_object(
                   'role', m.role, 'run_id', m.run_id, 'created_at', m.created_at,
                   'content', (SELECT COALESCE(jsonb_agg(b || '{"input": {}, "content": []}' ORDER BY number), '[]')
                                 FROM jsonb_array_elements(m.content) WITH ORDINALITY AS blocks(b, number)
                                WHERE b->>'type' = ANY(:blocks::text[]))
                   ) ORDER BY m.depth, m.seq)
          FROM (SELECT m.role, m.content, m.created_at, m.run_id, t.depth, m.seq
                  FROM turns t JOIN messages m ON m.turn_id = t.id
                 WHERE t.thread_id = changed.thread_id AND t.type = 'normal'
                   AND (t.depth, m.seq) <= (changed.depth, changed.seq)
                 ORDER BY t.depth DESC, m.seq DESC
                 LIMIT :messages) m) AS messages
  FROM changed
 ORDER BY changed.at, changed.id
"""


async def list_file_changes(
    connection: Connection,
    tenant_id: str,
    orchestration_id: str,
    *,
    tools: Sequence[str],
    agent_id: str | None,
    messages: int,
    after: tuple[datetime, str] | None,
    limit: int,
) -> list[Row]:
    """Return the calls of an orchestration that changed a file, oldest first.

    Rows have `id`, `call_id`, `tool_name`, `path`, `at`, `agent_id`, `run_id`, and `messages` up to the call's, oldest
    first: mappings with `role`, `content` (blocks), `run_id` and `created_at`.

    Args:
        connection: The ledger.
        tenant_id: Whose orchestration.
        tools: Names of the tools that change the file in their parameter `file_path`.
        agent_id: Only calls of this agent of the orchestration.
        messages: How many messages each row has at most.
        after: Only calls after the one with this end and id.
        limit: Most rows.
    """
    after_at, after_id = after or (None, None)
    return await connection.fetch(
        _CHANGES,
        tenant_id=tenant_id,
        orchestration_id=orchestration_id,
        tools=list(tools),
        agent_id=agent_id,
        messages=messages,
        blocks=list(_BLOCKS),
        after_at=after_at,
        after_id=after_id,
        limit=limit,
    )
