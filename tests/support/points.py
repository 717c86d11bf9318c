"""Which points of a matrix `make test` shows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def each_once(*axes: Sequence[Any]) -> list[pytest.ParameterSet]:
    """Return the points of a matrix for `parametrize`; all that only combine what others show are `long`.

    What fails, fails for a value of an axis: a statement that is not guarded, a fate that is not handled. So
    `make test` runs as many points as the longest axis has values, on a diagonal, with each value of each axis.

    Args:
        axes: Values, such as the writes of a run and what may happen at one. A tuple stands for several parameters.
    """
    longest = max(map(len, axes))
    shown = [tuple(number % len(axis) for axis in axes) for number in range(longest)]
    return [
        pytest.param(
            *(part for axis, at in zip(axes, point, strict=True) for part in _parts(axis[at])),
            marks=() if point in shown else pytest.mark.long,
        )
        for point in product(*(range(len(axis)) for axis in axes))
    ]


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
