"""Celery's consumer as a worker process runs it, on a real broker."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import orjson
import pytest
from celery import Celery
from celery.worker import WorkController, state
from celery.worker.request import Request
from kombu.asynchronous import set_event_loop
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from nova_workers.base.keys import broker_queue
from nova_workers.broker.celery_app import build_celery
from nova_workers.worker.consumer import CONSUMER, broker_awaited
from nova_workers.worker.loop import LoopThread
from nova_workers.worker.pool import delivered_on, loop_pool
from tests.support.harness.logs import recorded_logs
from tests.support.servers.databases import replica_of_nothing
from tests.support.waiting import stays, until

pytestmark = pytest.mark.filterwarnings("ignore::celery.exceptions.CPendingDeprecationWarning")


@asynccontextmanager
async def _consumer(
    redis_url: str, *, celery: Celery | None = None, slots: int = 1, takes_work: Callable[[], bool] = lambda: True
) -> AsyncGenerator[Any]:
    """Run a worker on a thread, without tasks unless an app is given, and give its consumer once it is connected."""
    celery = celery or build_celery(redis_url, fail_fast=False)
    celery.conf.worker_consumer = CONSUMER
    loop = LoopThread()
    loop.start()
    controller: Any = WorkController(
        app=celery, pool=loop_pool(loop, takes_work=takes_work), concurrency=slots, hostname="worker@test"
    )
    thread = threading.Thread(target=controller.start)
    thread.start()
    try:
        await until(lambda: controller.consumer.heart)
        yield controller.consumer
    finally:
        state.should_stop = 0
        await asyncio.to_thread(thread.join)
        state.should_stop = None
        loop.stop(5)
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
        # Before the event is sent: the server may take it first, since it comes by another connection.
        assert (await _next(channels))["type"] == "psubscribe"
        consumer.event_dispatcher.send("task-afterwards")
        assert b"task.multi" in cast(bytes, (await _next(channels))["channel"])


async def test_tasks_run_as_coroutines_with_as_many_at_once_as_there_are_slots(redis_url: str) -> None:
    celery = build_celery(redis_url, fail_fast=False)
    running: list[str] = []
    most: list[int] = []
    ended: list[str] = []
    three = asyncio.Barrier(3)

    @celery.task(name="test.turn", shared=False)
    async def turn(key: str) -> None:
        running.append(key)
        most.append(len(running))
        await three.wait()
        running.remove(key)
        ended.append(f"{key} of {delivered_on.get()}")

    for number in range(300):
        celery.send_task("test.turn", kwargs={"key": str(number)}, queue="background")
    async with _consumer(redis_url, celery=celery, slots=3):
        # A hundred rounds. A worker whose hub is not woken looks for free slots with its next timer, up to 1 s later.
        await until(lambda: len(ended) == 300, timeout_s=30)
    assert max(most) == 3
    assert set(ended[:3]) == {f"{key} of background" for key in range(3)}


async def test_messages_that_wait_are_fetched_together_and_no_more_than_there_are_free_slots(
    redis_url: str, redis: Redis
) -> None:
    celery = build_celery(redis_url, fail_fast=False)
    began: list[str] = []
    is_released = False

    @celery.task(name="test.turn", shared=False)
    async def turn(key: str) -> None:
        began.append(key)
        await until(lambda: is_released)

    for number in range(60):
        if number == 3:
            # As another client of the broker may leave it, between two messages of one pop.
            await redis.lpush(broker_queue("background"), b"garbage")
        celery.send_task("test.turn", kwargs={"key": str(number)}, queue="background")
    await redis.config_resetstat()
    async with _consumer(redis_url, celery=celery, slots=20):
        await until(lambda: len(began) == 20)
        waiting = await redis.llen(broker_queue("background"))
        pops = (await redis.info("commandstats"))["cmdstat_blmpop"]["calls"]
        is_released = True
        await until(lambda: len(began) == 60)
    assert began == [str(number) for number in range(60)]
    assert waiting == 40
    # Eight at most, of which one is garbage; then of the 13 free slots; then of the last 5.
    assert pops == 3


async def test_a_worker_that_cannot_work_leaves_its_messages_to_others(redis_url: str, redis: Redis) -> None:
    celery = build_celery(redis_url, fail_fast=False)
    began: list[str] = []
    takes_work = False

    @celery.task(name="test.turn", shared=False)
    async def turn(key: str) -> None:
        began.append(key)

    async with _consumer(redis_url, celery=celery, takes_work=lambda: takes_work):
        celery.send_task("test.turn", kwargs={"key": "first"}, queue="background")
        await stays(lambda: not began, for_s=1.2)
        assert await redis.llen(broker_queue("background")) == 1
        takes_work = True
        await until(lambda: began == ["first"])


async def test_a_task_that_fails_ends_alone_and_is_logged_and_shown(redis_url: str, redis: Redis) -> None:
    celery = build_celery(redis_url, fail_fast=False)
    ended: list[str] = []

    @celery.task(name="test.turn", shared=False)
    async def turn(key: str) -> None:
        if key == "bad":
            raise LookupError("no such key")
        ended.append(key)

    with recorded_logs() as log:
        async with _consumer(redis_url, celery=celery), redis.pubsub() as channels:
            await channels.psubscribe("*celeryev/task.*")
            assert (await _next(channels))["type"] == "psubscribe"
            for key in ("bad", "good"):
                celery.send_task("test.turn", kwargs={"key": key}, queue="background")
            await until(lambda: ended == ["good"])
            events = cast(bytes, (await _next(channels))["data"])
            shown = base64.b64decode(orjson.loads(events)["body"])
    assert b"task-failed" in shown
    assert b"LookupError('no such key')" in shown
    assert b"task-succeeded" in shown
    line = next(line for line in map(orjson.loads, log.getvalue().splitlines()) if line["event"] == "task.failed")
    assert (line["task"], line["key"]) == ("test.turn", "bad")


async def test_a_task_whose_end_cannot_be_reported_gives_its_slot_back(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while Celery connects to its broker anew."""
    celery = build_celery(redis_url, fail_fast=False)
    ended: list[str] = []

    @celery.task(name="test.turn", shared=False)
    async def turn(key: str) -> None:
        ended.append(key)

    def refuse(_: Request, event: str, **__: object) -> None:
        if event == "task-succeeded":
            raise AttributeError("there is no event dispatcher")

    with recorded_logs() as log:
        async with _consumer(redis_url, celery=celery):
            with monkeypatch.context() as patch:
                patch.setattr(Request, "send_event", refuse)
                celery.send_task("test.turn", kwargs={"key": "one"}, queue="background")
                await until(lambda: "task.not_reported" in log.getvalue())
            celery.send_task("test.turn", kwargs={"key": "two"}, queue="background")
            await until(lambda: ended == ["one", "two"])


async def test_a_worker_stops_after_its_tasks_have_ended(redis_url: str) -> None:
    celery = build_celery(redis_url, fail_fast=False)
    began = threading.Event()
    ended: list[str] = []

    @celery.task(name="test.turn", shared=False)
    async def turn(key: str) -> None:
        began.set()
        await until(lambda: state.should_stop is not None)
        ended.append(key)

    celery.send_task("test.turn", kwargs={"key": "one"}, queue="background")
    async with _consumer(redis_url, celery=celery):
        await until(began.is_set)
        assert not ended
    assert ended == ["one"]


async def _next(channels: PubSub) -> Mapping[str, object]:
    message = await channels.get_message(timeout=10)
    assert message, "nothing arrived"
    return message
