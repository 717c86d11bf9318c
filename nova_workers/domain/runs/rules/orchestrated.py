"""The seam between the run protocol and orchestrations.

Above: `orchestrations`, which implements it. Below: the executor, which calls it for runs whose thread belongs to an
orchestration (`Claim.place`). Runs outside orchestrations never reach it.
"""

from __future__ import annotations

from typing import Protocol

from nova_workers.contracts.runs import Claim, Finish
from nova_workers.domain.orchestrations.sql.locking import LockedTree
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import UnitOfWork


class OrchestratedRuns(Protocol):
    """What an orchestration does when a run of one of its agents makes a transition."""

    async def lock(self, connection: Connection, claim: Claim) -> LockedTree:
        """Lock the tree. The first statement of a transaction that suspends or finishes a run."""
        ...

    async def starting(self, tx: UnitOfWork, claim: Claim) -> None:
        """Called when a worker has the run, with a statement that commits by itself."""
        ...

    async def running(self, tx: UnitOfWork, claim: Claim) -> None:
        """Called before the engine is called, with a statement that commits by itself."""
        ...

    async def suspended(self, tx: UnitOfWork, tree: LockedTree, claim: Claim, reasoning_ms: int) -> None:
        """Called when the run was suspended in this unit of work, after `reasoning_ms` of model time."""
        ...

    async def finished(self, tx: UnitOfWork, tree: LockedTree, claim: Claim, finish: Finish) -> None:
        """Called when the run was finished in this unit of work."""
        ...
