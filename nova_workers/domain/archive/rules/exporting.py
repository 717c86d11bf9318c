"""Writes the archive of a tenant."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from nova_workers.domain.archive.sql.reading import read_archive
from nova_workers.ledger.database import Database


async def export_archive(database: Database, tenant_id: str, *, with_secrets: bool) -> AsyncGenerator[bytes]:
    """Yield the lines of a tenant's archive, as of one moment.

    Args:
        database: The ledger.
        with_secrets: Whether to include the names of secrets.

    Raises:
        Conflict: An agent is being renamed.
        Unavailable: The connection to the database was lost.
    """
    async with (
        database.snapshot() as snapshot,
        aclosing(read_archive(snapshot, tenant_id, with_secrets=with_secrets)) as lines,
    ):
        async for line in lines:
            yield line
