"""A worker whose session with Postgres ended is lost; one that only stalls, or connects again, is not."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from nova_workers.ledger.database import Database
from nova_workers.runs.lost_workers import LostWorkers
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness

_HOLDER = "wkr_0"
"""The harness's first worker."""
_SESSIONS = "SELECT array_agg(worker_id ORDER BY worker_id) FROM worker_sessions"
_TERMINATE = """
SELECT count(pg_terminate_backend(l.pid, 2000))
  FROM pg_locks l
 WHERE l.locktype = 'advisory' AND l.objid = hashtext(:worker_id)::oid AND l.objsubid = 2
"""


class _Peers:
    """Workers that look for lost ones, each with a session of its own."""

    def __init__(self, harness: Harness, database_url: str) -> None:
        self._harness = harness
        self._url = database_url
        self.databases: list[Database] = []

    def join(self, worker_id: str) -> LostWorkers:
        database = Database(self._url, pool_size=1, access="fleet")
        self.databases.append(database)
        return LostWorkers(database, self._harness.reconciler, worker_id=worker_id, every_s=1)


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
        assert await harness.database.fetchval(_TERMINATE, worker_id=_HOLDER) == 1
        assert [await other.look() for _ in range(2)] == [0, 0]
        await cut.look()
        assert [await other.look() for _ in range(3)] == [0, 0, 0]
    assert await harness.status(run_id) == "running"


@proves("recover.session")
async def test_looks_are_counted_anew_after_the_own_session_broke(harness: Harness, peers: _Peers):
    run_id = await _hold_a_run(harness)
    cut, other = peers.join(_HOLDER), peers.join("wkr_other")
    await cut.look()
    await other.look()
    for worker_id in (_HOLDER, "wkr_other"):
        await harness.database.fetchval(_TERMINATE, worker_id=worker_id)
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


async def test_a_direct_session_is_not_shared(peers: _Peers):
    peers.join("wkr_1")
    assert await peers.databases[0].is_shared() is False
