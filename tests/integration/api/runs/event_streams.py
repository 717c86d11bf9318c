"""Reads a run's event stream in tests."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple

import httpx2
import orjson

from nova_workers.base.keys import open_streams
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Turn


class Frame(NamedTuple):
    """One server-sent event."""

    id: str
    type: str
    data: dict[str, object]


@asynccontextmanager
async def listening(
    api: Api, run_id: str, *, after: str | None = None
) -> AsyncGenerator[tuple[httpx2.Response, AsyncGenerator[Frame]]]:
    """Open a run's stream; the block's frames come from the second value."""
    headers = {} if after is None else {"Last-Event-ID": after}
    async with api.http.stream("GET", f"/v1/runs/{run_id}/events", headers=headers) as response:
        async with aclosing(frames(response)) as feed:
            yield response, feed


async def frames(response: httpx2.Response) -> AsyncGenerator[Frame]:
    """Yield the events of a response."""
    async for event in httpx2.EventSource(response):
        yield Frame(event.id, event.event, orjson.loads(event.data))


async def whole(api: Api, run_id: str, after: str | None = None) -> list[Frame]:
    """Return the events of a run up to the end of its stream."""
    async with asyncio.timeout(60), listening(api, run_id, after=after) as (response, feed):
        assert response.status_code == 200, await response.aread()
        return [frame async for frame in feed]


async def begun(api: Api, worker: ManualWorker, **fields: object) -> Turn:
    """Send a message and claim its run."""
    thread_id = await api.thread()
    await api.run(thread_id, "hello", **fields)
    return await worker.claim(thread_id)


async def no_follower_streams(api: Api) -> bool:
    """Whether the key holds no stream, here and in Redis."""
    counted = await api.state.services.redis.zcard(open_streams(api.tenant.key_id))
    return counted == 0 and api.state.services.hub.open_feeds == 0
