"""Whether the servers that a worker needs serve it: in its metrics, its log and a file for the platform's probe.

A worker never ends because a server is away. It waits, and continues once the server is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.errors import Unavailable
from nova_workers.base.keys import WORKER_TTL_S, workers_index
from nova_workers.base.observability.metrics import Metrics
from nova_workers.ledger.database import Database
from nova_workers.ledger.schema import takes_writes
from nova_workers.worker.presence import touch

_log = structlog.get_logger(__name__)

_EVERY_S = 5.0
_DEADLINE_S = 2.0
_FILE = "ready"


class Readiness:
    """Looks at Postgres and Redis every 5 s until canceled."""

    def __init__(self, database: Database, redis: Redis, metrics: Metrics, heartbeat_dir: Path | None) -> None:
        self._database = database
        self._redis = redis
        self._metrics = metrics
        self._heartbeat_dir = heartbeat_dir
        self._serving: dict[str, bool] = {}

    async def run(self) -> None:
        """Look until canceled."""
        while True:
            try:
                await self.look()
            except Exception:
                _log.exception("readiness.failed")
            await asyncio.sleep(_EVERY_S)

    async def look(self) -> bool:
        """Look once, and return whether all servers take writes."""
        postgres, redis = await asyncio.gather(_problem(self._ask_postgres()), _problem(self._ask_redis()))
        for server, problem in (("postgres", postgres), ("redis", redis)):
            self._note(server, problem)
        is_ready = postgres is None and redis is None
        if is_ready:
            touch(self._heartbeat_dir, _FILE)
        return is_ready

    async def _ask_postgres(self) -> None:
        async with self._database.connection() as connection:
            if not await takes_writes(connection):
                raise Unavailable("It takes no writes.", server="postgres", may_be_written=False)

    async def _ask_redis(self) -> None:
        # A command that writes, for a replica answers reads.
        await self._redis.expire(workers_index(), WORKER_TTL_S)

    def _note(self, server: str, problem: str | None) -> None:
        self._metrics.server_serves.labels(server).set(problem is None)
        if self._serving.get(server, True) != (problem is None):
            if problem is None:
                _log.info("worker.server_is_back", server=server)
            else:
                _log.warning("worker.waits_for_server", server=server, problem=problem)
        self._serving[server] = problem is None


async def _problem(question: Awaitable[None]) -> str | None:
    """Return why a server does not serve; None if it does."""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            await question
    except (Unavailable, RedisError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"
    return None
