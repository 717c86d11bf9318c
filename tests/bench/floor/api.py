"""The floor's API: `uvicorn tests.bench.floor.api:app`, with the variables that the package names."""

import asyncio
import os
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import orjson
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from redis.asyncio import Redis

from tests.bench.floor import CHANNEL, DATABASE, REDIS
from tests.bench.floor.worker import execute

_TABLES = """
CREATE TABLE IF NOT EXISTS floor_threads (id text PRIMARY KEY, messages text[] NOT NULL DEFAULT '{}');
CREATE TABLE IF NOT EXISTS floor_runs (
    seq bigserial PRIMARY KEY, id text UNIQUE NOT NULL, thread_id text NOT NULL, message text NOT NULL,
    status text NOT NULL DEFAULT 'queued', answer text
);
CREATE INDEX IF NOT EXISTS ix_floor_runs__open ON floor_runs (thread_id, seq) WHERE status <> 'succeeded'
"""
_THREAD = "INSERT INTO floor_threads (id) VALUES ($1)"
_CONTINUE = "INSERT INTO floor_runs (id, thread_id, message) VALUES ($1, $2, $3)"
_SUBMIT = """
WITH thread AS (INSERT INTO floor_threads (id) VALUES ($2) RETURNING id)
INSERT INTO floor_runs (id, thread_id, message) SELECT $1, id, $3 FROM thread
"""
_ANSWER = "SELECT answer FROM floor_runs WHERE id = $1 AND status = 'succeeded'"


class _Server:
    """The pool, and who waits for which run."""

    def __init__(self, pool: Any, redis: Redis) -> None:
        self.pool = pool
        self._redis = redis
        self._waiting: dict[str, list[asyncio.Future[bytes]]] = defaultdict(list)

    async def listen(self) -> None:
        events = self._redis.pubsub()
        await events.psubscribe(f"{CHANNEL}*")
        async for event in events.listen():
            if event["type"] == "pmessage":
                for waiting in self._waiting.pop(event["channel"].decode().removeprefix(CHANNEL), ()):
                    if not waiting.done():
                        waiting.set_result(event["data"])

    @contextmanager
    def awaits(self, run_id: str) -> Generator[asyncio.Future[bytes]]:
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[run_id].append(waiting)
        try:
            yield waiting
        finally:
            self._waiting.pop(run_id, None)

    async def submit(self, run_id: str, message: str, thread_id: str | None = None) -> None:
        statement = _SUBMIT if thread_id is None else _CONTINUE
        thread_id = thread_id or uuid.uuid4().hex
        await self.pool.execute(statement, run_id, thread_id, message)
        execute.delay(thread_id)  # type: ignore[attr-defined] - Celery has no types


@asynccontextmanager
async def _lifespan(_: FastAPI) -> AsyncGenerator[dict[str, Any]]:
    pool = await asyncpg.create_pool(os.environ[DATABASE], min_size=4, max_size=16)
    await pool.execute(_TABLES)
    redis = Redis.from_url(os.environ[REDIS])
    server = _Server(pool, redis)
    listening = asyncio.create_task(server.listen())
    yield {"server": server}
    listening.cancel()
    await redis.aclose()
    await pool.close()


app = FastAPI(lifespan=_lifespan)


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


@app.post("/v1/runs")
async def submit(request: Request) -> Response:
    """Submit a run."""
    run_id = uuid.uuid4().hex
    await request.state.server.submit(run_id, orjson.loads(await request.body())["message"])
    return _json(orjson.dumps({"id": run_id}))


@app.get("/v1/runs/{run_id}/wait")
async def wait(run_id: str, request: Request) -> Response:
    """Wait for the end of a run."""
    server: _Server = request.state.server
    with server.awaits(run_id) as waiting:
        answer = await server.pool.fetchval(_ANSWER, run_id)
        return _json(await waiting if answer is None else orjson.dumps({"answer": answer}))


@app.post("/v1/threads")
async def create_thread(request: Request) -> Response:
    """Create an empty thread."""
    server: _Server = request.state.server
    thread_id = uuid.uuid4().hex
    await server.pool.execute(_THREAD, thread_id)
    return _json(orjson.dumps({"id": thread_id}))


@app.post("/v1/runs/wait")
@app.post("/v1/threads/{thread_id}/runs/wait")
async def submit_and_wait(request: Request, thread_id: str | None = None) -> Response:
    """Submit a run, to a thread or with a new one, and wait for its end."""
    server: _Server = request.state.server
    run_id = uuid.uuid4().hex
    message = orjson.loads(await request.body())["message"]
    with server.awaits(run_id) as waiting:
        await server.submit(run_id, message, thread_id)
        return _json(await waiting)


@app.post("/v1/runs/stream")
@app.post("/v1/threads/{thread_id}/runs/stream")
async def stream(request: Request, thread_id: str | None = None) -> StreamingResponse:
    """Submit a run, to a thread or with a new one, and stream its only event."""
    server: _Server = request.state.server
    run_id = uuid.uuid4().hex
    message = orjson.loads(await request.body())["message"]

    async def events() -> AsyncGenerator[bytes]:
        with server.awaits(run_id) as waiting:
            await server.submit(run_id, message, thread_id)
            yield b"event: stream_start\ndata: " + await waiting + b"\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
