"""The scenario that kills processes at chosen writes reports a write that none of them made."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from tests.chaos.history import Recorder
from tests.chaos.runner.fleet import ChaosFleet, Leases
from tests.chaos.runner.scenarios.registry import Stage
from tests.chaos.runner.scenarios.writes import Write, kill_at_each

_MADE = Write("made", "INSERT", "tenants")
_NOT_MADE = Write("not made", "DELETE", "tenants")
_INSERT = "INSERT INTO tenants (id, name) VALUES (gen_random_uuid()::text, 'test')"


@pytest.fixture
async def stage(shared_database_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    """A fleet without processes, on a database to which a session writes all the time."""
    with Recorder(tmp_path / "history.jsonl") as recorder:
        fleet = ChaosFleet(tmp_path, recorder, Leases())
        fleet.servers.database_url = shared_database_url
        writing = asyncio.create_task(_write(shared_database_url))
        yield Stage(fleet, random.Random(1))
        writing.cancel()


async def test_a_write_that_no_process_made_fails_the_scenario_after_all_others(stage: Stage) -> None:
    with pytest.raises(AssertionError) as error:
        await kill_at_each(stage, [_NOT_MADE, _MADE], wait_s=0.5, pause_s=0)
    assert "not made before the commit, not made after the commit" in str(error.value)
    assert stage.said.count("nothing wrote") == 4
    assert [word for word in stage.said if word.startswith("made")] == [
        "made, before the commit",
        "made, after the commit",
    ]


async def _write(database_url: str) -> None:
    """Insert rows, as a process does whose sessions are ended now and then."""
    while True:
        with suppress(asyncpg.PostgresError, OSError):
            connection = await asyncpg.connect(database_url)
            try:
                while True:
                    await connection.execute(_INSERT)
                    await asyncio.sleep(0.01)
            finally:
                await connection.close()
