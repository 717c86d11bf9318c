"""The ticks of beat, as they arrive at a worker."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from redis.asyncio import Redis

from beat.schedule import beat_schedule
from beat.scheduler import TickScheduler
from nova_workers.base.config import Settings
from nova_workers.base.keys import broker_queue
from nova_workers.broker.celery_app import build_celery
from nova_workers.broker.messages import DoorbellHeaders, unreadable
from tests.support.harness.logs import recorded_logs
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import until


async def test_each_tick_of_beat_is_a_message_that_workers_execute(redis: Redis, redis_url: str):
    celery = build_celery(redis_url, fail_fast=True)
    celery.conf.beat_schedule = beat_schedule(Settings.model_validate({"redis_url": redis_url}))
    scheduler: Any = TickScheduler(app=celery, lazy=True)
    scheduler.setup_schedule()
    for entry in scheduler.schedule.values():
        scheduler.apply_entry(entry)
    ticks = cast(list[bytes], await redis.lrange(broker_queue("system"), 0, -1))
    assert len(ticks) == len(scheduler.schedule)
    for tick in ticks:
        assert unreadable(tick) is None
        DoorbellHeaders.model_validate(json.loads(tick)["headers"])
    celery.close()


async def test_ticks_that_the_broker_does_not_take_are_one_line_of_the_log(redis_url: str):
    async with FaultProxy.to_redis(redis_url) as link:
        celery = build_celery(link.url, fail_fast=True)
        celery.conf.beat_schedule = beat_schedule(Settings.model_validate({"redis_url": redis_url}))
        scheduler: Any = TickScheduler(app=celery, lazy=True)
        scheduler.setup_schedule()
        entry = scheduler.schedule["reconcile"]
        with recorded_logs("beat") as log:
            link.refuses = True
            for _ in range(3):
                await asyncio.to_thread(scheduler.apply_entry, entry)
            link.heal()
            await asyncio.to_thread(scheduler.apply_entry, entry)
        events = [json.loads(line)["event"] for line in log.getvalue().splitlines()]
        assert [event for event in events if event.startswith(("tick", "broker"))] == [
            "tick.not_sent",
            "broker.is_back",
        ]
        celery.close()


async def test_beat_waits_for_its_broker_and_is_connected_seconds_after_it_is_back(redis_url: str):
    async with FaultProxy.to_redis(redis_url) as link:
        link.refuses = True
        scheduler: Any = TickScheduler(app=build_celery(link.url, fail_fast=True), lazy=True)
        connecting = asyncio.create_task(asyncio.to_thread(scheduler._ensure_connected))
        await until(lambda: link.accepted > 3)
        link.heal()
        async with asyncio.timeout(60):
            await connecting
        scheduler.connection.release()
