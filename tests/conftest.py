"""Fixtures on real servers: one Postgres and one Valkey a session, a fresh database a test.

With xdist the controller runs the servers and tells its workers where they are; without it the first test that
asks for one starts them. Tests that need neither cost neither.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from redis.asyncio import Redis

from nova_workers.config import Settings
from nova_workers.ledger.database import Database
from tests.support.servers import TEMPLATE, Servers, test_servers

_RUNNING = pytest.StashKey[ExitStack]()
_SERVERS = pytest.StashKey[Servers]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the developer's own settings and model keys out of the tests."""
    config.stash[_RUNNING] = ExitStack()
    for name in [name for name in os.environ if name.startswith(("NOVA_", "ANTHROPIC_"))]:
        del os.environ[name]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """In xdist's controller: tell a worker where the servers are."""
    config: pytest.Config = node.config  # type: ignore[attr-defined]  # xdist's WorkerController has no types
    servers = _start_once(config)
    node.workerinput.update(  # type: ignore[attr-defined]
        postgres_url_admin=servers.postgres_url_admin, valkey_url=servers.valkey_url
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what was started, also after Ctrl-C."""
    config.stash[_RUNNING].close()


def _start_once(config: pytest.Config) -> Servers:
    if _SERVERS not in config.stash:
        config.stash[_SERVERS] = config.stash[_RUNNING].enter_context(test_servers())
    return config.stash[_SERVERS]


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> Servers:
    """Both servers."""
    given: dict[str, str] | None = getattr(pytestconfig, "workerinput", None)
    if given is not None:
        return Servers(given["postgres_url_admin"], given["valkey_url"])
    return _start_once(pytestconfig)


@pytest.fixture(scope="session")
def postgres_url_admin(servers: Servers) -> str:
    """URL of the maintenance database, as superuser."""
    return servers.postgres_url_admin


@pytest.fixture(scope="session")
def valkey_url(servers: Servers) -> str:
    """URL of logical database 0, which no test should use: `redis_url` is the test's own."""
    return servers.valkey_url


@pytest.fixture
async def database_url(postgres_url_admin: str) -> AsyncIterator[str]:
    """URL of a fresh, migrated database, dropped after the test."""
    name = f"test_{uuid.uuid4().hex}"
    admin = await asyncpg.connect(postgres_url_admin)
    try:
        await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE {TEMPLATE} STRATEGY file_copy')
        yield urlsplit(postgres_url_admin)._replace(path=f"/{name}").geturl()
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    finally:
        await admin.close()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A pool on the fresh database."""
    database = Database(database_url, pool_size=8)
    yield database
    await database.close()


@pytest.fixture
async def redis_url(valkey_url: str, worker_number: int) -> str:
    """URL of this test worker's own logical database, empty at the start of the test."""
    # Not by `urlsplit`, which loses the slashes of ``unix://``: redis-py's blocking client wants them.
    url = f"{valkey_url.partition('?')[0]}?db={worker_number + 1}"
    client = Redis.from_url(url)
    await client.flushdb()
    await client.aclose()
    return url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client on the empty logical database."""
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.fixture(scope="session")
def worker_number() -> int:
    """0 without xdist, else the number of this worker."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


@pytest.fixture
def settings(database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    """Settings that point at the fresh database, the empty Redis and a home of the test's own."""
    return Settings.model_validate({"database_url": database_url, "redis_url": redis_url, "home": tmp_path})
