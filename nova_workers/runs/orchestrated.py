"""The seam between the run protocol and orchestrations.

Above: `orchestration`, which implements it. Below: the executor, which calls it for runs whose thread belongs to an
orchestration (`Claim.place`). Runs outside orchestrations never reach it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.runs import CancelRequest, Claim, Doorbell, Finish
from nova_workers.ledger.database import Connection
from nova_workers.ledger.orchestrations.locking import LockedTree

__all__ = ["AfterTransition", "OrchestratedRuns"]


@dataclass(frozen=True, slots=True)
class AfterTransition:
    """What follows the commit of a transition: doorbells, cancel requests to apply at once, events to publish."""

    bells: tuple[Doorbell, ...] = ()
    cancels: tuple[CancelRequest, ...] = ()
    news: TreeNews | None = None


class OrchestratedRuns(Protocol):
    """What an orchestration does when a run of one of its agents makes a transition."""

    async def lock(self, connection: Connection, claim: Claim) -> LockedTree:
        """Lock the tree. The first statement of a transaction that suspends or finishes a run."""
        ...

    async def starting(self, connection: Connection, claim: Claim) -> None:
        """A worker has the run. Outside a transaction."""
        ...

    async def running(self, connection: Connection, claim: Claim) -> None:
        """The engine is about to be called. Outside a transaction."""
        ...

    async def suspended(
        self, connection: Connection, tree: LockedTree, claim: Claim, reasoning_ms: int
    ) -> AfterTransition:
        """The run was suspended in this transaction, after `reasoning_ms` of model time."""
        ...

    async def finished(self, connection: Connection, tree: LockedTree, claim: Claim, finish: Finish) -> AfterTransition:
        """The run was finished in this transaction."""
        ...

    async def apply(self, after: AfterTransition) -> None:
        """Do what follows the commit. Never raises."""
        ...
