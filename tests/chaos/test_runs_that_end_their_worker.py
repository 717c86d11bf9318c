"""A run ends the process that executes it, each time: the runs beside it succeed, and it fails alone."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest

from nova_workers.contracts.http.wire import StatelessRunCreate
from nova_workers.ledger.database import Database
from tests.chaos.conftest import long_run
from tests.requirements import proves
from tests.support.processes.fleet import Fleet, FleetProcess
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

_POISON = json.dumps({"script": [{"sleep_s": 0.2}, {"crash": "exit"}]})
_HEALTHY = json.dumps(
    {"script": [{"sleep_s": 0.5}, {"tool": {"name": "first"}}, {"sleep_s": 0.5}, {"say": "The end."}]}
)


async def _restart_workers(fleet: Fleet) -> None:
    """Start a worker after each that ended, as a supervisor does."""
    while True:
        await fleet.workers[-1].ended(timeout_s=120)
        await fleet.start_worker(ready=False)


@pytest.mark.parametrize("healthy", [1, pytest.param(10, marks=pytest.mark.long)])
@proves("recover.suspect", "recover.max-attempts")
async def test_runs_beside_one_that_ends_its_process_succeed_and_it_fails_alone(
    env: dict[str, str], database: Database, healthy: int
):
    quick = {"NOVA_RUNS__LOST_WORKERS_EVERY_S": "0.2"}
    async with Fleet({**env, **quick}, workers=1, beat=True, concurrency=32) as fleet:
        restarting = asyncio.create_task(_restart_workers(fleet))
        try:
            runs = [await fleet.client.runs.create(StatelessRunCreate(message=_HEALTHY)) for _ in range(healthy)]
            poison = await fleet.client.runs.create(StatelessRunCreate(message=_POISON))
            ended = await asyncio.gather(*(fleet.client.runs.result(run.id, timeout_s=180) for run in runs))
            lost = await fleet.client.runs.result(poison.id, timeout_s=180)
        finally:
            restarting.cancel()
        assert {(run.status, run.text) for run in ended} == {("succeeded", "The end.")}
        assert lost.error is not None
        assert (lost.status, lost.error.kind) == ("failed", "worker_lost")
        assert "5 times, 3 times alone in a process of its own" in lost.error.message
        # Two workers ended: the later processes were the run's own.
        assert [worker.exit_code for worker in fleet.workers] == [137, 137, None]
        shared = await database.fetchval(
            "SELECT max(lost) FROM (SELECT count(*) FILTER (WHERE ended = 'lost') AS lost FROM run_attempts"
            " WHERE run_id <> :poison GROUP BY run_id) healthy",
            poison=poison.id,
        )
        assert shared <= 2


@pytest.mark.long
@proves("drain.suspects")
async def test_the_process_of_a_suspect_requeues_it_when_its_worker_drains_or_is_killed(
    env: dict[str, str], database: Database
):
    async with Fleet(env, workers=0) as fleet:
        await fleet.client.runs.create(StatelessRunCreate(message=long_run(60)))
        for end in (FleetProcess.terminate, FleetProcess.kill):
            await database.execute("UPDATE runs SET losses = 2")
            worker = await fleet.start_worker()
            await until(partial(_is_in_second_step, database, worker.pid), timeout_s=120)
            end(worker)
            await worker.ended()
            await until(lambda: database.fetchval("SELECT status = 'queued' FROM runs"))
        ends = await database.fetch("SELECT ended FROM run_attempts")
        assert {row["ended"] for row in ends} == {"requeued"}


async def _is_in_second_step(database: Database, worker_pid: int) -> bool:
    """Return whether the run is in its second step, in another process than a worker."""
    return await database.fetchval(
        "SELECT count(*) = 1 FROM runs r JOIN turns t ON t.run_id = r.id"
        " WHERE r.status = 'running' AND t.steps = 1 AND r.worker_id NOT LIKE '%:' || :pid::text",
        pid=str(worker_pid),
    )
