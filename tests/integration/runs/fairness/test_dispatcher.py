"""The dispatcher on a real broker: many doorbells at once, a broker that is away, and stopping."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import cast

import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from nova_workers.base.config import Settings, WorkerSettings
from nova_workers.base.keys import broker_queue
from nova_workers.base.observability.metrics import Metrics
from nova_workers.broker.celery_app import build_celery
from nova_workers.broker.dispatcher import BrokerDispatcher
from nova_workers.broker.redis_connections import connect
from nova_workers.contracts.runs import Doorbell
from tests.requirements import proves
from tests.support.servers.databases import replica_of_nothing
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import until

_MANY = 10_000
"""As of a mass firing of triggers."""


@pytest.fixture
def registry() -> CollectorRegistry:
    """The metrics of the dispatcher."""
    return CollectorRegistry()


@pytest.fixture
async def dispatcher(settings: Settings, registry: CollectorRegistry) -> AsyncIterator[BrokerDispatcher]:
    client = connect(settings.require_redis_url())
    dispatcher = BrokerDispatcher(client, Metrics(registry))
    yield dispatcher
    await dispatcher.close()
    await client.aclose()


@pytest.fixture
async def link(settings: Settings) -> AsyncIterator[FaultProxy]:
    """The way of `far` to the broker."""
    async with FaultProxy.to_redis(settings.require_redis_url()) as link:
        yield link


@pytest.fixture
async def far(link: FaultProxy, registry: CollectorRegistry) -> AsyncIterator[BrokerDispatcher]:
    """A dispatcher whose connection to the broker can be broken."""
    client = connect(link.url)
    dispatcher = BrokerDispatcher(client, Metrics(registry))
    yield dispatcher
    await dispatcher.close()
    await client.aclose()


def _bells(count: int, queue: str = "interactive", *, first: int = 0) -> list[Doorbell]:
    return [Doorbell(f"run_{at}", f"thr_{at}", queue) for at in range(first, first + count)]


def _counted(registry: CollectorRegistry, outcome: str, queue: str = "interactive") -> float:
    return registry.get_sample_value("nova_doorbells_total", {"queue": queue, "outcome": outcome}) or 0.0


async def _pushes(redis: Redis, kind: str = "calls") -> int:
    stats = cast(dict[str, dict[str, int]], await redis.info("commandstats"))
    return stats.get("cmdstat_lpush", {}).get(kind, 0)


async def _was_refused(redis: Redis, times: int) -> bool:
    return await _pushes(redis, "rejected_calls") >= times


async def _has(redis: Redis, count: int, queue: str = "interactive") -> bool:
    return await redis.llen(broker_queue(queue)) >= count


async def test_thousands_of_doorbells_are_all_rung_and_delay_no_single_one(
    dispatcher: BrokerDispatcher, redis: Redis, registry: CollectorRegistry
) -> None:
    many, single = broker_queue("background"), broker_queue("interactive")
    dispatcher.ring_runs(_bells(_MANY, "background"))
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
    assert _counted(registry, "rung", "background") == _MANY


async def test_doorbells_of_one_moment_leave_with_one_command_in_their_order(
    dispatcher: BrokerDispatcher, redis: Redis
) -> None:
    await redis.config_resetstat()
    for bell in _bells(32):
        dispatcher.ring_runs([bell])
    await until(lambda: _has(redis, 32))
    assert await _pushes(redis) == 1
    # A worker takes from the right.
    waiting = cast(list[bytes], await redis.lrange(broker_queue("interactive"), 0, -1))
    texts = [json.loads(raw)["headers"]["kwargsrepr"] for raw in reversed(waiting)]
    assert texts == [f"{{'run_id': 'run_{at}', 'thread_id': 'thr_{at}'}}" for at in range(32)]


async def test_doorbells_that_are_rung_while_others_are_on_their_way_leave_together(
    far: BrokerDispatcher, link: FaultProxy, redis: Redis, registry: CollectorRegistry
) -> None:
    far.ring_runs(_bells(1))
    await until(lambda: _counted(registry, "rung") == 1)
    await redis.config_resetstat()
    link.blocks_answers = True
    far.ring_runs(_bells(1, first=1))
    await until(lambda: _has(redis, 2))
    for bell in _bells(20, first=2):
        far.ring_runs([bell])
    link.heal()
    await until(lambda: _counted(registry, "rung") == 22)
    assert await _pushes(redis) == 2


async def test_doorbells_for_effects_and_for_deliveries_are_merged(dispatcher: BrokerDispatcher, redis: Redis) -> None:
    for _ in range(5):
        dispatcher.ring_effects()
        dispatcher.ring_deliveries()
    await until(lambda: _has(redis, 2, "effects"))
    await dispatcher.close()
    waiting = cast(list[bytes], await redis.lrange(broker_queue("effects"), 0, -1))
    assert sorted(json.loads(raw)["headers"]["task"] for raw in waiting) == ["nova.deliver", "nova.run_effects"]


@proves("submit.broker-down")
async def test_doorbells_that_a_broken_broker_did_not_take_are_sent_when_it_is_back(
    far: BrokerDispatcher, link: FaultProxy, redis: Redis
) -> None:
    far.ring_runs(_bells(1))
    await until(lambda: _has(redis, 1))
    link.refuses = True
    link.reset()
    far.ring_runs(_bells(3, first=1))
    await until(lambda: link.accepted > 2)
    link.heal()
    await until(lambda: _has(redis, 4))


async def test_a_broker_that_does_not_answer_holds_up_no_caller_and_has_the_doorbells_later(
    far: BrokerDispatcher, link: FaultProxy, redis: Redis, registry: CollectorRegistry
) -> None:
    far.ring_runs(_bells(1))
    await until(lambda: _counted(registry, "rung") == 1)
    link.forget()
    far.ring_runs(_bells(1, first=1))
    await asyncio.sleep(0)
    for bell in _bells(2_010, first=2):
        far.ring_runs([bell])
    # One is on its way.
    assert _counted(registry, "lost") == 10
    await until(lambda: _counted(registry, "rung") == 2_002)
    assert await redis.llen(broker_queue("interactive")) == 2_002


async def test_doorbells_for_a_server_that_became_a_replica_are_sent_when_it_takes_writes(
    dispatcher: BrokerDispatcher, registry: CollectorRegistry, redis: Redis
) -> None:
    await redis.config_resetstat()
    async with replica_of_nothing(redis):
        dispatcher.ring_runs(_bells(3))
        # The client makes three attempts of each.
        await until(lambda: _was_refused(redis, 4))
        assert not _counted(registry, "lost")
    await until(lambda: _has(redis, 3))


async def test_a_doorbell_whose_answer_was_lost_arrives_once_or_twice(
    far: BrokerDispatcher, link: FaultProxy, redis: Redis, registry: CollectorRegistry
) -> None:
    link.loses_answer_to = b"LPUSH"
    far.ring_runs(_bells(1))
    await until(lambda: _counted(registry, "rung") == 1)
    assert link.loses_answer_to is None
    assert await redis.llen(broker_queue("interactive")) == 2


async def test_a_queue_that_refuses_doorbells_delays_those_of_no_other_queue(
    dispatcher: BrokerDispatcher, registry: CollectorRegistry, redis: Redis
) -> None:
    await redis.set(broker_queue("interactive.acme"), "not a list")
    await redis.config_resetstat()
    dispatcher.ring_runs([bell.in_pool("acme") for bell in _bells(3)])
    dispatcher.ring_runs(_bells(1))
    await until(lambda: _counted(registry, "lost", "interactive.acme") == 3)
    dispatcher.ring_runs(_bells(1, first=1))
    await until(lambda: _has(redis, 2))
    assert not _counted(registry, "lost")
    assert await _pushes(redis, "failed_calls") == 1


async def test_a_stop_does_not_wait_for_thousands_of_doorbells(
    dispatcher: BrokerDispatcher, registry: CollectorRegistry, redis: Redis
) -> None:
    dispatcher.ring_runs(_bells(20_000, "background"))
    dispatcher.ring_runs([Doorbell("run_now", "thr_now", "interactive")])
    dispatcher.ring_effects()
    async with asyncio.timeout(60):
        await dispatcher.close()
    assert await redis.llen(broker_queue("interactive")) == 1
    assert await redis.llen(broker_queue("effects")) == 1
    taken = await redis.llen(broker_queue("background"))
    assert taken < 10_000
    assert _counted(registry, "lost", "background") == 20_000 - taken


async def test_a_stop_waits_seconds_for_a_broker_that_is_away_and_counts_what_is_lost(
    far: BrokerDispatcher, link: FaultProxy, registry: CollectorRegistry
) -> None:
    link.blocks_requests = True
    far.ring_runs(_bells(3))
    async with asyncio.timeout(10):
        await far.close()
    assert _counted(registry, "lost") == 3
    far.ring_runs(_bells(1))
    assert _counted(registry, "lost") == 4


@proves("pools.own")
async def test_a_doorbell_of_a_pool_waits_on_the_queue_that_its_workers_consume(
    dispatcher: BrokerDispatcher, settings: Settings, redis: Redis
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
