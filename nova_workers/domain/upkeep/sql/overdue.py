"""Due effects and expired idempotency keys, which the reconciler handles besides runs."""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.base.vocabulary import OPEN_EFFECTS, sql_list
from nova_workers.ledger.database import Connection

# With the kinds, by which the index of open effects begins.
_DUE_EFFECTS = f"""
SELECT EXISTS (SELECT 1 FROM effects
                WHERE kind = ANY (:kinds::text[]) AND status IN {sql_list(OPEN_EFFECTS)} AND due_at <= now())
"""

# Locks the rows before it deletes them: a key that a submit just took over is no longer expired.
_DELETE_KEYS = """
WITH expired AS (
    SELECT tenant_id, key FROM idempotency_keys WHERE expires_at < now() LIMIT :limit FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM idempotency_keys k USING expired e WHERE k.tenant_id = e.tenant_id AND k.key = e.key
    RETURNING 1
)
SELECT count(*)::int FROM gone
"""


async def has_due_effects(connection: Connection, kinds: Sequence[str]) -> bool:
    """Return whether any effect of these kinds is due, including those whose worker crashed."""
    return await connection.fetchval(_DUE_EFFECTS, kinds=list(kinds))


async def delete_expired_keys(connection: Connection, *, limit: int) -> int:
    """Delete idempotency keys that expired, at most `limit`, and return how many."""
    return await connection.fetchval(_DELETE_KEYS, limit=limit)
