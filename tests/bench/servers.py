"""Postgres and Valkey as `nova up` starts them: on a disk and durable."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import asyncpg
from redis.asyncio import Redis

from models import migrate
from nova_workers.devstack.servers.postgres import EmbeddedPostgres
from nova_workers.devstack.servers.valkey import EmbeddedValkey
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.support.servers.databases import TEMPLATE, own_database, running

_FILLING_TIMEOUT_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Servers:
    """Both servers, while they run.

    Attributes:
        admin_url: A database of Postgres to make others from.
        redis_url: The fleet's logical database.
        bare_redis_url: Another one of the same server, for bare Celery.
        postgres_pid: The process whose descendants do all of Postgres's work.
        valkey_pid: Valkey's process.
    """

    admin_url: str
    redis_url: str
    bare_redis_url: str
    postgres_pid: int
    valkey_pid: int

    @classmethod
    async def at(cls, *, admin_url: str, redis_url: str, bare_redis_url: str) -> Self:
        """Return servers that run on this machine, with the template database, asking them for their processes."""
        admin = await asyncpg.connect(admin_url)
        data = Path(await admin.fetchval("SHOW data_directory"))
        await admin.close()
        client = Redis.from_url(redis_url)
        valkey_pid = int((await client.info("server"))["process_id"])
        await client.aclose()
        # Its first line is the process id.
        postgres_pid = int((data / "postmaster.pid").read_text().split()[0])
        return cls(admin_url, redis_url, bare_redis_url, postgres_pid, valkey_pid)

    @asynccontextmanager
    async def fresh_database(self) -> AsyncGenerator[str]:
        """Lend a migrated database of its own, and an empty Redis beside it."""
        await self.empty_redis(self.redis_url)
        async with own_database(self.admin_url) as url:
            yield url

    async def empty_redis(self, url: str) -> None:
        """Empty one logical database."""
        client = Redis.from_url(url)
        await client.flushdb()
        await client.aclose()


@asynccontextmanager
async def filling(url: str) -> AsyncGenerator[Database]:
    """Lend a pool of one connection whose statements may take as long as a large table needs."""
    database = PostgresDatabase(url, pool_size=1, command_timeout_s=_FILLING_TIMEOUT_S)
    try:
        yield database
    finally:
        await database.close()


@contextmanager
def bench_servers(home: Path | None = None, *, postgres_settings: dict[str, str] | None = None) -> Generator[Servers]:
    """Run both servers until the block ends, on data that is deleted then.

    Args:
        home: A folder on the disk that is to be measured; None takes the system's temporary one.
        postgres_settings: What differs from the settings of `nova up`.
    """
    data = Path(tempfile.mkdtemp(prefix="nova-bench-", dir=home))
    try:
        # Exactly as `nova up`: a commit waits for its flush, the append-only file is flushed every second.
        postgres, valkey = EmbeddedPostgres(data, settings=postgres_settings), EmbeddedValkey(data)
        with running(postgres.spec(), data / "postgres.log"), running(valkey.spec(), data / "valkey.log"):
            asyncio.run(_make_template(postgres))
            yield asyncio.run(
                Servers.at(admin_url=postgres.url("postgres"), redis_url=valkey.url(0), bare_redis_url=valkey.url(1))
            )
    finally:
        shutil.rmtree(data, ignore_errors=True)


async def _make_template(postgres: EmbeddedPostgres) -> None:
    await postgres.create_database(TEMPLATE)
    await migrate.upgrade(postgres.url(TEMPLATE))
