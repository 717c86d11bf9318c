"""Celery's consumer as a worker process runs it, on a real broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from celery.worker import WorkController, state
from kombu.asynchronous import set_event_loop
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from nova_workers.broker.celery_app import build_celery
from nova_workers.worker.consumer import CONSUMER, broker_awaited
from tests.support.servers.databases import replica_of_nothing
from tests.support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::celery.exceptions.CPendingDeprecationWarning")


@asynccontextmanager
async def _consumer(redis_url: str) -> AsyncGenerator[Any]:
    """Run a worker without tasks of ours on a thread, and give its consumer once it is connected."""
    celery = build_celery(redis_url, fail_fast=False)
    celery.conf.worker_consumer = CONSUMER
    controller: Any = WorkController(app=celery, pool="threads", concurrency=1, hostname="worker@test")
    thread = threading.Thread(target=controller.start)
    thread.start()
    try:
        await until(lambda: controller.consumer.heart)
        yield controller.consumer
    finally:
        state.should_stop = 0
        await asyncio.to_thread(thread.join)
        state.should_stop = None
        set_event_loop(None)
        celery.close()


async def test_a_worker_that_starts_asks_the_other_workers_nothing(redis_url: str, redis: Redis) -> None:
    async with redis.pubsub() as channels:
        await channels.psubscribe("*celery.pidbox*")
        async with _consumer(redis_url):
            await redis.publish("last celery.pidbox", "")
        assert (await _next(channels))["type"] == "psubscribe"
        assert (await _next(channels))["channel"] == b"last celery.pidbox"


async def test_a_worker_shows_that_it_waits_for_a_broker_that_connects_and_refuses_writes(
    redis_url: str, redis: Redis
) -> None:
    shown = 0

    def show(**_: object) -> None:
        nonlocal shown
        shown += 1

    async with _consumer(redis_url) as consumer:
        broker_awaited.connect(show)
        async with replica_of_nothing(redis):
            await until(lambda: consumer.restart_count > 2)
            assert shown
        await until(lambda: consumer.heart)


async def test_events_are_sent_within_seconds_after_attempts_to_connect_that_failed(
    redis_url: str, redis: Redis
) -> None:
    async with _consumer(redis_url) as consumer, redis.pubsub() as channels:

        def send(**_: object) -> None:
            # As a task does that ends meanwhile. There is none for a moment of each attempt.
            if consumer.event_dispatcher:
                consumer.event_dispatcher.send("task-meanwhile")

        async with replica_of_nothing(redis):
            broker_awaited.connect(send)
            await until(lambda: consumer.restart_count > 2)
            broker_awaited.disconnect(send)
        await until(lambda: consumer.heart)
        await channels.psubscribe("*celeryev/task.*")
        consumer.event_dispatcher.send("task-afterwards")
        assert (await _next(channels))["type"] == "psubscribe"
        assert b"task.multi" in cast(bytes, (await _next(channels))["channel"])


async def _next(channels: PubSub) -> Mapping[str, object]:
    message = await channels.get_message(timeout=10)
    assert message, "nothing arrived"
    return message
