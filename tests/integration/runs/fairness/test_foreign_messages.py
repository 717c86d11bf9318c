"""What the fleet did not send costs a worker a log line and a count, in a queue and in Celery's remote control."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.keys import BROKER_KEY_PREFIX, broker_queue
from nova_workers.contracts.http.wire import StatelessRunCreate
from tests.requirements import proves
from tests.support.data.foreign_messages import DOORBELLS, FANOUT
from tests.support.processes.fleet import Fleet, fleet_env, free_port
from tests.support.waiting import until

pytestmark = pytest.mark.fleet


@pytest.fixture
async def port(settings: Settings) -> int:
    """The port of the worker's metrics."""
    return free_port()


@pytest.fixture
async def fleet(settings: Settings, redis: Redis, port: int) -> AsyncIterator[Fleet]:
    """A fleet whose broker has garbage where kombu keeps unacknowledged messages."""
    await redis.zadd(f"{BROKER_KEY_PREFIX}unacked_index", {"tag-1": 1.0, "tag-2": 2.0})
    await redis.hset(f"{BROKER_KEY_PREFIX}unacked", mapping={"tag-1": "no JSON", "tag-2": "[1, 2]"})
    env = {**fleet_env(settings), "NOVA_WORKER__METRICS_PORT": str(port)}
    async with Fleet(env, workers=1) as fleet:
        yield fleet


@proves("input.foreign-messages", "security.doorbells")
async def test_a_worker_drops_and_counts_what_is_no_doorbell_and_no_inspection(
    fleet: Fleet, redis: Redis, port: int, settings: Settings
) -> None:
    (worker,) = fleet.workers

    async def dropped(source: str) -> int:
        assert not worker.has_ended, worker.tail()
        async with httpx2.AsyncClient(timeout=60) as http:
            lines = (await http.get(f"http://127.0.0.1:{port}/metrics")).text.splitlines()
        counts = [line for line in lines if line.startswith("nova_foreign_messages_total{") and f'"{source}"' in line]
        return int(sum(float(line.rsplit(" ", 1)[1]) for line in counts))

    async def says(text: str) -> str:
        run = await fleet.client.runs.wait(StatelessRunCreate(message=text), timeout_s=60)
        return str(run.text)

    await redis.lpush(broker_queue("interactive"), *DOORBELLS.values())
    assert "first" in await says("first")
    assert await dropped("queue") == len(DOORBELLS)

    database = parse_qs(urlsplit(settings.require_redis_url()).query)["db"][0]
    for raw in FANOUT.values():
        assert await redis.publish(f"{BROKER_KEY_PREFIX}/{database}.celery.pidbox", raw) == 1

    async def all_dropped() -> bool:
        return await dropped("remote_control") == len(FANOUT)

    await until(all_dropped)
    # A queue's key that is no list.
    await redis.set(broker_queue("effects"), "x", ex=60)
    await until(lambda: "wrong kind of value" in worker.tail())
    await redis.delete(broker_queue("effects"))
    assert "second" in await says("second")
    view = await fleet.worker_ready(worker)
    assert (view.slots, set(view.queues)) == (8, {"interactive", "background", "effects", "system"})
