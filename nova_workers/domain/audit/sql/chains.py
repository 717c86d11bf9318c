"""The chains over the audit log: sealing and deletion, by functions of its owner (`models/rights/audit_chain.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nova_workers.ledger.database import Connection

_SEAL = "SELECT of_tenant, last_seq, encode(last_hash, 'hex') AS last_hash, at, records FROM seal_audit(:limit)"

_DELETE = "SELECT delete_audit(:tenant_id, :days, :limit)"


@dataclass(frozen=True, slots=True)
class SealedChain:
    """A chain to which records were added: its new head, and how many records."""

    tenant_id: str
    seq: int
    hash: str
    sealed_at: datetime
    records: int


async def seal(connection: Connection, *, limit: int) -> list[SealedChain]:
    """Add committed records to the chains of their tenants, at most `limit`, and return the new heads.

    Returns nothing while another session seals.
    """
    rows = await connection.fetch(_SEAL, limit=limit)
    return [SealedChain(row["of_tenant"], row["last_seq"], row["last_hash"], row["at"], row["records"]) for row in rows]


async def delete_audit(connection: Connection, *, days: int, limit: int) -> int:
    """Delete records that are older than `days`, at most `limit`, and return how many. The chains stay whole."""
    return int(await connection.fetchval(_DELETE, tenant_id=None, days=days, limit=limit))


async def delete_audit_of(connection: Connection, tenant_id: str, *, limit: int) -> int:
    """Delete records of an ended tenant, at most `limit`, with the last of them its chain; return how many."""
    return int(await connection.fetchval(_DELETE, tenant_id=tenant_id, days=None, limit=limit))
