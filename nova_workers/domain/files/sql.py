"""Files that agents sent. Their content is a column, since workers share no disk."""

from __future__ import annotations

from nova_workers.base.ids import new_id
from nova_workers.contracts.deliveries import Sender, SentFileView
from nova_workers.ledger.database import Connection

_COLUMNS = "id, agent_id, thread_id, run_id, name, media_type, size_bytes, caption, created_at"

_ADD = f"""
INSERT INTO sent_files (id, tenant_id, agent_id, thread_id, run_id, name, media_type, size_bytes, caption, content)
VALUES (:file_id, :tenant_id, :agent_id, :thread_id, :run_id, :name, :media_type, :size_bytes, :caption, :content)
RETURNING {_COLUMNS}
"""

# Sends the content only if a file with the same name, caption and size exists, which is rare.
_MAY_BE_SAME = """
SELECT id FROM sent_files
 WHERE tenant_id = :tenant_id AND run_id = :run_id AND name = :name AND caption IS NOT DISTINCT FROM :caption
   AND size_bytes = :size_bytes
"""
_FIND_SAME = f"""
SELECT {_COLUMNS} FROM sent_files
 WHERE tenant_id = :tenant_id AND id = ANY(:file_ids::text[]) AND content = :content
 LIMIT 1
"""

_GET = f"SELECT {_COLUMNS} FROM sent_files WHERE tenant_id = :tenant_id AND id = :file_id"
_READ = f"SELECT {_COLUMNS}, content FROM sent_files WHERE tenant_id = :tenant_id AND id = :file_id"
_DELETE = "DELETE FROM sent_files WHERE tenant_id = :tenant_id AND id = :file_id RETURNING agent_id"

# One statement per set of filters, so that each is planned for the index that fits it.
_LIST = f"""
SELECT {_COLUMNS} FROM sent_files
 WHERE tenant_id = :tenant_id AND (:before::text IS NULL OR id < :before)
 ORDER BY id DESC
 LIMIT :limit
"""
_LIST_OF_AGENT = f"""
SELECT {_COLUMNS} FROM sent_files
 WHERE tenant_id = :tenant_id AND agent_id = :agent_id AND (:before::text IS NULL OR id < :before)
 ORDER BY id DESC
 LIMIT :limit
"""
_LIST_OF_THREAD = f"""
SELECT {_COLUMNS} FROM sent_files
 WHERE tenant_id = :tenant_id AND thread_id = :thread_id AND (:agent_id::text IS NULL OR agent_id = :agent_id)
   AND (:before::text IS NULL OR id < :before)
 ORDER BY id DESC
 LIMIT :limit
"""


async def add_file(
    connection: Connection, sender: Sender, *, name: str, media_type: str, caption: str | None, content: bytes
) -> SentFileView:
    """Store a file."""
    (row,) = await connection.fetch(
        _ADD,
        file_id=new_id("file"),
        tenant_id=sender.tenant_id,
        agent_id=sender.agent_id,
        thread_id=sender.thread_id,
        run_id=sender.run_id,
        name=name,
        media_type=media_type,
        size_bytes=len(content),
        caption=caption,
        content=content,
    )
    return SentFileView(**row)


async def find_same_file(
    connection: Connection, sender: Sender, *, name: str, caption: str | None, content: bytes
) -> SentFileView | None:
    """Return the run's file with the same name, caption and content, if it has sent one already."""
    rows = await connection.fetch(
        _MAY_BE_SAME,
        tenant_id=sender.tenant_id,
        run_id=sender.run_id,
        name=name,
        caption=caption,
        size_bytes=len(content),
    )
    if not rows:
        return None
    row = await connection.fetchrow(
        _FIND_SAME, tenant_id=sender.tenant_id, file_ids=[row["id"] for row in rows], content=content
    )
    return None if row is None else SentFileView(**row)


async def get_file(connection: Connection, tenant_id: str, file_id: str) -> SentFileView | None:
    """Return a file without its content."""
    row = await connection.fetchrow(_GET, tenant_id=tenant_id, file_id=file_id)
    return None if row is None else SentFileView(**row)


async def read_file(connection: Connection, tenant_id: str, file_id: str) -> tuple[SentFileView, bytes] | None:
    """Return a file and its content."""
    row = await connection.fetchrow(_READ, tenant_id=tenant_id, file_id=file_id)
    return None if row is None else (SentFileView(**row), row["content"])


async def delete_file(connection: Connection, tenant_id: str, file_id: str) -> str | None:
    """Delete a file, and return the agent that sent it; None if there is no such file."""
    return await connection.fetchval(_DELETE, tenant_id=tenant_id, file_id=file_id)


async def list_files(
    connection: Connection,
    tenant_id: str,
    *,
    limit: int,
    agent_id: str | None = None,
    thread_id: str | None = None,
    before: str | None = None,
) -> list[SentFileView]:
    """Return files, newest first, from before the file `before`."""
    given = {"tenant_id": tenant_id, "before": before, "limit": limit}
    if thread_id is not None:
        rows = await connection.fetch(_LIST_OF_THREAD, **given, thread_id=thread_id, agent_id=agent_id)
    elif agent_id is not None:
        rows = await connection.fetch(_LIST_OF_AGENT, **given, agent_id=agent_id)
    else:
        rows = await connection.fetch(_LIST, **given)
    return [SentFileView(**row) for row in rows]
