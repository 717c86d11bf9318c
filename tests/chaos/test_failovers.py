"""Connections break without a word, and servers answer without serving: nothing ends, and little is late."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from pathlib import Path

import asyncpg
import pytest
from redis.asyncio import Redis

from nova_workers.base.errors import Unavailable
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate
from tests.chaos.conftest import OwnServers, long_run
from tests.requirements import proves
from tests.support.processes.fleet import Fleet
from tests.support.servers.databases import replica_of_nothing
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import stays, until

pytestmark = pytest.mark.fleet

_LEASES_OF_PRODUCTION = {
    "NOVA_RUNS__LEASE_TTL_S": "30",
    "NOVA_RUNS__LEASE_RENEW_S": "10",
    "NOVA_RUNS__RERING_AFTER_S": "10",
    "NOVA_RUNS__RECONCILE_EVERY_S": "5",
}
"""A lost doorbell would cost 15 s, a lock that stays 30 s."""


def _play(*script: object) -> StatelessRunCreate:
    return StatelessRunCreate(message=json.dumps({"script": list(script)}))


async def _status(fleet: Fleet, run: RunView) -> str:
    return (await fleet.client.runs.get(run.id)).status


async def _is(fleet: Fleet, run: RunView, status: str) -> bool:
    return await _status(fleet, run) == status


async def _first_token_s(fleet: Fleet) -> float:
    """Stream a run, and return how late its first token came live: it works on after it."""
    began_s = time.monotonic()
    async with aclosing(fleet.client.runs.stream(_play({"say": "one two three"}, {"sleep_s": 60}))) as events:
        async for _, event in events:
            if event.type == "token":
                return time.monotonic() - began_s
    raise AssertionError("no token came")


async def _is_refused(fleet: Fleet) -> bool:
    try:
        await fleet.client.runs.create(_play({"say": "x"}))
    except Unavailable:
        return True
    return False


async def _check_breaks(fleet: Fleet, link: FaultProxy) -> None:
    """Break all connections to Redis while a run is active and its thread's next one waits."""
    for break_all, within_s in ((link.reset, 30.0), (link.forget, 60.0)):
        running = await fleet.client.runs.create(_play({"sleep_s": 60}))
        await until(lambda run=running: _is(fleet, run, "running"))
        following = await fleet.client.runs.create(StatelessRunCreate(thread_id=running.thread_id, message="next"))
        break_all()
        async with asyncio.timeout(60):
            await fleet.client.runs.cancel(running.id)
        await until(lambda run=running: _is(fleet, run, "canceled"), timeout_s=within_s)
        await until(lambda run=following: _is(fleet, run, "succeeded"), timeout_s=within_s)
    # The run works on after its first token, which so came live.
    assert await _first_token_s(fleet) < 30


async def _check_wait(fleet: Fleet, link: FaultProxy, heartbeats: Path) -> None:
    """Stop Redis for as long as a worker needs to show that it waits."""
    link.refuses = True
    link.reset()
    began_s = time.time()
    accepted = await fleet.client.runs.create(_play({"say": "x"}))
    # Celery's loop waits for the broker, and must not look dead to the platform.
    await until(lambda: (heartbeats / "hub").stat().st_mtime > began_s + 3)
    link.heal()
    await until(lambda: _is(fleet, accepted, "succeeded"))


async def _check_replica(fleet: Fleet, redis: Redis) -> None:
    """Make Redis a replica of nothing, so that it takes no writes for 3 s."""
    running = await fleet.client.runs.create(StatelessRunCreate(message=long_run(2)))
    await until(lambda: _is(fleet, running, "running"))
    async with replica_of_nothing(redis):
        accepted = [await fleet.client.runs.create(_play({"say": "x"})) for _ in range(3)]
        await stays(lambda: not any(process.has_ended for process in fleet.processes), for_s=3)
    for run in (*accepted, running):
        await until(lambda run=run: _is(fleet, run, "succeeded"))
    assert (await fleet.client.runs.get(running.id)).attempt == 1


async def _check_read_only(fleet: Fleet, database_url: str) -> None:
    """Make Postgres refuse writes for 3 s."""
    running = await fleet.client.runs.create(StatelessRunCreate(message=long_run(1)))
    await until(lambda: _is(fleet, running, "running"))
    admin = await asyncpg.connect(database_url)
    await admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    await admin.execute("SELECT pg_reload_conf()")
    await until(lambda: _is_refused(fleet))
    await stays(lambda: not any(process.has_ended for process in fleet.processes), for_s=3)
    await admin.execute("SET default_transaction_read_only = off")
    await admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
    await admin.execute("SELECT pg_reload_conf()")
    await admin.close()
    await until(lambda: _is(fleet, running, "succeeded"))
    assert (await fleet.client.runs.get(running.id)).attempt == 1


@proves("redis.restart", "recover.postgres")
async def test_broken_connections_and_servers_that_fail_over_end_nothing_and_delay_by_seconds(
    own_servers: OwnServers, tmp_path: Path
):
    redis_url = own_servers.env["NOVA_REDIS_URL"]
    async with FaultProxy.to_redis(redis_url) as link, Redis.from_url(redis_url) as redis:
        env = {**own_servers.env, **_LEASES_OF_PRODUCTION, "NOVA_REDIS_URL": link.url}
        env["NOVA_WORKER__HEARTBEAT_DIR"] = str(tmp_path)
        async with Fleet(env, workers=1, beat=True) as fleet:
            await _check_breaks(fleet, link)
            await _check_wait(fleet, link, tmp_path)
            await _check_replica(fleet, redis)
            await _check_read_only(fleet, own_servers.database_url)
            assert not any(process.has_ended for process in fleet.processes)
