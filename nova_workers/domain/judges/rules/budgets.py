"""How many calls of a judge its budget still takes. Pure."""

from __future__ import annotations

from math import floor
from typing import Final

from nova_workers.domain.judges.sql.judgements import JudgeProgress

_UNPRICED_AT_ONCE: Final = 1
"""How many calls of a judge are open until the first has shown what one costs."""
_ROUNDING: Final = 1e-9


def room_in_budget(budget_usd: float, progress: JudgeProgress) -> int:
    """Return how many more calls may be begun, so that with those that are open they stay within the budget."""
    if progress.mean_usd is None:
        return _UNPRICED_AT_ONCE - progress.running
    left = budget_usd - progress.spent_usd
    if left <= 0:
        return 0
    if progress.mean_usd <= 0:
        return progress.pending
    return floor(left / progress.mean_usd + _ROUNDING) - progress.running
