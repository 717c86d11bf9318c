"""Which code of users the live workers have, and the runs that wait for some.

A worker with such code has a row, which it renews every few seconds and deletes when it drains. One that died is
recognized by its lost lock (`workers`), or by the age of its row. Rows only say where doorbells go: what a worker may
claim, it states in its claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nova_workers.contracts.installs import Installation, InstalledCode
from nova_workers.contracts.runs import Doorbell, WorkerPool
from nova_workers.domain.runs.sql.claim import NEEDS, TENANT_POOL
from nova_workers.ledger.database import Connection
from nova_workers.ledger.stored import read_stored

LIVE_INSTALL = "i.seen_at > now() - interval '20 seconds'"
"""Whether the worker of a row ``i`` of `worker_installs` is alive: four times the interval at which it is renewed."""

LACKING = f"""
CASE WHEN NOT EXISTS (SELECT FROM worker_installs i WHERE {LIVE_INSTALL} AND {NEEDS} <@ i.provides) THEN {NEEDS} END
"""
"""The code of users that the run ``r`` of the agent ``a`` needs and no live worker has; null is none."""

_ANNOUNCE = """
INSERT INTO worker_installs (worker_id, pool, key, provides, versions, codes)
VALUES (:worker_id, :pool, :key, :provides, :versions, :codes)
ON CONFLICT (worker_id) DO UPDATE SET seen_at = now()
"""

_WITHDRAW = "DELETE FROM worker_installs WHERE worker_id = :worker_id"

# What no live worker has any more: its doorbells wait for none.
_FORGET_OLD = f"""
WITH old AS (
    DELETE FROM worker_installs WHERE seen_at < now() - interval '1 minute' RETURNING pool, key
)
SELECT DISTINCT o.pool, o.key
  FROM old o
 WHERE NOT EXISTS (SELECT FROM worker_installs i WHERE i.pool = o.pool AND i.key = o.key AND {LIVE_INSTALL})
"""

_LIST = f"SELECT i.codes FROM worker_installs i WHERE {LIVE_INSTALL} ORDER BY i.worker_id"

# What a queued run lacks here, and a live worker of this pool that has it: one with the version of the code that began
# it, if there is one. Nothing if it lacks nothing.
_LACKING = f"""
SELECT r.id AS run_id, there.key, NOT n.needs <@ CAST(:provides AS text[]) AS lacks_code,
       COALESCE(r.code_version = ANY(there.versions), true) AS same_version
  FROM runs r
  JOIN agents a ON a.tenant_id = r.tenant_id AND a.id = r.agent_id
 CROSS JOIN LATERAL (SELECT {NEEDS} AS needs) n
  LEFT JOIN LATERAL (
        SELECT i.key, i.versions
          FROM worker_installs i
         WHERE {LIVE_INSTALL} AND i.pool = :pool AND n.needs <@ i.provides
         ORDER BY COALESCE(r.code_version = ANY(i.versions), false) DESC, i.seen_at DESC
         LIMIT 1) there ON true
 WHERE r.id = :run_id AND r.status = 'queued'
   AND (NOT n.needs <@ CAST(:provides AS text[]) OR NOT r.code_version = ANY(CAST(:versions AS text[])))
"""

# Without a doorbell of the reconciler until a worker comes (`_RELEASE`).
_PARK = "UPDATE runs SET rang_at = 'infinity' WHERE id = :run_id AND status = 'queued' AND hold IS NULL"

# Parked runs for which there is a worker now.
_RELEASE = f"""
WITH able AS MATERIALIZED (
    SELECT DISTINCT i.pool, i.provides FROM worker_installs i WHERE {LIVE_INSTALL}
), parked AS (
    SELECT r.id
      FROM runs r
      JOIN tenants w ON w.id = r.tenant_id
      JOIN agents a ON a.tenant_id = r.tenant_id AND a.id = r.agent_id
     CROSS JOIN LATERAL (SELECT {NEEDS} AS needs) n
     WHERE r.status = 'queued' AND r.rang_at = 'infinity' AND r.hold IS NULL
       AND (n.needs IS NULL OR EXISTS (SELECT FROM able i WHERE i.pool = {TENANT_POOL} AND n.needs <@ i.provides))
     LIMIT :limit
       FOR UPDATE OF r SKIP LOCKED
)
UPDATE runs r SET rang_at = now() FROM parked WHERE r.id = parked.id
RETURNING r.id AS run_id, r.thread_id, r.queue
"""


@dataclass(frozen=True, slots=True)
class Lacking:
    """The next run needs code of users that this worker does not have, or another version of it.

    Attributes:
        key: Of a live worker's installation that has it; None if there is none.
        lacks_code: Whether this worker lacks the code itself, in any version.
        same_version: Whether that worker has the version that began the run.
    """

    run_id: str
    key: str | None
    lacks_code: bool
    same_version: bool

    @property
    def goes_on_here(self) -> bool:
        """Whether this worker may claim the run: only its version differs, and no live worker has the right one."""
        return not self.lacks_code and (self.key is None or not self.same_version)


async def announce(connection: Connection, worker_id: str, pool: WorkerPool, installation: Installation) -> None:
    """State what a worker has, or that it is still alive."""
    await connection.execute(
        _ANNOUNCE,
        worker_id=worker_id,
        pool=pool.name,
        key=installation.key,
        provides=list(installation.provides),
        versions=list(installation.versions.values()),
        codes=[each.model_dump(mode="json") for each in installation.codes],
    )


async def withdraw(connection: Connection, worker_id: str) -> None:
    """Delete a worker's row: it takes no more runs."""
    await connection.execute(_WITHDRAW, worker_id=worker_id)


async def forget_old(connection: Connection) -> list[tuple[str, str]]:
    """Delete rows of workers that ended long ago; return pool and key of what no live worker has any more."""
    return [(row["pool"], row["key"]) for row in await connection.fetch(_FORGET_OLD)]


async def installed_codes(connection: Connection) -> list[list[InstalledCode]]:
    """Return the code of users of each live worker that has some."""
    rows = await connection.fetch(_LIST)
    return [[read_stored(InstalledCode.model_validate, each) for each in row["codes"]] for row in rows]


async def have_evaluators(connection: Connection, functions: Sequence[str]) -> bool:
    """Return whether one live worker has all of these evaluators in Python, such as ``shop:polite``."""
    wanted = set(functions)
    return any(
        wanted <= {f"{code.project}:{name}" for code in codes if code.problem is None for name in code.evaluators}
        for codes in await installed_codes(connection)
    )


async def find_lacking(
    connection: Connection, run_id: str, pool: WorkerPool, installation: Installation
) -> Lacking | None:
    """Return the reason why a worker cannot claim a queued run; None if it has the code that the run needs."""
    row = await connection.fetchrow(
        _LACKING,
        run_id=run_id,
        pool=pool.name,
        provides=list(installation.provides),
        versions=list(installation.versions.values()),
    )
    return None if row is None else Lacking(**row)


async def park(connection: Connection, run_id: str) -> None:
    """Let a queued run wait without doorbells until a worker has what it needs."""
    await connection.execute(_PARK, run_id=run_id)


async def release_parked(connection: Connection, pool: WorkerPool, *, limit: int) -> Sequence[Doorbell]:
    """Return the doorbells of parked runs for which there is a worker now.

    Args:
        pool: Any: how pools of tenants are found is the same on all workers.
        limit: Most runs.
    """
    rows = await connection.fetch(_RELEASE, trust_pools=dict(pool.by_trust), limit=limit)
    return [Doorbell(**row) for row in rows]
