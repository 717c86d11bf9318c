"""The dispatcher on a real broker: many doorbells at once, and stopping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.broker.celery_app import build_celery
from nova_workers.broker.dispatcher import CeleryDispatcher
from nova_workers.config import Settings, WorkerSettings
from nova_workers.contracts.runs import Doorbell
from nova_workers.keys import broker_queue
from nova_workers.observability.metrics import Metrics
from tests.requirements import proves
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import until

_MANY = 2_500
"""More than the threads that ring single doorbells can have waiting."""


@pytest.fixture
def registry() -> CollectorRegistry:
    """The metrics of the dispatcher."""
    return CollectorRegistry()


@pytest.fixture
async def dispatcher(settings: Settings, registry: CollectorRegistry) -> AsyncIterator[CeleryDispatcher]:
    celery = build_celery(settings.require_redis_url(), fail_fast=True)
    dispatcher = CeleryDispatcher(celery, Metrics(registry), threads=2)
    yield dispatcher
    await asyncio.to_thread(dispatcher.close)


async def test_thousands_of_doorbells_are_all_rung_and_delay_no_single_one(
    dispatcher: CeleryDispatcher, redis: Redis
) -> None:
    many, single = broker_queue("background"), broker_queue("interactive")
    dispatcher.ring_runs([Doorbell(f"run_{at}", f"thr_{at}", "background") for at in range(_MANY)])
    dispatcher.ring_runs([Doorbell("run_now", "thr_now", "interactive")])
    async with asyncio.timeout(60):
        while True:
            if await redis.llen(single):
                break
            await asyncio.sleep(0.002)
        assert await redis.llen(many) < _MANY // 2
        while True:
            if await redis.llen(many) == _MANY:
                break
            await asyncio.sleep(0.01)


@proves("submit.broker-down")
async def test_doorbells_that_a_broken_broker_did_not_take_are_sent_when_it_is_back(
    settings: Settings, redis: Redis
) -> None:
    async with FaultProxy.to_redis(settings.require_redis_url()) as link:
        celery = build_celery(link.url, fail_fast=True)
        dispatcher = CeleryDispatcher(celery, Metrics(CollectorRegistry()), threads=2)
        dispatcher.ring_runs([Doorbell("run_0", "thr_0", "interactive")])
        await until(lambda: redis.llen(broker_queue("interactive")))
        link.refuses = True
        link.reset()
        dispatcher.ring_runs([Doorbell(f"run_{at}", f"thr_{at}", "interactive") for at in range(1, 4)])
        await until(lambda: link.accepted > 2)
        link.heal()
        await until(lambda: _has(redis, 4))
        await asyncio.to_thread(dispatcher.close)


async def test_a_queue_that_refuses_doorbells_delays_those_of_no_other_queue(
    dispatcher: CeleryDispatcher, registry: CollectorRegistry, redis: Redis
) -> None:
    await redis.set(broker_queue("interactive.acme"), "not a list")
    dispatcher.ring_runs([Doorbell(f"run_{at}", f"thr_{at}", "interactive").in_pool("acme") for at in range(3)])
    lost = {"queue": "interactive.acme", "outcome": "lost"}
    await until(lambda: registry.get_sample_value("nova_doorbells_total", lost) == 3)
    dispatcher.ring_runs([Doorbell("run_3", "thr_3", "interactive")])
    await until(lambda: redis.llen(broker_queue("interactive")))


async def _has(redis: Redis, count: int) -> bool:
    return await redis.llen(broker_queue("interactive")) >= count


async def test_a_stop_does_not_wait_for_thousands_of_doorbells(settings: Settings, redis: Redis) -> None:
    celery = build_celery(settings.require_redis_url(), fail_fast=True)
    dispatcher = CeleryDispatcher(celery, Metrics(CollectorRegistry()), threads=2)
    dispatcher.ring_runs([Doorbell(f"run_{at}", f"thr_{at}", "background") for at in range(20_000)])
    dispatcher.ring_runs([Doorbell("run_now", "thr_now", "interactive")])
    async with asyncio.timeout(60):
        await asyncio.to_thread(dispatcher.close)
    assert await redis.llen(broker_queue("interactive")) == 1
    assert await redis.llen(broker_queue("background")) < 10_000


@proves("pools.own")
async def test_a_doorbell_of_a_pool_waits_on_the_queue_that_its_workers_consume(
    dispatcher: CeleryDispatcher, settings: Settings, redis: Redis
) -> None:
    dispatcher.ring_runs([Doorbell("run_1", "thr_1", "interactive").in_pool("acme")])
    await until(lambda: redis.llen(broker_queue("interactive.acme")))
    assert not await redis.llen(broker_queue("interactive"))
    worker = WorkerSettings(pool="acme")
    assert worker.consumed_queues() == ("interactive.acme", "background.acme")
    celery = build_celery(settings.require_redis_url(), fail_fast=False, consumed=worker.consumed_queues())
    celery.amqp.queues.select(worker.consumed_queues())
    with celery.connection() as connection:
        received: list[object] = []

        def take(body: object, _: object) -> None:
            received.append(body)

        with connection.Consumer(celery.amqp.queues["interactive.acme"], callbacks=[take]):
            await asyncio.to_thread(connection.drain_events, timeout=60)
    assert len(received) == 1
