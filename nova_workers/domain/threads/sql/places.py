"""Finds where a conversation continues, for clients that name it by what was said in it, not by an id.

A place is kept under the digest of the conversation as an idempotency key is; no header can have such a key. Calls of
agents elsewhere keep the task that they began likewise, under a digest of the call.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from nova_workers.ledger.database import Connection

PLACE_KEPT: Final = timedelta(days=30)
"""How long a place is found after the conversation came to it."""

_NOTE = """
INSERT INTO idempotency_keys AS k (tenant_id, key, run_id, body_hash, expires_at)
VALUES (:tenant_id, :key, :continued, '', now() + :kept)
ON CONFLICT (tenant_id, key) DO UPDATE SET run_id = EXCLUDED.run_id, expires_at = EXCLUDED.expires_at
"""

_FIND = "SELECT run_id FROM idempotency_keys WHERE tenant_id = :tenant_id AND key = :key AND expires_at > now()"


async def note_place(connection: Connection, tenant_id: str, digest: str, continued: str) -> None:
    """Keep what a conversation continues. Of conversations with the same digest the newest one counts.

    Args:
        digest: Of all that was said.
        continued: A run, or what names a part of one.
    """
    await connection.execute(_NOTE, tenant_id=tenant_id, key=_key(digest), continued=continued, kept=PLACE_KEPT)


async def find_place(connection: Connection, tenant_id: str, digest: str) -> str | None:
    """Return the name of what a conversation continues; None if no place of it is kept."""
    return await connection.fetchval(_FIND, tenant_id=tenant_id, key=_key(digest))


def _key(digest: str) -> str:
    # A header's key has no space.
    return f"place {digest}"
