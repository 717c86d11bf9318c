"""Many open event streams on one API process."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.contracts.events import Token
from nova_workers.domain.streams.rules.publisher import EventPublisher, RunEvents
from tests.bench.figures import percentile
from tests.bench.growth.costs import Cost, Operation, repeated
from tests.bench.growth.ground import Ground
from tests.bench.machine import pss_mb
from tests.support.waiting import until

_OPENING = 50
"""Streams that are opened at once."""
_TIMEOUT_S = 300.0
_TO_ALL = 5
_FLOWING = 100
"""One of so many streams has tokens."""
_TOKENS_PER_S = 25.0
"""On a stream: a model's deltas at 60 to 80 tokens a second come in about this many pieces."""
_FLOWS = 3
_STAMPS = re.compile(rb'"text":"(\d{10,})"')

_ONE = Operation("an event to its client, all other streams silent")
_ALL = Operation("an event for each stream at once, time for each")
_FLOW = Operation(
    f"a token to its client, p99, while tokens flow on each {_FLOWING}th stream",
    grows="What comes within a moment is delivered by one loop, one after the other, and a hundred times as many come.",
)
_GET = Operation("GET /v1/runs/{id} meanwhile")
_MEMORY = Operation("memory of the API process for each stream", unit="KB")

_THREADS = """
INSERT INTO threads (id, tenant_id, agent_id, next_seq, active_run_id, fence)
SELECT 'thr_stream' || i, :tenant_id, 'nova', 2, 'run_stream' || i, 1
  FROM generate_series(:before::int, :size::int - 1) AS i
"""
_RUNS = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, attempt, fence, lease_expires_at,
                  started_at)
SELECT 'run_stream' || i, :tenant_id, 'thr_stream' || i, 'nova', 1, '[]', 'running', 1, 1,
       now() + interval '1 day', now()
  FROM generate_series(:before::int, :size::int - 1) AS i
"""


async def measure_streams(ground: Ground, sizes: Sequence[int]) -> AsyncGenerator[Cost]:
    """Open as many streams, each of a running run of its own, and send events to one and to all of them."""
    chance = random.Random(1)
    redis = Redis.from_url(ground.redis_url)
    async with _Audience.of(ground, redis) as audience:
        idle_mb = pss_mb(ground.api_pid)
        for size in sizes:
            await ground.write(
                {"threads": _THREADS, "runs": _RUNS}, tenant_id=ground.tenant_id, before=len(audience), size=size
            )
            await audience.grow(size)
            to_one = partial(_send_to_one, audience, chance)
            yield Cost.of(_ONE, size, await repeated(to_one, ground.repeats))
            yield Cost.of(_ALL, size, [await audience.send_to_all() / size for _ in range(_TO_ALL)])
            yield Cost.of(_FLOW, size, [await audience.flow(chance, ground.repeats) for _ in range(_FLOWS)])
            yield Cost.of(_GET, size, await repeated(ground.get("/v1/runs/run_stream0"), ground.repeats))
            each_kb = (pss_mb(ground.api_pid) - idle_mb) * 1000 / size
            yield Cost(_MEMORY, size, each_kb, each_kb)
    await redis.aclose()


async def _send_to_one(audience: _Audience, chance: random.Random) -> float:
    return await audience.send_to(chance.randrange(len(audience)))


class _Audience:
    """The clients of all streams, and the worker that sends events to them."""

    def __init__(self, ground: Ground, publisher: EventPublisher) -> None:
        self._ground = ground
        self._publisher = publisher
        self._sources: list[RunEvents] = []
        self._requests: list[asyncio.Task[object]] = []
        self._awaited: dict[int, asyncio.Future[float]] = {}
        self._flowed_s: list[float] = []

    @classmethod
    @asynccontextmanager
    async def of(cls, ground: Ground, redis: Redis) -> AsyncGenerator[_Audience]:
        """Lend an audience without a stream; all its streams are closed after the block."""
        publisher = EventPublisher(redis, flush_ms=20, clock=SystemClock())
        sending = asyncio.create_task(publisher.run())
        audience = cls(ground, publisher)
        try:
            yield audience
        finally:
            for task in (sending, *audience._requests):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(sending, *audience._requests, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._sources)

    async def grow(self, size: int) -> None:
        """Open streams until there are `size`; each has received an event then."""
        while len(self) < size:
            first = len(self)
            for number in range(first, min(first + _OPENING, size)):
                self._sources.append(self._publisher.open(f"run_stream{number}", 1))
                self._requests.append(asyncio.create_task(self._follow(number)))
            await self._send(range(first, len(self)))

    async def send_to(self, number: int) -> float:
        """Send an event on one stream; return the seconds until its client had it."""
        return await self._send([number])

    async def send_to_all(self) -> float:
        """Send an event on each stream at once; return the seconds until the last client had its own."""
        return await self._send(range(len(self)))

    async def flow(self, chance: random.Random, tokens: int) -> float:
        """Send tokens on a part of the streams, at a model's pace; return the p99 of the seconds to their clients.

        Args:
            chance: Chooses the streams.
            tokens: On each of them.
        """
        numbers = chance.sample(range(len(self)), max(1, len(self) // _FLOWING))
        self._flowed_s.clear()
        async with asyncio.timeout(_TIMEOUT_S), asyncio.TaskGroup() as group:
            for number in numbers:
                group.create_task(self._emit(number, tokens, chance.random() / _TOKENS_PER_S))
        await until(lambda: len(self._flowed_s) == len(numbers) * tokens, timeout_s=_TIMEOUT_S)
        return percentile(self._flowed_s, 0.99)

    async def _emit(self, number: int, tokens: int, phase_s: float) -> None:
        # Not all at the same instant: real turns are not synchronous.
        await asyncio.sleep(phase_s)
        for _ in range(tokens):
            self._sources[number].emit(Token(text=f"{time.monotonic_ns()}"))
            await asyncio.sleep(1 / _TOKENS_PER_S)

    async def _send(self, numbers: Sequence[int]) -> float:
        loop = asyncio.get_running_loop()
        awaited = [loop.create_future() for _ in numbers]
        self._awaited = dict(zip(numbers, awaited, strict=True))
        began_s = time.perf_counter()
        for number in numbers:
            self._sources[number].emit(Token(text="And so on"))
        async with asyncio.timeout(_TIMEOUT_S):
            return max(await asyncio.gather(*awaited)) - began_s

    async def _follow(self, number: int) -> object:
        def see(piece: bytes, arrived_s: float) -> None:
            now_ns = time.monotonic_ns()
            self._flowed_s.extend((now_ns - int(stamp)) / 1e9 for stamp in _STAMPS.findall(piece))
            awaited = self._awaited.get(number)
            if awaited is not None and not awaited.done() and b"event: token" in piece:
                awaited.set_result(arrived_s)

        answer = await self._ground.client.get(f"/v1/runs/run_stream{number}/events", on_piece=see)
        raise AssertionError(f"stream {number} ended with {answer.status}: {answer.body!r}")
