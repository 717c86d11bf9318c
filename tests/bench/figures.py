"""Results as values: figures with their bounds, and the table's rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_BAR = 20
"""Characters of a whole."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a row.

    Attributes:
        label: Its name within the row, such as ``p95``; empty for a row's only number.
        bound: Its limit; None for a number that is only reported.
        at_least: Whether the bound is the least allowed; else it is the most.
        bare: The same number for a bare Celery app on the same broker, if it has one.
    """

    label: str
    value: float
    unit: str
    bound: float | None = None
    at_least: bool = False
    bare: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the bound is kept; None without one."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def ratio(self) -> float | None:
        """This number over bare Celery's."""
        return None if not self.bare else self.value / self.bare


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A table of its own below the others: the steps of a row."""

    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the table.

    Attributes:
        notes: What a reader must know to judge the numbers; footnotes of the table.
        details: Further numbers, for the JSON file.
        breakdown: The steps of which the figures were computed, if readers need them.
    """

    row: str
    what: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    breakdown: Breakdown | None = None

    @property
    def met(self) -> bool | None:
        """Whether every bound is kept; None without any."""
        verdicts = [figure.met for figure in self.figures if figure.met is not None]
        return all(verdicts) if verdicts else None


def bar(share: float) -> str:
    """Return a bar for a share of 0 to 1."""
    return "█" * round(_BAR * min(max(share, 0.0), 1.0))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` (0 to 1) of the values do not exceed: one of them, never an average."""
    if not values:
        raise ValueError("there is nothing to take a percentile of")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(
    values_s: Sequence[float], *, bounds_ms: Mapping[str, float], bare_s: Sequence[float] = ()
) -> tuple[Figure, ...]:
    """Return p50, p95 and p99 of durations in seconds, as milliseconds with their bounds."""
    return tuple(
        Figure(
            label,
            percentile(values_s, share) * 1000,
            "ms",
            bound=bounds_ms.get(label),
            bare=percentile(bare_s, share) * 1000 if bare_s else None,
        )
        for label, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
    )
