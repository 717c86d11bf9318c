"""The order of tests in a run with xdist."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

_Item = TypeVar("_Item")


def dealt(
    longest: Sequence[_Item], groups: Sequence[Sequence[_Item]], others: Sequence[_Item], *, workers: int
) -> list[_Item]:
    """Return all in the order in which `--dist worksteal` begins with the longest, and leaves each group together.

    It cuts the order into a part for each worker, of equal length, and moves only ends of parts to idle workers.

    Args:
        longest: They are dealt to the workers. A long test that began last would keep one worker busy while the others
            have nothing left to do.
        groups: What is set up once for a group is set up in one worker.
        others: All other tests.
        workers: How many there are.
    """
    begins: list[list[_Item]] = [list(longest[worker::workers]) for worker in range(workers)]
    for number, group in enumerate(groups):
        begins[-1 - number % workers] += group
    remaining, left = sum(map(len, begins)) + len(others), iter(others)
    ordered: list[_Item] = []
    for worker, begin in enumerate(begins):
        length = remaining // (workers - worker)
        remaining -= length
        ordered += [*begin, *islice(left, max(0, length - len(begin)))]
    return [*ordered, *left]
