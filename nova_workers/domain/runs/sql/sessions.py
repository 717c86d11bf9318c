"""Sessions of engines whose SDK keeps its own transcripts.

A session stores what one turn added, and is read by walking from its end to its root. So a conversation is stored once,
not once for each turn.
"""

from __future__ import annotations

from nova_workers.contracts.content import JsonObject, storable_json
from nova_workers.contracts.sessions import NewSession, StoredSession
from nova_workers.ledger.database import Connection

_LOAD = """
WITH RECURSIVE chain AS (
    SELECT id, parent_id, entries, fingerprint, 0 AS back
      FROM engine_sessions
     WHERE tenant_id = :tenant_id AND engine = :engine AND id = :session_id
    UNION ALL
    SELECT s.id, s.parent_id, s.entries, s.fingerprint, c.back + 1
      FROM engine_sessions s JOIN chain c ON s.id = c.parent_id
     WHERE s.tenant_id = :tenant_id AND s.engine = :engine
)
SELECT parent_id, entries, fingerprint FROM chain ORDER BY back DESC
"""

# Each turn makes a new session, so an existing row is this one, saved before its reply was lost.
_SAVE = """
INSERT INTO engine_sessions (id, tenant_id, thread_id, parent_id, engine, entries, fingerprint)
VALUES (:session_id, :tenant_id, :thread_id, :parent_id, :engine, :entries, :fingerprint)
    ON CONFLICT (id) DO NOTHING
"""


async def load_session(connection: Connection, tenant_id: str, engine: str, session_id: str) -> StoredSession | None:
    """Return a session with all its ancestors' entries, or None if it or one of them is missing."""
    rows = await connection.fetch(_LOAD, tenant_id=tenant_id, engine=engine, session_id=session_id)
    if not rows or rows[0]["parent_id"] is not None:
        return None
    # What is no list is one entry, of a form that its engine does not know.
    lists = (each if isinstance(each := row["entries"], list) else [each] for row in rows)
    entries: list[JsonObject] = [entry for each in lists for entry in each]
    return StoredSession(tuple(entries), rows[-1]["fingerprint"])


async def save_session(
    connection: Connection, tenant_id: str, thread_id: str, engine: str, session: NewSession
) -> None:
    """Save a session. Saving the same one again changes nothing."""
    await connection.execute(
        _SAVE,
        session_id=session.id,
        tenant_id=tenant_id,
        thread_id=thread_id,
        parent_id=session.parent_id,
        engine=engine,
        entries=storable_json(list(session.entries)),
        fingerprint=session.fingerprint,
    )
