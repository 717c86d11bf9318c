"""A worker whose session with Postgres ended is lost; one that only stalls, or connects again, is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from nova_workers.base.clock import SystemClock
from nova_workers.base.errors import Unavailable
from nova_workers.bootstrap.connections import connect_session
from nova_workers.domain.runs.rules.lost_workers import LostWorkers
from nova_workers.domain.threads.rules.lease import LeaseKeeper
from nova_workers.domain.threads.rules.lock import ThreadLocks
from nova_workers.ledger import database as database_module
from nova_workers.ledger.database import PostgresDatabase
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import until

_HOLDER = "wkr_0"
"""The harness's first worker."""
_SESSIONS = "SELECT array_agg(worker_id ORDER BY worker_id) FROM worker_sessions"
_TERMINATE = """
SELECT count(pg_terminate_backend(l.pid, 2000))
  FROM pg_locks l
 WHERE l.locktype = 'advisory' AND l.objid = hashtext(:worker_id)::oid AND l.objsubid = 2
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
"""

_LOCKS = """
SELECT count(*) FROM pg_locks l
 WHERE l.locktype = 'advisory' AND l.objid = hashtext(:worker_id)::oid AND l.objsubid = 2
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
"""


class _Peers:
    """Workers that look for lost ones, each with a session of its own."""

    def __init__(self, harness: Harness, database_url: str) -> None:
        self._harness = harness
        self._url = database_url
        self.databases: list[PostgresDatabase] = []
        self._sessions: dict[str, PostgresDatabase] = {}

    def join(self, worker_id: str, *, url: str | None = None, keeper: LeaseKeeper | None = None) -> LostWorkers:
        """Return one with a session of its own, perhaps by another URL, which renews leases over the harness's pool."""
        session = connect_session(url or self._url)
        self.databases.append(session)
        self._sessions[worker_id] = session
        harness = self._harness
        keeper = keeper or LeaseKeeper(
            harness.database,
            ThreadLocks(harness.redis, ttl_s=30),
            harness.settings.runs,
            SystemClock(),
            harness.metrics,
        )
        return LostWorkers(session, harness.database, keeper, harness.reconciler, worker_id=worker_id, every_s=1)

    async def cut(self, worker_id: str) -> None:
        """End a worker's session at the server, and wait until its client knows."""
        # The end of the connection is read after the server's message; in between a statement fails.
        pools = self._sessions[worker_id]._pools.values()  # pyright: ignore[reportPrivateUsage]
        sessions = [session for pool in pools for session in pool._idle]  # pyright: ignore[reportPrivateUsage]
        assert await self._harness.database.fetchval(_TERMINATE, worker_id=worker_id) == len(sessions) == 1
        await until(sessions[0].is_closed)


@pytest.fixture
async def peers(harness: Harness, database_url: str) -> AsyncGenerator[_Peers]:
    peers = _Peers(harness, database_url)
    yield peers
    for database in peers.databases:
        await database.close()


async def _hold_a_run(harness: Harness) -> str:
    run, _ = await harness.begin(harness.worker(), plan(doors={0: "thinking"}), "thinking")
    return run.run_id


@proves("recover.session")
async def test_runs_of_a_worker_that_died_are_requeued_after_three_looks(harness: Harness, peers: _Peers):
    run_id = await _hold_a_run(harness)
    dead, other = peers.join(_HOLDER), peers.join("wkr_other")
    await dead.look()
    await other.look()
    assert await other.look() == 0
    await peers.databases[0].close()
    assert [await other.look() for _ in range(3)] == [0, 0, 1]
    assert await harness.status(run_id) == "queued"
    assert await harness.database.fetchval("SELECT losses FROM runs WHERE id = :id", id=run_id) == 1
    # Nothing keeps a new worker from the thread, and no worker looks for the dead one any more.
    assert await harness.redis.keys("*lock*") == []
    assert await harness.database.fetchval(_SESSIONS) == ["wkr_other"]


