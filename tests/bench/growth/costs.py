"""Costs as values: what an operation takes at one size, and whether it grows."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

_FLAT_FACTOR = 2.0
"""A tree of an index is a level deeper, and caches hold less of it."""
_FLAT_MS = 1.0
"""Of noise: a busy machine adds as much to any of them."""
WARM_UP = 6
"""The driver prepares a statement, and Postgres decides on its plan, within the first five calls."""

Action = Callable[[], Awaitable[float]]
"""Does something once, and returns how many seconds its measured part took."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of an axis.

    Attributes:
        grows: Why its cost grows, for the page; empty if it must stay flat.
    """

    name: str
    grows: str = ""
    unit: str = "ms"


@dataclass(frozen=True, slots=True)
class Cost:
    """What an operation takes at one size.

    Attributes:
        value: The median.
        least: The least: what else runs on the machine only ever adds to it.
    """

    operation: Operation
    size: int
    value: float
    least: float

    @classmethod
    def of(cls, operation: Operation, size: int, taken_s: Sequence[float]) -> Self:
        """Return the cost of an operation that took so many seconds each time."""
        return cls(operation, size, statistics.median(taken_s) * 1000, min(taken_s) * 1000)


@dataclass(frozen=True, slots=True)
class Axis:
    """What grows, and what each operation costs at each size.

    Attributes:
        name: As on the command line.
        what: The thing whose number grows.
        costs: In the order in which they were measured.
    """

    name: str
    what: str
    costs: Sequence[Cost]

    @property
    def sizes(self) -> list[int]:
        """The sizes, growing."""
        return sorted({cost.size for cost in self.costs})

    @property
    def rows(self) -> Mapping[Operation, Mapping[int, Cost]]:
        """By operation, its cost at each size."""
        rows: dict[Operation, dict[int, Cost]] = {}
        for cost in self.costs:
            rows.setdefault(cost.operation, {})[cost.size] = cost
        return rows

    def factor(self, operation: Operation) -> float:
        """Return the least cost at the largest size over that at the smallest."""
        row = self.rows[operation]
        return row[max(row)].least / row[min(row)].least

    def is_flat(self, operation: Operation) -> bool:
        """Whether the least cost at the largest size is that at the smallest, but for noise."""
        row = self.rows[operation]
        grown = row[max(row)].least - row[min(row)].least
        return self.factor(operation) <= _FLAT_FACTOR or (operation.unit == "ms" and grown <= _FLAT_MS)


async def repeated(action: Action, repeats: int) -> list[float]:
    """Repeat an action, after a few times that do not count, and return the seconds that each took."""
    for _ in range(min(WARM_UP, repeats)):
        await action()
    return [await action() for _ in range(repeats)]
