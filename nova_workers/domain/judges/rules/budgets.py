"""How many calls of a judge its budget still takes. Pure."""

from __future__ import annotations

from math import floor
from typing import Final

from nova_workers.domain.judges.sql.judgements import JudgeProgress

_FIRST: Final = 1
"""How many calls of a judge are open until the first has shown what one costs."""
_AFTER_FAILURES: Final = 5
"""How many are open while all have failed without a cost: what the next one costs is not known either."""
_ROUNDING: Final = 1e-9


def room_in_budget(budget_usd: float, progress: JudgeProgress) -> int:
    """Return how many more calls may be begun, so that with those that are open they stay within the budget.

    A model that answers at no cost has no limit.
    """
    if progress.mean_usd is None:
        if progress.answered:
            return progress.pending
        return (_AFTER_FAILURES if progress.ended else _FIRST) - progress.running
    left = budget_usd - progress.spent_usd
    return floor(left / progress.mean_usd + _ROUNDING) - progress.running if left > 0 else 0
