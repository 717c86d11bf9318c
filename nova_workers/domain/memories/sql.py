"""Facts that the agents of a tenant share, limited in size and number."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nova_workers.base.errors import LimitExceeded, too_many
from nova_workers.base.ids import new_id
from nova_workers.contracts.http.memories import MAX_MEMORY_CHARS
from nova_workers.ledger.database import Connection

MAX_CONTENT_CHARS = MAX_MEMORY_CHARS
MAX_MEMORIES = 1_000
"""A tenant's. Approximate: two concurrent saves may both take the last free place."""

_COLUMNS = "id, agent_id, content, created_at"

# An existing fact is not saved twice, so that a save can be repeated after a crash.
_SAVE = f"""
WITH known AS (
    SELECT {_COLUMNS} FROM memories WHERE tenant_id = :tenant_id AND content = :content ORDER BY id LIMIT 1
), saved AS (
    INSERT INTO memories (id, tenant_id, agent_id, content)
    SELECT :memory_id, :tenant_id, :agent_id, :content
     WHERE NOT EXISTS (SELECT FROM known) AND (SELECT count(*) FROM memories WHERE tenant_id = :tenant_id) < :at_most
    RETURNING {_COLUMNS}
)
SELECT {_COLUMNS} FROM known UNION ALL SELECT {_COLUMNS} FROM saved
"""

_LIST = f"""
SELECT {_COLUMNS}
  FROM memories
 WHERE tenant_id = :tenant_id AND (:contains::text IS NULL OR strpos(lower(content), lower(:contains)) > 0)
   AND (:before::text IS NULL OR id < :before)
 ORDER BY id DESC
 LIMIT :limit
"""

_DELETE = "DELETE FROM memories WHERE tenant_id = :tenant_id AND id = :memory_id RETURNING id"


@dataclass(frozen=True, slots=True)
class Memory:
    """A fact, and the agent that saved it."""

    id: str
    agent_id: str
    content: str
    created_at: datetime


async def save_memory(connection: Connection, tenant_id: str, agent_id: str, content: str) -> Memory:
    """Save a fact, or return the existing one with the same text.

    Raises:
        LimitExceeded: The fact is too long, or the tenant has the most memories allowed.
    """
    if len(content) > MAX_CONTENT_CHARS:
        raise LimitExceeded(
            f"A memory has at most {MAX_CONTENT_CHARS} characters, this one {len(content)}. Save the fact, shorter.",
            limit=MAX_CONTENT_CHARS,
        )
    row = await connection.fetchrow(
        _SAVE, tenant_id=tenant_id, memory_id=new_id("mem"), agent_id=agent_id, content=content, at_most=MAX_MEMORIES
    )
    if row is None:
        raise too_many(MAX_MEMORIES, "memories", "Delete those that no longer matter.")
    return Memory(**row)


async def list_memories(
    connection: Connection, tenant_id: str, *, limit: int, contains: str | None = None, before: str | None = None
) -> tuple[Memory, ...]:
    """Return a tenant's memories, newest first.

    Args:
        limit: Most that are returned.
        contains: Only those with this text, ignoring case.
        before: Only those saved before the memory with this id.
    """
    return tuple(
        Memory(**row)
        for row in await connection.fetch(_LIST, tenant_id=tenant_id, contains=contains, before=before, limit=limit)
    )


async def delete_memory(connection: Connection, tenant_id: str, memory_id: str) -> bool:
    """Delete a memory. Returns whether there was one in this tenant."""
    return await connection.fetchval(_DELETE, tenant_id=tenant_id, memory_id=memory_id) is not None
