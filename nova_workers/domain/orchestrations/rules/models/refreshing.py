"""Learns from the ledger how models do."""

from __future__ import annotations

import structlog

from nova_workers.base.config import OrchestrationSettings
from nova_workers.domain.orchestrations.sql.rankings import refresh_rankings
from nova_workers.ledger.database import Database

__all__ = ["RankingRefresher"]

_log = structlog.get_logger(__name__)


class RankingRefresher:
    """Computes rankings of models again when they are old. Any number of instances may tick."""

    def __init__(self, database: Database, settings: OrchestrationSettings) -> None:
        self._database = database
        self._settings = settings

    async def tick(self) -> int:
        """Compute the rankings that are old again, and return how many were written.

        Raises:
            Unavailable: The database cannot be reached; the next tick tries again.
        """
        async with self._database.transaction() as connection:
            written = await refresh_rankings(
                connection, fresh_s=self._settings.rankings_every_s, days=self._settings.rankings_days
            )
        if written:
            _log.info("model_rankings.refreshed", rankings=written)
        return written
