"""Protocols that let lower rooms reach upwards without importing: the runner's hands for tools.

Above the seam: `runs`, `worker` and `api` implement these. Below it: capabilities, effects and engines
use them.
"""

from collections.abc import Sequence
from typing import Protocol

from nova_workers.contracts.runs import Doorbell

__all__ = ["Dispatcher"]


class Dispatcher(Protocol):
    """Rings doorbells. Best effort: what is lost, the reconciler rings again."""

    def ring_runs(self, bells: Sequence[Doorbell]) -> None:
        """Ring for runs that stand in line. Returns at once; never raises."""
        ...

    def ring_effects(self) -> None:
        """Ring for effects that are due. Returns at once; never raises. Rings close together are one."""
        ...
