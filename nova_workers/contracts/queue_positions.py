"""The positions of runs in the queues of their threads."""

from __future__ import annotations

from typing import Final

MOST_COUNTED_BEFORE: Final = 1_000
"""The most runs before a run in its thread's queue that are counted, so that a long queue costs no more to look at."""


def count_before(position: int) -> str:
    """Return how many runs go before one with this position in its thread's queue, as text."""
    return f"{position:,} or more" if position >= MOST_COUNTED_BEFORE else f"{position}"
