"""Postgres or Valkey are killed during work: every accepted run is executed once."""

from __future__ import annotations

import asyncio

import pytest
from redis.asyncio import Redis

from nova_workers.base.errors import Unavailable
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate
from nova_workers.ledger.database import PostgresDatabase
from tests.chaos.conftest import OwnServers, long_run
from tests.requirements import proves
from tests.support.harness.run_reader import RunReader
from tests.support.processes.fleet import Fleet

pytestmark = pytest.mark.fleet


async def _send(fleet: Fleet, seconds: float, count: int) -> list[RunView]:
    return [await fleet.client.runs.create(StatelessRunCreate(message=long_run(seconds))) for _ in range(count)]


async def _check_all_ended_once(database_url: str, count: int) -> None:
    """Wait for the end of all runs in the ledger, without live events."""
    database = PostgresDatabase(database_url, pool_size=1)
    try:
        # Celery reconnects to an unavailable broker at growing intervals.
        async with asyncio.timeout(150):
            while True:
                if await database.fetchval("SELECT count(*) FROM runs WHERE status = 'succeeded'") == count:
                    break
                await asyncio.sleep(0.1)
        assert await database.fetchval("SELECT count(*) FROM runs") == count
        steps = await database.fetch("SELECT steps, tool_call_count FROM turns")
        assert {tuple(row) for row in steps} == {(3, 2)}
        assert await database.fetchval("SELECT count(*) FROM usage") == count
    finally:
        await database.close()


@proves("redis.wipe", "redis.restart", "submit.broker-down", "recover.postgres", "events.exact")
async def test_no_run_is_lost_while_valkey_is_wiped_and_killed_and_then_postgres_is_killed(own_servers: OwnServers):
    async with Fleet(own_servers.env, workers=1, beat=True, concurrency=4) as fleet:
        await _send(fleet, 1, 8)
        redis = Redis.from_url(own_servers.env["NOVA_REDIS_URL"])
        await redis.flushall()
        await redis.aclose()
        await _check_all_ended_once(own_servers.database_url, 8)

        await _send(fleet, 3, 3)
        await own_servers.valkey.kill()
        accepted = await _send(fleet, 0, 2)
        assert [run.status for run in accepted] == ["queued", "queued"]
        await own_servers.valkey.start()
        await _check_all_ended_once(own_servers.database_url, 13)

        readers = await _read_while_postgres_is_killed(fleet, own_servers)
    assert {reader.text.texts for reader in readers} == {("One. ", "Two. ", "The end.")}


async def _read_while_postgres_is_killed(fleet: Fleet, own_servers: OwnServers) -> list[RunReader]:
    async with asyncio.TaskGroup() as group:
        first, *_ = await _send(fleet, 3, 3)
        readers = [RunReader(fleet.api_url, fleet.api_key, first.id, cut) for cut in (None, 4)]
        for reader in readers:
            group.create_task(reader.read())
        await own_servers.postgres.kill()
        with pytest.raises(Unavailable):
            await _send(fleet, 0, 1)
        await own_servers.postgres.start()
        await _check_all_ended_once(own_servers.database_url, 16)
    return readers
