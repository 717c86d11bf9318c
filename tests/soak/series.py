"""A quantity over time, and whether it is flat."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

_BARS = "▁▂▃▄▅▆▇█"
_MOST_POINTS = 120
"""For the slope: all pairs of so many are 7,140."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a series is flat.

    Attributes:
        level: Its median after the warm-up.
        growth: By how much its trend changed over that time: the slope times the duration.
        permitted: How much that may be.
    """

    level: float
    growth: float
    permitted: float

    @property
    def flat(self) -> bool:
        """Whether it grew by no more than is permitted. Shrinking is flat."""
        return self.growth <= self.permitted


@dataclass(slots=True)
class Series:
    """Samples of one quantity.

    Attributes:
        name: What it is.
        unit: Of its values.
        floor: Growth that is permitted however small the level: a buffer, a page, a connection of a pool.
        judged: Whether growth is a fault. Otherwise it is shown only.
    """

    name: str
    unit: str
    floor: float
    judged: bool = True
    at_s: list[float] = field(default_factory=list[float])
    values: list[float] = field(default_factory=list[float])

    def add(self, at_s: float, value: float) -> None:
        """Add a sample."""
        self.at_s.append(at_s)
        self.values.append(value)

    def verdict(self, *, tolerance: float, after_s: float) -> Verdict | None:
        """Judge the samples after the warm-up; None with fewer than three of them.

        The slope is the median of the slopes between all pairs (Theil and Sen), so a few samples in a vacuum, a
        checkpoint or a collection of garbage do not decide.

        Args:
            tolerance: Permitted growth as a share of the level.
            after_s: End of the warm-up.
        """
        points = [(at, value) for at, value in zip(self.at_s, self.values, strict=True) if at >= after_s]
        if len(points) < 3:
            return None
        level = statistics.median(value for _, value in points)
        thinned = points[:: max(1, len(points) // _MOST_POINTS)]
        slope = statistics.median((y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in combinations(thinned, 2) if x1 > x0)
        return Verdict(level, slope * (points[-1][0] - points[0][0]), max(tolerance * abs(level), self.floor))


def sparkline(values: Sequence[float], *, width: int = 40) -> str:
    """Return values as bars from zero to their greatest, each the mean of a part."""
    if not values:
        return ""
    width = min(width, len(values))
    cuts = [len(values) * number // width for number in range(width + 1)]
    means = [statistics.fmean(values[start:end]) for start, end in pairwise(cuts)]
    top = max(means)
    return "".join(_BARS[round(mean / top * (len(_BARS) - 1)) if top > 0 else 0] for mean in means)
