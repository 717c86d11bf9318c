"""State documents of threads.

They have a table of their own: a document is up to 64 kB and changes while its thread's run works, and the row of a
thread is updated and locked by each claim, finish and message. So a change of a document, after the first, waits for
none of these, and none of them copies a document.
"""

from __future__ import annotations

from nova_workers.base.errors import deleted, missing
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.thread_states import ThreadStateView
from nova_workers.ledger.database import Connection

_READ = """
SELECT t.deleted_at IS NOT NULL AS deleted, COALESCE(s.state, '{}') AS state, COALESCE(s.version, 0) AS version,
       s.updated_at
  FROM threads t LEFT JOIN thread_states s ON s.thread_id = t.id
 WHERE t.tenant_id = :tenant_id AND t.id = :thread_id
"""

# Guarded by the version, of which there is none before the first write: of two first writes the second finds the row of
# the other one.
_WRITE = """
INSERT INTO thread_states AS s (thread_id, tenant_id, state, version)
SELECT t.id, t.tenant_id, :state, 1
  FROM threads t
 WHERE t.tenant_id = :tenant_id AND t.id = :thread_id AND t.deleted_at IS NULL
   AND (:version::bigint IS NULL
        OR COALESCE((SELECT x.version FROM thread_states x WHERE x.thread_id = t.id), 0) = :version)
ON CONFLICT (thread_id) DO UPDATE
   SET state = EXCLUDED.state, version = s.version + 1, updated_at = now()
 WHERE :version::bigint IS NULL OR s.version = :version
RETURNING state, version, updated_at
"""


async def read_state(connection: Connection, tenant_id: str, thread_id: str) -> ThreadStateView:
    """Return the document of a thread: an empty one of version 0 before the first write.

    Raises:
        NotFound: There is no such thread.
        Gone: It was deleted.
    """
    row = await connection.fetchrow(_READ, tenant_id=tenant_id, thread_id=thread_id)
    if row is None:
        raise missing("thread", thread_id)
    if row["deleted"]:
        raise deleted("thread", thread_id)
    return ThreadStateView(state=row["state"], version=row["version"], updated_at=row["updated_at"])


async def write_state(
    connection: Connection, tenant_id: str, thread_id: str, state: JsonObject, *, version: int | None
) -> ThreadStateView | None:
    """Write a whole document in place of a version, or of whichever there is.

    Returns:
        The document; None if there is no such thread, or its document has another version.
    """
    row = await connection.fetchrow(_WRITE, tenant_id=tenant_id, thread_id=thread_id, state=state, version=version)
    if row is None:
        return None
    return ThreadStateView(state=row["state"], version=row["version"], updated_at=row["updated_at"])
