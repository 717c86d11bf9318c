"""What beat rings: no tick expires by anybody's clock, and none pile up."""

from __future__ import annotations

import asyncio

import orjson
from redis.asyncio import Redis

from beat.schedule import beat_schedule
from beat.scheduler import TickScheduler
from nova_workers.base.config import Settings
from nova_workers.base.keys import broker_queue
from nova_workers.broker.celery_app import build_celery
from nova_workers.broker.task_names import TASK_FIRE_TRIGGERS
from tests.requirements import proves


@proves("triggers.clock", "beat.safe-to-double")
async def test_ticks_do_not_expire_and_are_left_out_while_many_wait(settings: Settings, redis: Redis) -> None:
    queue = broker_queue("system")
    celery = build_celery(settings.require_redis_url(), fail_fast=True)
    celery.conf.beat_schedule = beat_schedule(settings)
    scheduler = TickScheduler(celery)
    entry = scheduler.get_schedule()["fire_triggers"]
    try:
        for _ in range(60):
            await asyncio.to_thread(scheduler.apply_entry, entry)
        headers = [orjson.loads(each)["headers"] for each in await redis.lrange(queue, 0, -1)]
        assert len(headers) == 50
        assert {(each["task"], each["expires"]) for each in headers} == {(TASK_FIRE_TRIGGERS, None)}
        await redis.delete(queue)
        await asyncio.to_thread(scheduler.apply_entry, entry)
        assert await redis.llen(queue) == 1
    finally:
        await asyncio.to_thread(celery.close)
