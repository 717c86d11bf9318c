"""Bare Celery on the same broker, measured in the same way, for comparison with the fleet's figures."""

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from celery import Celery
from redis.asyncio import Redis

from nova_workers.broker.celery_app import build_celery
from tests.bench.machine import pss_mb
from tests.bench.servers import Servers
from tests.bench.sizes import Sizes
from tests.support.processes.fleet import FleetProcess

URL = "NOVA_BENCH_BARE_REDIS_URL"
COUNT = "bench.count"
PING = "bench.ping"
SLEEP = "bench.sleep"

_QUEUE = "interactive"
_APP = "tests.bench.bare_worker:app"
_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class BareCelery:
    """Bare Celery with tasks that do nothing, or only sleep: one worker process, a pool of threads.

    Attributes:
        publishes_s: How long each `send_task` took.
        pings_s: From before a publish until its task is known to have ended, one at a time.
        tasks_per_s: No-ops of a full queue.
        concurrent_s: Wall time of as many sleeping tasks as the row has turns.
        slot_mb: Memory of a task that sleeps.
    """

    publishes_s: Sequence[float]
    pings_s: Sequence[float]
    tasks_per_s: float
    concurrent_s: float
    many_concurrent_s: float
    slot_mb: float


async def measure_bare_celery(servers: Servers, sizes: Sizes, *, preloaded: bool = False) -> BareCelery:
    """Measure everything once; for `preloaded` see `FleetProcess`."""
    url = servers.bare_redis_url
    await servers.empty_redis(url)
    celery = build_celery(url, fail_fast=True)
    redis = Redis.from_url(url, socket_timeout=_TIMEOUT_S + 5)
    try:
        # The queue is filled before there is a worker, so that the two do not compete for CPU.
        filled = _key()
        publishes_s = await asyncio.to_thread(_fill, celery, filled, sizes.bare_tasks)
        async with _worker(url, slots=max(sizes.many_concurrent, sizes.in_flight) + 24, preloaded=preloaded) as worker:
            drained_s = await _recorded(redis, filled)
            pings_s = [await _ping(celery, redis) for _ in range(sizes.bare_pings)]
            idle_mb = pss_mb(worker.pid)
            busy = asyncio.create_task(_run_concurrent(celery, redis, sizes.in_flight, sizes.turn_s))
            await asyncio.sleep(sizes.turn_s * 0.9)
            slot_mb = (pss_mb(worker.pid) - idle_mb) / sizes.in_flight
            await busy
            concurrent_s = await _run_concurrent(celery, redis, sizes.concurrent, sizes.turn_s)
            many_concurrent_s = await _run_concurrent(celery, redis, sizes.many_concurrent, sizes.turn_s)
    finally:
        await redis.aclose()
        celery.close()
    return BareCelery(publishes_s, pings_s, sizes.bare_tasks / drained_s, concurrent_s, many_concurrent_s, slot_mb)


@asynccontextmanager
async def _worker(url: str, *, slots: int, preloaded: bool) -> AsyncGenerator[FleetProcess]:
    command = [
        *(sys.executable, "-m", "celery", "--app", _APP, "worker", "--pool", "threads", "--concurrency", str(slots)),
        *("--queues", _QUEUE, "--without-gossip", "--without-mingle", "--loglevel", "warning"),
    ]
    with TemporaryDirectory(prefix="nova-bench-") as logs:
        worker = FleetProcess("bare-worker", command, {URL: url}, Path(logs) / "bare-worker.log", preloaded=preloaded)
        try:
            yield worker
        except BaseException:
            sys.stderr.write(worker.tail() + "\n")
            raise
        finally:
            worker.kill()


def _fill(celery: Celery, key: str, count: int) -> list[float]:
    times_s: list[float] = []
    for _ in range(count):
        began_s = time.perf_counter()
        celery.send_task(COUNT, kwargs={"key": key, "total": count}, queue=_QUEUE, ignore_result=True)
        times_s.append(time.perf_counter() - began_s)
    return times_s


async def _ping(celery: Celery, redis: Redis) -> float:
    key = _key()
    began_s = time.perf_counter()
    celery.send_task(PING, kwargs={"key": key}, queue=_QUEUE, ignore_result=True)
    await _recorded(redis, key)
    return time.perf_counter() - began_s


async def _run_concurrent(celery: Celery, redis: Redis, count: int, seconds: float) -> float:
    key = _key()
    began_s = time.perf_counter()

    def publish() -> None:
        for _ in range(count):
            kwargs = {"key": key, "total": count, "seconds": seconds}
            celery.send_task(SLEEP, kwargs=kwargs, queue=_QUEUE, ignore_result=True)

    await asyncio.to_thread(publish)
    await _recorded(redis, key)
    return time.perf_counter() - began_s


async def _recorded(redis: Redis, key: str) -> float:
    answer = await redis.brpop([key], timeout=_TIMEOUT_S)
    if answer is None:
        raise TimeoutError(f"bare Celery did not end {key!r} within {_TIMEOUT_S} s")
    return float(answer[1])


def _key() -> str:
    return f"bench:{uuid.uuid4().hex}"
