"""Notes: markdown documents that belong to agents. `notes.rules` decides about permissions."""

from __future__ import annotations

from nova_workers.base.ids import new_id
from nova_workers.contracts.http.notes import NoteSummary, NoteView
from nova_workers.ledger.database import Connection

_SUMMARY = "id, agent_id, title, shared, pinned, char_length(content) AS content_chars, created_at, updated_at"
_WHOLE = f"{_SUMMARY}, content"

# The limit is approximate: two concurrent inserts may both take the last free place.
_ADD = f"""
INSERT INTO notes (id, tenant_id, agent_id, title, content, shared, pinned)
SELECT :note_id, a.tenant_id, a.id, :title, :content, :shared, :pinned
  FROM agents a
 WHERE a.tenant_id = :tenant_id AND a.id = :agent_id AND a.deleted_at IS NULL
   AND (SELECT count(*) FROM notes n WHERE n.tenant_id = :tenant_id AND n.agent_id = :agent_id) < :at_most
RETURNING {_WHOLE}
"""

_COUNT = "SELECT count(*) FROM notes WHERE tenant_id = :tenant_id AND agent_id = :agent_id"

_GET = f"SELECT {_WHOLE} FROM notes WHERE tenant_id = :tenant_id AND id = :note_id"
_LOCK = f"{_GET} FOR UPDATE"

_WRITE = f"""
UPDATE notes SET title = :title, content = :content, shared = :shared, pinned = :pinned, updated_at = now()
 WHERE tenant_id = :tenant_id AND id = :note_id
RETURNING {_WHOLE}
"""

_DELETE = "DELETE FROM notes WHERE tenant_id = :tenant_id AND id = :note_id"

# One statement per set of filters, so that each is planned for the index that fits it.
_LIST = f"""
SELECT {_SUMMARY} FROM notes
 WHERE tenant_id = :tenant_id AND (:before::text IS NULL OR id < :before)
   AND (:pinned::boolean IS NULL OR pinned = :pinned) AND (:shared::boolean IS NULL OR shared = :shared)
   AND (:agent_id::text IS NULL OR agent_id <> :agent_id)
 ORDER BY id DESC
 LIMIT :limit
"""
_LIST_OF_AGENT = f"""
SELECT {_SUMMARY} FROM notes
 WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND (:before::text IS NULL OR id < :before)
   AND (:pinned::boolean IS NULL OR pinned = :pinned) AND (:shared::boolean IS NULL OR shared = :shared)
 ORDER BY id DESC
 LIMIT :limit
"""


async def add_note(
    connection: Connection,
    tenant_id: str,
    agent_id: str,
    *,
    title: str,
    content: str,
    shared: bool,
    pinned: bool,
    at_most: int,
) -> NoteView | None:
    """Add a note to an agent; None if there is no such agent, or it has `at_most` notes."""
    row = await connection.fetchrow(
        _ADD,
        note_id=new_id("note"),
        tenant_id=tenant_id,
        agent_id=agent_id,
        title=title,
        content=content,
        shared=shared,
        pinned=pinned,
        at_most=at_most,
    )
    return None if row is None else NoteView(**row)


async def count_notes(connection: Connection, tenant_id: str, agent_id: str) -> int:
    """Return how many notes an agent has."""
    return await connection.fetchval(_COUNT, tenant_id=tenant_id, agent_id=agent_id)


async def get_note(connection: Connection, tenant_id: str, note_id: str) -> NoteView | None:
    """Return a note."""
    row = await connection.fetchrow(_GET, tenant_id=tenant_id, note_id=note_id)
    return None if row is None else NoteView(**row)


async def lock_note(connection: Connection, tenant_id: str, note_id: str) -> NoteView | None:
    """Return a note, locked until the transaction ends."""
    row = await connection.fetchrow(_LOCK, tenant_id=tenant_id, note_id=note_id)
    return None if row is None else NoteView(**row)


async def write_note(connection: Connection, tenant_id: str, note: NoteView) -> NoteView:
    """Update a note that this transaction has locked."""
    (row,) = await connection.fetch(
        _WRITE,
        tenant_id=tenant_id,
        note_id=note.id,
        title=note.title,
        content=note.content,
        shared=note.shared,
        pinned=note.pinned,
    )
    return NoteView(**row)


async def delete_note(connection: Connection, tenant_id: str, note_id: str) -> None:
    """Delete a note."""
    await connection.execute(_DELETE, tenant_id=tenant_id, note_id=note_id)


async def list_notes(
    connection: Connection,
    tenant_id: str,
    *,
    limit: int,
    agent_id: str | None = None,
    not_of: str | None = None,
    pinned: bool | None = None,
    shared: bool | None = None,
    before: str | None = None,
) -> list[NoteSummary]:
    """Return notes, newest first.

    Args:
        limit: Most that are returned.
        agent_id: Only those of this agent.
        not_of: Leave out those of this agent; not together with `agent_id`.
        pinned: Only pinned ones, or only others.
        shared: Only shared ones, or only others.
        before: Only those older than the note with this id.
    """
    query, agent = (_LIST, not_of) if agent_id is None else (_LIST_OF_AGENT, agent_id)
    rows = await connection.fetch(
        query, tenant_id=tenant_id, before=before, pinned=pinned, shared=shared, limit=limit, agent_id=agent
    )
    return [NoteSummary(**row) for row in rows]
