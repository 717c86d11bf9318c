"""Followers end with exactly the ledger's text, by ids that grow, whatever dies or is wiped while they read."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis

from nova_workers.contracts.http.wire import StatelessRunCreate
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.run_reader import RunReader, committed_texts
from tests.support.processes.fleet import Fleet
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

_WORDS = " ".join(f"w{at}" for at in range(45))
_IN_STEP = json.dumps(
    {
        "script": [
            {"say": "First. ", "tool": {"name": "look"}},
            {"say": _WORDS, "tokens_per_s": 20, "tool": {"name": "look"}},
            {"say": f"The end of {_WORDS}", "tokens_per_s": 30},
        ]
    }
)
_IN_TOOL = json.dumps(
    {
        "script": [
            {"say": "First. ", "tool": {"name": "look"}},
            {"say": "Let me work on it. ", "tool": {"name": "work", "sleep_s": 4, "idempotent": True}},
            {"say": "Again. ", "tool": {"name": "work", "sleep_s": 4}},
            {"say": "The end."},
        ]
    }
)


class _Readers:
    """Readers of a fleet's runs, of every kind."""

    def __init__(self, fleet: Fleet, group: asyncio.TaskGroup) -> None:
        self.all: list[RunReader] = []
        self._fleet = fleet
        self._group = group

    def add(self, run_id: str, cut_after: int | None) -> RunReader:
        """Start a reader at the beginning of a run."""
        reader = RunReader(self._fleet.api_url, self._fleet.api_key, run_id, cut_after, seed=len(self.all))
        self.all.append(reader)
        self._group.create_task(reader.read())
        return reader


@asynccontextmanager
async def _reading(fleet: Fleet, database: Database) -> AsyncGenerator[_Readers]:
    """Read runs within the block, then to their ends, and compare with the ledger."""
    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        readers = _Readers(fleet, group)
        yield readers
    for reader in readers.all:
        assert reader.text.texts == await committed_texts(database, reader.run_id), reader


# The mix of faults compares the same streams while workers die and freeze, and `test_lost_servers.py` after a wipe.
@pytest.mark.long
@proves("events.exact")
async def test_followers_of_killed_and_frozen_workers_and_of_a_wiped_valkey_get_the_ledgers_text(
    env: dict[str, str], database: Database, redis: Redis
):
    async with Fleet(env, workers=1, beat=True) as fleet, _reading(fleet, database) as readers:
        runs = [(await fleet.client.runs.create(StatelessRunCreate(message=m))).id for m in (_IN_STEP, _IN_TOOL)]
        in_step, in_tool = (readers.add(run_id, None) for run_id in runs)
        for run_id in runs:
            readers.add(run_id, 12)

        await until(lambda: in_step.seen.count("token") > 10 and in_tool.seen.count("assistant_message") > 1)
        fleet.workers[0].kill()
        await fleet.start_worker()

        await until(lambda: in_step.seen.count("step") > 1 and in_step.last.attempt > 1)
        await redis.flushdb()
        late = [readers.add(run_id, cut) for run_id in runs for cut in (None, 5)]

        await until(lambda: any(reader.seen for reader in late))
        frozen = fleet.workers[1]
        frozen.send_signal(signal.SIGSTOP)
        try:
            await fleet.start_worker()
            await until(lambda: all(reader.is_over for reader in readers.all))
        finally:
            frozen.send_signal(signal.SIGCONT)
    attempts = await database.fetch("SELECT attempt FROM runs")
    assert max(row["attempt"] for row in attempts) >= 3
