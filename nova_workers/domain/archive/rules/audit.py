"""Writes the audit log of a tenant as lines of JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from nova_workers.domain.audit.sql.listing import AuditFilter, read_audit
from nova_workers.ledger.database import Database


async def export_audit(database: Database, tenant_id: str, which: AuditFilter) -> AsyncGenerator[bytes]:
    """Yield a tenant's records as lines of JSON, oldest first, as of one moment.

    Raises:
        Unavailable: The connection to the database was lost.
    """
    async with database.snapshot() as snapshot, aclosing(read_audit(snapshot, tenant_id, which)) as records:
        async for record in records:
            yield record.model_dump_json().encode() + b"\n"
