"""The floor's worker: `celery -A tests.bench.floor.worker:app worker -P threads`."""

import asyncio
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from queue import LifoQueue
from typing import Any

import asyncpg
import orjson
import uvloop
from celery import Celery, signals
from redis import Redis

from nova_workers.broker.celery_app import kombu_url
from tests.bench.floor import CHANNEL, DATABASE, REDIS

_SESSIONS = 8
_LOCK = "SELECT FROM floor_threads WHERE id = $1 FOR UPDATE"
_CLAIM = """
UPDATE floor_runs SET status = 'running'
 WHERE seq = (SELECT seq FROM floor_runs WHERE thread_id = $1 AND status <> 'succeeded' ORDER BY seq LIMIT 1)
   AND status = 'queued'
RETURNING id, message
"""
_REMEMBER = "UPDATE floor_threads SET messages = messages || $2::text WHERE id = $1"
_FINISH = "UPDATE floor_runs SET status = 'succeeded', answer = $2 WHERE id = $1"

app = Celery("floor", broker=kombu_url(os.environ[REDIS]))
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    worker_hijack_root_logger=False,
    worker_prefetch_multiplier=4,
    task_default_queue="floor",
)


class _Session:
    """A connection to Postgres for threads: each call blocks its thread, on an event loop that no other thread uses."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._connection: Any = self._runner.run(asyncpg.connect(os.environ[DATABASE]))

    def claim(self, thread_id: str) -> Any:
        return self._runner.run(self._claim(thread_id))

    def finish(self, thread_id: str, run_id: str, message: str) -> None:
        self._runner.run(self._finish(thread_id, run_id, message))

    async def _claim(self, thread_id: str) -> Any:
        async with self._connection.transaction():
            await self._connection.execute(_LOCK, thread_id)
            return await self._connection.fetchrow(_CLAIM, thread_id)

    async def _finish(self, thread_id: str, run_id: str, message: str) -> None:
        async with self._connection.transaction():
            await self._connection.execute(_REMEMBER, thread_id, message)
            await self._connection.execute(_FINISH, run_id, message[::-1])


@signals.worker_init.connect
def _prepare(**_: object) -> None:
    # Before the first task: threads that begin at once would make a set of sessions each.
    _stores()


@cache
def _stores() -> tuple[LifoQueue[_Session | None], Redis]:
    sessions: LifoQueue[_Session | None] = LifoQueue()
    for _ in range(_SESSIONS):
        sessions.put(None)
    return sessions, Redis.from_url(os.environ[REDIS])


@contextmanager
def _session() -> Generator[_Session]:
    """Lend a session, opened when it is first needed."""
    sessions, _ = _stores()
    session = sessions.get()
    try:
        session = session or _Session()
        yield session
    finally:
        sessions.put(session)


@app.task(name="floor.execute")
def execute(thread_id: str) -> None:
    """Run what a thread has queued. A message of the form ``sleep:SECONDS`` sleeps."""
    _, redis = _stores()
    while True:
        with _session() as session:
            claimed = session.claim(thread_id)
        if claimed is None:
            return
        run_id, message = claimed
        if message.startswith("sleep:"):
            time.sleep(float(message.removeprefix("sleep:")))
        with _session() as session:
            session.finish(thread_id, run_id, message)
        redis.publish(f"{CHANNEL}{run_id}", orjson.dumps({"answer": message[::-1]}))
