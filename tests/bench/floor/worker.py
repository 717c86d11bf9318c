"""The floor's worker: `celery -A tests.bench.floor.worker:app worker -P threads`."""

import asyncio
import os
import threading
import time
from functools import cache
from typing import Any

import asyncpg
import orjson
from celery import Celery
from redis import Redis

from nova_workers.broker.celery_app import kombu_url
from tests.bench.floor import CHANNEL, DATABASE, REDIS

__all__ = ["app", "execute"]

_CLAIM = """
UPDATE floor_runs SET status = 'running'
 WHERE seq = (SELECT seq FROM floor_runs WHERE thread_id = $1 AND status <> 'succeeded' ORDER BY seq LIMIT 1)
   AND status = 'queued'
RETURNING id, message
"""
_FINISH = "UPDATE floor_runs SET status = 'succeeded', answer = $2 WHERE id = $1"

app = Celery("floor", broker=kombu_url(os.environ[REDIS]))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    worker_prefetch_multiplier=4,
    task_default_queue="floor",
)


@cache
def _stores() -> tuple[asyncio.AbstractEventLoop, Any, Redis]:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    pool = asyncio.run_coroutine_threadsafe(_connect(), loop).result()
    return loop, pool, Redis.from_url(os.environ[REDIS])


async def _connect() -> Any:
    return await asyncpg.create_pool(os.environ[DATABASE], min_size=2, max_size=8)


@app.task(name="floor.execute")
def execute(thread_id: str) -> None:
    """Run what a thread has queued. A message of the form ``sleep:SECONDS`` sleeps."""
    loop, pool, redis = _stores()

    def run(statement: str, *values: str) -> Any:
        return asyncio.run_coroutine_threadsafe(pool.fetchrow(statement, *values), loop).result()

    while (claimed := run(_CLAIM, thread_id)) is not None:
        run_id, message = claimed
        if message.startswith("sleep:"):
            time.sleep(float(message.removeprefix("sleep:")))
        run(_FINISH, run_id, message[::-1])
        redis.publish(f"{CHANNEL}{run_id}", orjson.dumps({"answer": message[::-1]}))
