"""Serves tools in tests that have no run."""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.runs import CancelRequest
from nova_workers.domain.capabilities.rules.serving import ToolServer
from nova_workers.domain.capabilities.rules.transactions import CallTransactions
from nova_workers.ledger.database import PostgresDatabase
from tests.support.harness.workers import Doorbells

__all__ = ["SilentNotifier", "tool_server"]


class SilentNotifier:
    """A notifier that does nothing."""

    async def apply_requests(self, requests: Sequence[CancelRequest]) -> None:
        """Do nothing."""

    async def apply_interrupt(self, run_id: str) -> None:
        """Do nothing."""

    async def notify_order(self, order_id: str) -> None:
        """Do nothing."""

    def announce_tree(self, news: TreeNews) -> None:
        """Do nothing."""


def tool_server() -> ToolServer:
    """Return a server for tools whose database is not that of the server's calls: what they write commits by itself."""
    nowhere = PostgresDatabase("postgresql://unused", pool_size=1)
    return ToolServer(CallTransactions(nowhere, Doorbells(), SilentNotifier()))
