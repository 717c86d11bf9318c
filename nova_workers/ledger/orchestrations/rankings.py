"""What models did in the agents of orchestrations, by tenant and kind of work."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nova_workers.ledger.database import Connection
from nova_workers.vocabulary import TaskCategory

__all__ = ["Ranking", "list_rankings"]

_LIST = """
SELECT category, model, samples, success_rate, mean_cost_usd, mean_duration_ms, score, refreshed_at
  FROM model_rankings
 WHERE tenant_id = :tenant_id
 ORDER BY category, model
"""


@dataclass(frozen=True, slots=True)
class Ranking:
    """How a model did in a kind of work.

    Attributes:
        model: As usage names it.
        samples: Ended runs.
        success_rate: From 0 to 1.
        mean_cost_usd: Of a run; None if no cost is known.
        mean_duration_ms: Of a run.
        score: From 0 to 1.
    """

    category: TaskCategory
    model: str
    samples: int
    success_rate: float
    mean_cost_usd: float | None
    mean_duration_ms: float | None
    score: float
    refreshed_at: datetime


async def list_rankings(connection: Connection, tenant_id: str) -> list[Ranking]:
    """Return a tenant's rankings: at most one for each model and kind of work."""
    return [
        Ranking(
            category=row["category"],
            model=row["model"],
            samples=row["samples"],
            success_rate=row["success_rate"],
            mean_cost_usd=None if row["mean_cost_usd"] is None else float(row["mean_cost_usd"]),
            mean_duration_ms=row["mean_duration_ms"],
            score=row["score"],
            refreshed_at=row["refreshed_at"],
        )
        for row in await connection.fetch(_LIST, tenant_id=tenant_id)
    ]
