"""Workers die, hang or drain in the middle of their runs: every run ends once, on a remaining worker."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Sequence

import pytest

from nova_workers.contracts.http.wire import RunView, StatelessRunCreate
from nova_workers.ledger.database import Connection, Database
from tests.chaos.conftest import long_run
from tests.requirements import proves
from tests.support.processes.fleet import Fleet
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

_RUNS = 6
_NOTE = json.dumps(
    {
        "script": [
            {"tool": {"name": "note_create", "input": {"title": "T", "content": "C"}}},
            {"say": "Noted."},
        ]
    }
)


async def _send(fleet: Fleet, seconds: float, count: int = _RUNS) -> list[RunView]:
    return [await fleet.client.runs.create(StatelessRunCreate(message=long_run(seconds))) for _ in range(count)]


async def _until_steps(database: Database, runs: Sequence[RunView], steps: int) -> None:
    """Wait until each run has committed a number of steps."""
    async with asyncio.timeout(60):
        while True:
            done = await database.fetchval(
                "SELECT count(*) FROM turns WHERE run_id = ANY(:run_ids) AND steps >= :steps",
                run_ids=[run.id for run in runs],
                steps=steps,
            )
            if done == len(runs):
                return
            await asyncio.sleep(0.05)


async def _check_each_ended_once(fleet: Fleet, database: Database, runs: Sequence[RunView]) -> None:
    ended = await asyncio.gather(*(fleet.client.runs.result(run.id, timeout_s=60) for run in runs))
    assert {(run.status, run.text) for run in ended} == {("succeeded", "The end.")}
    rows = await database.fetch(
        "SELECT t.steps, t.tool_call_count,"
        "       (SELECT count(*) FROM usage u WHERE u.run_id = t.run_id) AS usages,"
        "       (SELECT count(*) FROM tool_calls c WHERE c.turn_id = t.id AND c.status = 'completed') AS completed,"
        "       (SELECT count(*) FROM thread_heads h WHERE h.run_id = t.run_id) AS moves"
        "  FROM turns t WHERE t.run_id = ANY(:run_ids)",
        run_ids=[run.id for run in runs],
    )
    assert [tuple(row) for row in rows] == [(3, 2, 1, 2, 1)] * len(runs)


@proves("recover.kill", "recover.session", "journal.once")
async def test_runs_of_a_killed_worker_continue_elsewhere_from_their_last_step_before_their_leases_expire(
    env: dict[str, str], database: Database
):
    own = {"NOVA_RUNS__LEASE_TTL_S": "60", "NOVA_RUNS__LEASE_RENEW_S": "20"}
    async with Fleet({**env, **own}, workers=1) as fleet:
        runs = await _send(fleet, seconds=3)
        await _until_steps(database, runs, 1)
        fleet.workers[0].kill()
        await fleet.start_worker()
        async with asyncio.timeout(60):
            await _check_each_ended_once(fleet, database, runs)
        attempts = await database.fetch("SELECT attempt, losses FROM runs")
        # A step that was committed since sets the losses back.
        assert {tuple(row) for row in attempts} == {(2, 0)}


@proves("drain.sigterm")
async def test_a_drained_worker_requeues_its_runs_and_no_lease_is_lost(env: dict[str, str], database: Database):
    async with Fleet(env, workers=2, beat=True) as fleet:
        runs = await _send(fleet, seconds=12)
        await _until_steps(database, runs, 1)
        fleet.workers[0].terminate()
        assert await fleet.workers[0].ended() == 0
        await _check_each_ended_once(fleet, database, runs)
        assert await database.fetchval("SELECT max(losses) FROM runs") == 0
        handed_over = await database.fetchval("SELECT count(*) FROM runs WHERE attempt = 2")
        assert 0 < handed_over <= len(runs)


@proves("recover.zombie", "recover.expired", "tools.fenced")
async def test_a_worker_that_wakes_up_after_its_lease_writes_nothing(env: dict[str, str], database: Database):
    async with Fleet(env, workers=1, beat=True) as fleet:
        runs = await _send(fleet, seconds=2, count=2)
        await _until_steps(database, runs, 1)
        zombie = fleet.workers[0]
        async with database.transaction() as connection:
            # The tools of both workers wait for this lock when they write.
            await connection.execute("LOCK TABLE notes IN SHARE ROW EXCLUSIVE MODE")
            noting = await fleet.client.runs.create(StatelessRunCreate(message=_NOTE))
            await until(lambda: _writers_waiting(connection, 1))
            zombie.send_signal(signal.SIGSTOP)
            await fleet.start_worker()
            await until(lambda: _writers_waiting(connection, 2))
        try:
            await _check_each_ended_once(fleet, database, runs)
            assert (await fleet.client.runs.result(noting.id, timeout_s=60)).text == "Noted."
        finally:
            zombie.send_signal(signal.SIGCONT)
        zombie.terminate()
        await zombie.ended()
        await _check_each_ended_once(fleet, database, runs)
        assert {row["attempt"] for row in await database.fetch("SELECT attempt FROM runs")} == {2}
        assert await database.fetchval("SELECT count(*) FROM notes") == 1


def _writers_waiting(connection: Connection, count: int) -> Awaitable[bool]:
    return connection.fetchval(
        "SELECT count(*) = :count FROM pg_locks WHERE relation = 'notes'::regclass AND NOT granted", count=count
    )


@proves("beat.killed")
async def test_runs_of_a_frozen_worker_wait_for_a_beat_and_the_new_one_finds_all_of_them(
    env: dict[str, str], database: Database
):
    async with Fleet(env, workers=1, beat=True) as fleet:
        assert fleet.beat is not None
        fleet.beat.kill()
        runs = await _send(fleet, seconds=2, count=2)
        await _until_steps(database, runs, 1)
        # Frozen: it keeps its session with Postgres, so its leases decide, which the reconciler looks at.
        fleet.workers[0].send_signal(signal.SIGSTOP)
        await fleet.start_worker()
        await fleet.start_beat()
        await _check_each_ended_once(fleet, database, runs)
        fleet.workers[0].kill()
