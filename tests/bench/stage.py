"""A fleet to measure: fresh database, empty broker, API, one worker, beat, all warm, and a load client."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from nova_workers.devstack.commands import WORKER_APP
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.bench.bare import BareCelery
from tests.bench.http import Answer, LoadClient
from tests.bench.installed import Site, nova_up, running_up
from tests.bench.machine import CpuMeter, cpu_s, descendants_cpu_s, tree_cpu_s
from tests.bench.servers import Servers
from tests.bench.sizes import Sizes
from tests.support.processes.fleet import Fleet, FleetProcess

DEFAULT_SLOTS = 256
"""As a worker has them by default."""

_WARM_UP_RUNS = 30
_POLL_S = 0.05


def scripted(*items: Mapping[str, Any]) -> str:
    """Return a message with a script for the scripted engine."""
    return orjson.dumps({"script": items}).decode()


@dataclass(slots=True)
class Stage:
    """One fleet and its clients."""

    servers: Servers
    fleet: Fleet
    client: LoadClient
    database: Database
    worker: FleetProcess
    slots: int

    def meter(self) -> CpuMeter:
        """Return a meter of every process of the stage."""
        assert self.fleet.api is not None
        assert self.fleet.beat is not None
        worker, servers = self.worker.pid, self.servers
        return CpuMeter(
            {
                "api": partial(cpu_s, self.fleet.api.pid),
                "worker": partial(cpu_s, worker),
                "embeddings": partial(descendants_cpu_s, worker),
                "beat": partial(cpu_s, self.fleet.beat.pid),
                "postgres": partial(tree_cpu_s, servers.postgres_pid),
                "valkey": partial(tree_cpu_s, servers.valkey_pid),
            }
        )

    async def post_and_wait(self, message: str) -> Answer:
        """Send a message to a new thread and wait for its end.

        Raises:
            AssertionError: The run did not succeed.
        """
        answer = await self.client.post("/v1/runs/wait", {"message": message})
        assert answer.status == 200, (answer.status, answer.body)
        assert b'"status":"succeeded"' in answer.body, answer.body
        return answer

    async def until(self, question: str, *, timeout_s: float = 300.0, **values: object) -> None:
        """Wait until a query answers true.

        Raises:
            TimeoutError: It never did.
        """
        async with asyncio.timeout(timeout_s):
            while not await self.database.fetchval(question, **values):  # noqa: ASYNC110 - other processes change it
                await asyncio.sleep(_POLL_S)

    async def until_idle(self, timeout_s: float = 300.0) -> None:
        """Wait until no run is open and no effect is due: nothing is left over to weigh on the next measurement.

        Raises:
            TimeoutError: The backlog was too long.
        """
        await self.until(_IDLE, timeout_s=timeout_s)

    async def warm_up(self, runs: int) -> None:
        """Execute some turns, so that pools, caches and the embedding process are there."""
        for _ in range(runs):
            await self.post_and_wait("Warm up, please")
        await self.until_idle()


_IDLE = """
SELECT NOT EXISTS (SELECT 1 FROM runs WHERE status IN ('queued', 'running', 'waiting'))
   AND NOT EXISTS (SELECT 1 FROM effects WHERE status IN ('pending', 'running'))
"""


@dataclass(frozen=True, slots=True)
class Bench:
    """The arguments of every measurement.

    Attributes:
        servers: Where fleets run.
        sizes: How much is measured.
        bare: Bare Celery's figures.
        preloaded: See `FleetProcess`. Measured memory and starts want it off.
    """

    servers: Servers
    sizes: Sizes
    bare: BareCelery | None = None
    preloaded: bool = False

    def up(self, home: Path) -> AbstractAsyncContextManager[object]:
        """Run `nova up` on a home; it is up when the block begins."""
        return running_up(home)

    def site(self, given: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Site]:
        """Lend the fleet as users start it, with settings that differ from the defaults."""
        return nova_up(given)

    @asynccontextmanager
    async def stage(
        self, *, slots: int = DEFAULT_SLOTS, worker_app: str = WORKER_APP, env: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Stage]:
        """Lend a warm fleet with one worker, on a database and a broker of its own.

        Args:
            slots: Turns that the worker takes at once.
            worker_app: The worker's Celery app, if a measurement needs its own.
            env: Settings that differ from the defaults.
        """
        async with self.servers.fresh_database() as url:
            variables = {"NOVA_DATABASE_URL": url, "NOVA_REDIS_URL": self.servers.redis_url, **(env or {})}
            async with Fleet(variables, workers=0, beat=True, preloaded=self.preloaded, embeddings=True) as fleet:
                worker = await fleet.start_worker(concurrency=slots, app=worker_app)
                client = LoadClient(fleet.api_url, fleet.api_key)
                database = PostgresDatabase(url, pool_size=2)
                stage = Stage(self.servers, fleet, client, database, worker, slots)
                try:
                    await stage.warm_up(min(_WARM_UP_RUNS, self.sizes.waits))
                    yield stage
                finally:
                    client.close()
                    await database.close()
