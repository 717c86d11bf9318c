"""Serves tools in tests that have no run."""

from __future__ import annotations

from nova_workers.domain.capabilities.rules.serving import ToolServer
from nova_workers.domain.capabilities.rules.transactions import CallTransactions
from nova_workers.ledger.database import PostgresDatabase
from nova_workers.ledger.work import Work


def tool_server() -> ToolServer:
    """Return a server for tools whose database is not that of the server's calls: what they write commits by itself."""
    nowhere = PostgresDatabase("postgresql://unused", pool_size=1)
    return ToolServer(CallTransactions(Work(nowhere)))
