"""Claims runs: in one statement, or, under a cap, in a transaction that locks the cap first."""

from __future__ import annotations

from nova_workers.config import RunSettings
from nova_workers.contracts.runs import Claim
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.runs.claim import Capped, claim_next, lock_caps

__all__ = ["claim_run"]


async def claim_run(database: Database, thread_id: str, *, worker_id: str, runs: RunSettings) -> Claim | None:
    """Claim the next run of a thread.

    Returns:
        The claim; None if no run is queued, another run is active, or a pause or a full cap prevents it.

    Raises:
        Unavailable: The database does not answer.
    """

    async def claim_on(connection: Connection, *, caps_locked: bool) -> Claim | Capped | None:
        return await claim_next(
            connection,
            thread_id,
            worker_id=worker_id,
            lease_ttl_s=runs.lease_ttl_s,
            max_attempts=runs.max_attempts,
            caps_locked=caps_locked,
        )

    async with database.connection() as connection:
        claim = await claim_on(connection, caps_locked=False)
    if isinstance(claim, Capped):
        async with database.transaction() as connection:
            await lock_caps(connection, claim.tenant_id)
            claim = await claim_on(connection, caps_locked=True)
    return claim if isinstance(claim, Claim) else None
