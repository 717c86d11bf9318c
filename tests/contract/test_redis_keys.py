"""Redis has nothing that cannot be lost: every key has a TTL, except those of Celery's own transport."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import cast

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.vocabulary import QUEUES
from nova_workers.broker.dispatcher import BrokerDispatcher
from nova_workers.ledger.database import Database
from nova_workers.worker.presence import Presence
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness

_TRANSPORT = re.compile(rf"nova:(_kombu\..*|unacked.*|({'|'.join(QUEUES)})(:\d+)?|.*\.pidbox|celeryev.*)")


@pytest.fixture
async def harness(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Harness]:
    """A fleet on this test's loop."""
    harness = Harness(database, redis, settings)
    await harness.open()
    yield harness
    await harness.close()


async def _permanent(redis: Redis) -> set[str]:
    keys = cast(list[bytes], await redis.keys("*"))
    return {key.decode() for key in keys if await redis.ttl(key) == -1 and not _TRANSPORT.fullmatch(key.decode())}


@proves("redis.ttl")
async def test_after_a_busy_day_every_key_has_a_ttl(harness: Harness):
    worker, other = harness.worker(control=True), harness.worker()
    presence = Presence(
        harness.redis,
        SystemClock(),
        worker_id="wkr_1",
        queues=QUEUES,
        slots=1,
        sandbox=None,
        busy=lambda: 0,
        suspects=lambda: 0,
        draining=lambda: False,
        heartbeat_dir=None,
    )
    await presence.report()
    # Doorbells through the real broker, which leaves its own keys.
    dispatcher = BrokerDispatcher(harness.redis, Metrics(CollectorRegistry()))
    active, slot = await harness.begin(worker, plan(["wait:a"], ["b"]), "a")
    await harness.submit("also", active.thread_id, on_busy="steer")
    canceled = await harness.submit("never mind")
    await harness.canceller.cancel(harness.tenant_id, canceled.run_id)
    dispatcher.ring_runs(harness.bells.waiting)
    await asyncio.gather(*(other.answer(bell) for bell in harness.bells.take()))
    assert await harness.redis.keys("nova:lock:*")
    assert await harness.redis.keys("nova:busy:*")
    assert await _permanent(harness.redis) == set()
    harness.engine.open("a")
    await slot
    crashed, _ = await harness.begin(worker, plan(["wait:b"]), "b")
    await worker.crash()
    await dispatcher.close()
    await harness.recover()
    await harness.settle(other)
    await other.publisher.drain(5)
    assert await harness.status(crashed.run_id) == "succeeded"
    assert await harness.redis.keys("nova:run:*:events")
    assert await _permanent(harness.redis) == set()
    assert await harness.redis.exists("nova:interactive") or await harness.redis.exists("nova:interactive:5")


async def test_a_key_without_a_ttl_is_found(redis: Redis):
    await redis.set("nova:forgotten", "1")
    await redis.set("nova:kept", "1", ex=10)
    await redis.rpush("nova:interactive", "a doorbell")
    assert await _permanent(redis) == {"nova:forgotten"}
