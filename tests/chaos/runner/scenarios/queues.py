"""What comes over the broker is doubled, shuffled, stale or broken."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.keys import BROKER_KEY_PREFIX, CONTROL_CHANNEL, run_channel
from nova_workers.base.vocabulary import QUEUES
from nova_workers.broker.celery_app import build_celery
from nova_workers.broker.task_names import TASK_RUN_AGENT
from tests.chaos.runner.scenarios.registry import PATIENCE_S, Stage, scenario

GARBAGE = (
    b"",
    b"[]",
    b"null",
    b"7",
    b'"text"',
    b"{",
    b"\xff\xfe\x00",
    b"{}",
    b'{"body": null}',
    b'{"body": "!!", "headers": {}, "properties": {}}',
    json.dumps({"body": "W10=", "headers": {"task": "nova.no_such_task", "id": "x"}, "properties": {}}).encode(),
    b"\x00" * 4096,
)
_RECENT = """
SELECT id, thread_id, queue FROM runs
 WHERE status IN ('queued', 'running', 'waiting') OR finished_at > now() - interval '10 s'
"""


@scenario("queues", proves=("I1", "I2", "I6"))
async def repeat_doorbells(stage: Stage) -> None:
    """Every doorbell of recent runs and effects three times, in random order, also for runs that have ended."""
    celery = build_celery(stage.fleet.servers.redis_url, fail_fast=True)
    try:
        for _ in range(stage.rng.randint(3, 10)):
            bells = [row for row in await stage.fleet.sql(_RECENT) for _ in range(3)]
            stage.rng.shuffle(bells)
            for row in bells:
                kwargs = {"run_id": row["id"], "thread_id": row["thread_id"]}
                await asyncio.to_thread(
                    celery.send_task, TASK_RUN_AGENT, kwargs=kwargs, queue=row["queue"], ignore_result=True
                )
            await asyncio.sleep(stage.rng.uniform(0.1, 0.5))
    finally:
        await asyncio.to_thread(celery.close)


@scenario("queues", proves=("I4", "I9"))
async def garbage_in_queues(stage: Stage) -> None:
    """Messages that no producer of ours sends, in every queue and channel."""
    runs = [row["id"] for row in await stage.fleet.sql(_RECENT)]
    channels = [CONTROL_CHANNEL, *(run_channel(run) for run in runs)]
    async with asyncio.timeout(PATIENCE_S), Redis.from_url(stage.fleet.servers.redis_url) as redis:
        for garbage in stage.rng.sample(GARBAGE, k=stage.rng.randint(3, len(GARBAGE))):
            # At once: a round trip for each of a hundred runs takes a busy machine longer than the fault may last.
            sent = redis.pipeline(transaction=False)
            for queue in QUEUES:
                sent.lpush(f"{BROKER_KEY_PREFIX}{queue}", garbage)
            for channel in channels:
                sent.publish(channel, garbage)
            # Another fault may stop the server, or its writes, meanwhile.
            with suppress(RedisError):
                await sent.execute()
            await asyncio.sleep(stage.rng.uniform(0.05, 0.5))


@scenario("queues", proves=("I4",))
async def lose_doorbells(stage: Stage) -> None:
    """Queues are emptied again and again, so that the reconciler has to ring."""
    async with asyncio.timeout(PATIENCE_S), Redis.from_url(stage.fleet.servers.redis_url) as redis:
        for _ in range(stage.rng.randint(20, 60)):
            with suppress(RedisError):
                await redis.delete(*(f"{BROKER_KEY_PREFIX}{queue}" for queue in QUEUES))
            await asyncio.sleep(0.05)
