"""Addresses that get the changes of one run, with encrypted secrets of the clients that named them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from nova_workers.base.errors import existing
from nova_workers.base.vocabulary import ANSWERABLE, ENDED_RUNS, OnBusy, RunSource, RunStatus, sql_list
from nova_workers.contracts.pushes import PushConfigView
from nova_workers.ledger.database import Connection

_VIEW = "run_id, name, url, created_at"
_STORED = "tenant_id, run_id, name, url, secret, key_id, clock_timestamp() AS at"

# Takes the lock of the run, for which each change of its status waits: a later one reads the mark.
_MARK = f"""
UPDATE runs r
   SET has_push_configs = true
 WHERE r.tenant_id = :tenant_id AND r.id = :run_id
RETURNING r.agent_id, r.thread_id, r.status, r.on_busy, r.attempt, r.source, r.merged_into,
          r.status IN {sql_list(ENDED_RUNS)}
          OR (r.status = 'waiting' AND EXISTS (SELECT FROM run_waits w
                                                WHERE w.run_id = r.id AND w.status = 'open'
                                                  AND w.kind IN {sql_list(ANSWERABLE)})) AS is_due
"""

_COUNT_OTHERS = "SELECT count(*) FROM push_configs WHERE run_id = :run_id AND name <> :name"

_PUT = f"""
INSERT INTO push_configs AS p (run_id, name, tenant_id, url, secret, key_id)
VALUES (:run_id, :name, :tenant_id, :url, :secret, :key_id)
ON CONFLICT (run_id, name) DO UPDATE SET url = EXCLUDED.url, secret = EXCLUDED.secret, key_id = EXCLUDED.key_id
RETURNING {_VIEW}
"""

_LIST = f"SELECT {_VIEW} FROM push_configs WHERE tenant_id = :tenant_id AND run_id = :run_id ORDER BY name"

_STORED_OF = f"SELECT {_STORED} FROM push_configs WHERE tenant_id = :tenant_id AND run_id = :run_id AND name = :name"

# Deletes an address, and closes what is still to be sent to it, in one statement.
_DELETE = """
WITH gone AS (
    DELETE FROM push_configs WHERE tenant_id = :tenant_id AND run_id = :run_id AND name = :name RETURNING run_id, name
)
UPDATE deliveries d SET status = 'closed'
  FROM gone
 WHERE d.run_id = gone.run_id AND d.kind = 'task_changed' AND d.payload ->> 'config' = gone.name
   AND d.status = 'pending'
"""

_OF_RUNS = "SELECT tenant_id, run_id, name, url FROM push_configs WHERE run_id = ANY (:run_ids) ORDER BY run_id, name"

# Concurrent rotations of the master key skip each other's locked rows.
_LOCK_NOT_UNDER = f"""
SELECT {_STORED} FROM push_configs
 WHERE key_id <> :key_id AND (run_id, name) > (:after_run_id, :after_name)
 ORDER BY run_id, name
 LIMIT :limit
   FOR UPDATE SKIP LOCKED
"""

_RESEAL = """
UPDATE push_configs SET secret = :secret, key_id = :key_id
 WHERE tenant_id = :tenant_id AND run_id = :run_id AND name = :name
"""

_COUNT_NOT_UNDER = "SELECT count(*) FROM push_configs WHERE key_id <> :key_id"


@dataclass(frozen=True, slots=True)
class MarkedRun:
    """A run that is marked as one whose changes are sent, locked until the transaction ends.

    Attributes:
        is_due: Whether it has ended, or asks a person: then its clients are to be notified.
    """

    agent_id: str
    thread_id: str
    status: RunStatus
    on_busy: OnBusy
    attempt: int
    source: RunSource
    merged_into: str | None
    is_due: bool


class PushAddress(NamedTuple):
    """The address of a run's changes, as routing needs it."""

    tenant_id: str
    run_id: str
    name: str
    url: str


@dataclass(frozen=True, slots=True)
class StoredPush:
    """An address as it is stored.

    Attributes:
        secret: Encrypted; None if the client gave none.
        at: Database time of the read.
    """

    tenant_id: str
    run_id: str
    name: str
    url: str
    secret: bytes | None
    key_id: str | None
    at: datetime


async def mark_run(connection: Connection, tenant_id: str, run_id: str) -> MarkedRun:
    """Mark a run as one whose changes are sent, and lock it. Call it in the transaction that adds an address.

    Raises:
        NotFound: There is no such run.
    """
    row = await connection.fetchrow(_MARK, tenant_id=tenant_id, run_id=run_id)
    return MarkedRun(**existing(row, "run", run_id))


async def count_others(connection: Connection, run_id: str, name: str) -> int:
    """Return how many addresses of other names a run has."""
    return await connection.fetchval(_COUNT_OTHERS, run_id=run_id, name=name)


async def put_push_config(
    connection: Connection,
    tenant_id: str,
    run_id: str,
    name: str,
    *,
    url: str,
    secret: bytes | None,
    key_id: str | None,
) -> PushConfigView:
    """Store an address of a run, in place of the one of that name."""
    row = await connection.fetchrow(
        _PUT, run_id=run_id, name=name, tenant_id=tenant_id, url=url, secret=secret, key_id=key_id
    )
    return PushConfigView(**existing(row, "push_config", name))


async def list_push_configs(connection: Connection, tenant_id: str, run_id: str) -> list[PushConfigView]:
    """Return the addresses of a run, by name: they are few."""
    return [PushConfigView(**row) for row in await connection.fetch(_LIST, tenant_id=tenant_id, run_id=run_id)]


async def delete_push_config(connection: Connection, tenant_id: str, run_id: str, name: str) -> None:
    """Delete an address of a run, and close what is still to be sent to it. Idempotent."""
    await connection.execute(_DELETE, tenant_id=tenant_id, run_id=run_id, name=name)


async def find_stored_push(connection: Connection, tenant_id: str, run_id: str, name: str) -> StoredPush | None:
    """Return an address with its secret. None if it was deleted."""
    row = await connection.fetchrow(_STORED_OF, tenant_id=tenant_id, run_id=run_id, name=name)
    return None if row is None else StoredPush(**row)


async def addresses_of_runs(connection: Connection, run_ids: Sequence[str]) -> list[PushAddress]:
    """Return the addresses that get the changes of these runs."""
    return [PushAddress(**row) for row in await connection.fetch(_OF_RUNS, run_ids=list(run_ids))]


async def lock_pushes_under_other_keys(
    connection: Connection, key_id: str, *, after: tuple[str, str], limit: int
) -> list[StoredPush]:
    """Return addresses of all tenants whose secrets are under other master keys, locked until the transaction ends."""
    rows = await connection.fetch(
        _LOCK_NOT_UNDER, key_id=key_id, after_run_id=after[0], after_name=after[1], limit=limit
    )
    return [StoredPush(**row) for row in rows]


async def reseal_push(connection: Connection, stored: StoredPush, *, secret: bytes, key_id: str) -> None:
    """Store the secret of an address, encrypted with another master key."""
    await connection.execute(
        _RESEAL,
        tenant_id=stored.tenant_id,
        run_id=stored.run_id,
        name=stored.name,
        secret=secret,
        key_id=key_id,
    )


async def count_pushes_under_other_keys(connection: Connection, key_id: str) -> int:
    """Return how many addresses of all tenants have secrets under other master keys."""
    return await connection.fetchval(_COUNT_NOT_UNDER, key_id=key_id)