@proves("recover.session")
async def test_a_worker_that_connects_again_before_the_third_look_keeps_its_runs(harness: Harness, peers: _Peers):
    run_id = await _hold_a_run(harness)
    cut, other = peers.join(_HOLDER), peers.join("wkr_other")
    await cut.look()
    await other.look()
    for _ in range(2):
        await peers.cut(_HOLDER)
        assert [await other.look() for _ in range(2)] == [0, 0]
        await cut.look()
        assert [await other.look() for _ in range(3)] == [0, 0, 0]
    assert await harness.status(run_id) == "running"


@proves("recover.session")
async def test_a_worker_whose_session_cannot_connect_again_keeps_its_runs(
    harness: Harness, peers: _Peers, database_url: str, tmp_path: Path
):
    run_id = await _hold_a_run(harness)
    async with FaultProxy.to_postgres(database_url, tmp_path) as wire:
        cut, other = peers.join(_HOLDER, url=wire.url), peers.join("wkr_other")
        await cut.look()
        await other.look()
        wire.refuses = True
        wire.reset()
        for _ in range(4):
            with pytest.raises(Unavailable):
                await cut.look()
            assert await other.look() == 0
        assert await harness.status(run_id) == "running"
        wire.heal()
        await cut.look()
        assert await harness.database.fetchval(_SESSIONS) == [_HOLDER, "wkr_other"]


@proves("recover.session")
async def test_a_worker_that_withdrew_meanwhile_is_not_recovered(harness: Harness, peers: _Peers):
    run_id = await _hold_a_run(harness)
    await harness.database.execute("INSERT INTO worker_sessions (worker_id) VALUES (:id)", id="wkr_other")
    assert await harness.reconciler.recover_from([_HOLDER]) == 0
    assert await harness.status(run_id) == "running"


@proves("recover.session")
async def test_a_worker_that_reconnects_too_late_stops_its_requeued_runs_at_once(harness: Harness, peers: _Peers):
    worker = harness.worker(keeper=True)
    run, _ = await harness.begin(worker, plan(doors={0: "thinking"}), "thinking")
    cut, other = peers.join(_HOLDER, keeper=worker.keeper), peers.join("wkr_other")
    await cut.look()
    await other.look()
    await peers.cut(_HOLDER)
    assert [await other.look() for _ in range(3)] == [0, 0, 1]
    assert await harness.status(run.run_id) == "queued"
    await cut.look()
    # The slot is free again, and claims the run anew.
    async with asyncio.timeout(harness.settings.runs.lease_renew_s / 2):
        await harness.until(run.run_id, "running")


@proves("recover.session")
async def test_a_worker_keeps_its_session_however_many_looks_it_has_made(
    harness: Harness, peers: _Peers, monkeypatch: pytest.MonkeyPatch
):
    # A pool ends a session after so many statements: a look a second makes them in 14 hours.
    monkeypatch.setattr(database_module, "_MOST_STATEMENTS", 3)
    one = peers.join("wkr_one")
    for _ in range(4):
        await one.look()
        assert await harness.database.fetchval(_LOCKS, worker_id="wkr_one") == 1


@proves("recover.session")
async def test_looks_are_counted_anew_after_the_own_session_broke(harness: Harness, peers: _Peers):
    run_id = await _hold_a_run(harness)
    cut, other = peers.join(_HOLDER), peers.join("wkr_other")
    await cut.look()
    await other.look()
    for worker_id in (_HOLDER, "wkr_other"):
        await peers.cut(worker_id)
    assert [await other.look() for _ in range(3)] == [0, 0, 0]
    await cut.look()
    assert await other.look() == 0
    assert await harness.status(run_id) == "running"


@proves("recover.session")
async def test_a_worker_that_ends_by_itself_leaves_nothing_to_look_for(harness: Harness, peers: _Peers):
    ending = peers.join("wkr_ending")
    await ending.look()
    await ending.close()
    assert await harness.database.fetchval(_SESSIONS) is None


@proves("recover.session")
async def test_a_worker_whose_row_is_missing_adds_it_again(harness: Harness, peers: _Peers):
    one = peers.join("wkr_one")
    await one.look()
    await harness.database.execute("DELETE FROM worker_sessions")
    await one.look()
    assert await harness.database.fetchval(_SESSIONS) == ["wkr_one"]


async def test_a_direct_session_is_not_shared(peers: _Peers):
    peers.join("wkr_1")
    assert await peers.databases[0].is_shared() is False
