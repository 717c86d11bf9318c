"""The liveness of a worker process: a record in Redis for the fleet, files for the platform's probes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.clock import Clock
from nova_workers.base.keys import WORKER_TTL_S, worker_presence, workers_index
from nova_workers.contracts.http.fleet import SandboxTrial
from nova_workers.contracts.installs import NOTHING_INSTALLED, Installation

_log = structlog.get_logger(__name__)

_EVERY_S = 5.0


class Presence:
    """Reports a worker process every 5 s until canceled; `withdraw` deletes the record at a clean shutdown."""

    def __init__(
        self,
        redis: Redis,
        clock: Clock,
        *,
        worker_id: str,
        queues: tuple[str, ...],
        slots: int,
        sandbox: str | None,
        trial: SandboxTrial | None = None,
        busy: Callable[[], int],
        suspects: Callable[[], int],
        draining: Callable[[], bool],
        heartbeat_dir: Path | None,
        warnings: Callable[[], Sequence[str]] = tuple,
        node: str | None = None,
        installation: Installation = NOTHING_INSTALLED,
    ) -> None:
        self._redis = redis
        self._clock = clock
        self._worker_id = worker_id
        self._queues = queues
        self._slots = slots
        self._sandbox = sandbox
        self._trial = None if trial is None else trial.model_dump(mode="json")
        self._busy = busy
        self._suspects = suspects
        self._draining = draining
        self._heartbeat_dir = heartbeat_dir
        self._warnings = warnings
        self._node = node
        self._projects = [each.model_dump(mode="json") for each in installation.codes]

    async def run(self) -> None:
        """Report until canceled."""
        while True:
            touch(self._heartbeat_dir, "loop")
            try:
                await self.report()
            except RedisError as error:
                _log.warning("presence.redis_unavailable", outage="redis", error=str(error))
            except Exception:
                _log.exception("presence.failed")
            await asyncio.sleep(_EVERY_S)

    async def report(self) -> None:
        """Write the record once."""
        now = self._clock.now()
        record = {
            "id": self._worker_id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "node": self._node,
            "queues": list(self._queues),
            "slots": self._slots,
            "sandbox": self._sandbox,
            "sandbox_trial": self._trial,
            "busy": self._busy(),
            "suspects": self._suspects(),
            "draining": self._draining(),
            "warnings": list(self._warnings()),
            "projects": self._projects,
            "seen_at": now.isoformat(),
        }
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.set(worker_presence(self._worker_id), orjson.dumps(record), ex=WORKER_TTL_S)
        pipeline.zadd(workers_index(), {self._worker_id: now.timestamp()})
        pipeline.zremrangebyscore(workers_index(), "-inf", now.timestamp() - WORKER_TTL_S)
        pipeline.expire(workers_index(), WORKER_TTL_S)
        await pipeline.execute()

    async def withdraw(self) -> None:
        """Delete the record. Best effort."""
        try:
            await self._redis.delete(worker_presence(self._worker_id))
            await self._redis.zrem(workers_index(), self._worker_id)
        except RedisError as error:
            _log.warning("presence.not_withdrawn", error=str(error))


def touch(directory: Path | None, name: str) -> None:
    """Update a heartbeat file. A probe compares its modification time with the clock."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()
