"""An own database with an API process before it, to fill and to measure."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from nova_workers.ledger.database import Connection, Database, PostgresDatabase
from nova_workers.ledger.named_sql import compile_statement
from tests.bench.growth.costs import Action
from tests.bench.http import LoadClient
from tests.bench.servers import Servers
from tests.support.processes.fleet import Fleet

# One process has all streams, all from one address, and a few keys do all requests.
_LIMITS = {
    "NOVA_API__MAX_STREAMS_PER_KEY": "100000",
    "NOVA_API__MAX_CONNECTIONS": "15000",
    "NOVA_API__MAX_CONNECTIONS_PER_ADDRESS": "15000",
    "NOVA_API__REQUESTS_PER_S_PER_KEY": "100000",
    "NOVA_API__REQUESTS_PER_S_PER_ADDRESS": "100000",
}
_FILLING_TIMEOUT_S = 3_600.0
_STREAM_TIMEOUT_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Ground:
    """Where an axis is measured.

    Attributes:
        database: Has one connection more than one measurement needs; its statements may take as long as a large table.
        client: With a key of `tenant_id`, which has every scope.
        tenant_id: Has the default agents.
        repeats: How often each operation is measured at each size.
    """

    database: Database
    client: LoadClient
    redis_url: str
    api_url: str
    api_pid: int
    tenant_id: str
    repeats: int

    async def write(self, statements: Mapping[str, str], *, vacuum: bool = True, **values: object) -> None:
        """Insert or delete rows in one transaction without a check of foreign keys, and vacuum the tables.

        Args:
            statements: By the table that each changes.
            vacuum: Without it, sessions keep the plans that they made before.
            values: The parameters of all of them.
        """
        async with self.database.transaction() as connection:
            await connection.execute("SET LOCAL session_replication_role = replica")
            for statement in statements.values():
                names = compile_statement(statement)[1]
                await connection.execute(statement, **{name: values[name] for name in names})
        for table in statements if vacuum else ():
            await self.database.execute(f"VACUUM ANALYZE {table}")

    def get(self, path: str, *, client: LoadClient | None = None) -> Action:
        """Return the request of a path as an action."""

        async def get() -> float:
            answer = await (client or self.client).get(path)
            assert answer.status == 200, (answer.status, answer.body)
            return answer.ended_s - answer.began_s

        return get

    def on_connection(self, statement: Callable[[Connection], Awaitable[object]]) -> Action:
        """Return a call of the ledger as an action; waiting for a connection is not measured."""

        async def call() -> float:
            async with self.database.connection() as connection:
                began_s = time.perf_counter()
                await statement(connection)
                return time.perf_counter() - began_s

        return call


@asynccontextmanager
async def lend_ground(servers: Servers, *, repeats: int, preloaded: bool = False) -> AsyncGenerator[Ground]:
    """Lend a migrated database with an API process and no worker.

    Args:
        preloaded: See `Fleet`; not for measurements.
    """
    async with servers.fresh_database() as url:
        env = {"NOVA_DATABASE_URL": url, "NOVA_REDIS_URL": servers.redis_url, **_LIMITS}
        async with Fleet(env, workers=0, preloaded=preloaded, embeddings=True) as fleet:
            assert fleet.api is not None
            assert fleet.tenant_id is not None
            database = PostgresDatabase(url, pool_size=2, command_timeout_s=_FILLING_TIMEOUT_S)
            client = LoadClient(fleet.api_url, fleet.api_key, timeout_s=_STREAM_TIMEOUT_S)
            try:
                yield Ground(
                    database, client, servers.redis_url, fleet.api_url, fleet.api.pid, fleet.tenant_id, repeats
                )
            finally:
                client.close()
                await database.close()
