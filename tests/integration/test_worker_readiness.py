"""What a worker reports about the servers that it needs."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.observability.metrics import Metrics
from nova_workers.broker.redis_connections import connect
from nova_workers.ledger.database import PostgresDatabase
from nova_workers.worker.readiness import Readiness
from tests.support.servers.databases import replica_of_nothing


@pytest.mark.usefixtures("ending_sessions")
async def test_a_worker_is_ready_while_both_servers_take_writes(
    database_url: str, redis_url: str, redis: Redis, postgres_url_admin: str, tmp_path: Path
):
    registry = CollectorRegistry()
    client, database = connect(redis_url), PostgresDatabase(database_url, pool_size=1)
    readiness = Readiness(database, client, Metrics(registry), tmp_path)

    def serves(server: str) -> bool:
        return bool(registry.get_sample_value("nova_server_serves", {"server": server}))

    assert await readiness.look()
    assert (tmp_path / "ready").exists()
    (tmp_path / "ready").unlink()

    async with replica_of_nothing(redis):
        assert not await readiness.look()
    assert (serves("postgres"), serves("redis")) == (True, False)
    assert await readiness.look()

    name = urlsplit(database_url).path.strip("/")
    admin = PostgresDatabase(postgres_url_admin, pool_size=1)
    await admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    standby, registry = PostgresDatabase(database_url, pool_size=1), CollectorRegistry()
    try:
        assert not await Readiness(standby, client, Metrics(registry), None).look()
    finally:
        await admin.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
    assert (serves("postgres"), serves("redis")) == (False, True)
    for each in (admin, standby, database):
        await each.close()
    await client.aclose()
