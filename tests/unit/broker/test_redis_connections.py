"""Clients of Redis on connections that break, and on servers that answer without serving."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

import pytest
import uvloop
from kombu.exceptions import OperationalError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from nova_workers.base.keys import broker_queue
from nova_workers.broker import redis_connections
from nova_workers.broker.celery_app import build_celery
from nova_workers.broker.redis_connections import ServerNotReady, connect
from tests.support.servers.databases import replica_of_nothing
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import until

Scenario = Callable[[FaultProxy, Redis], Awaitable[None]]


@pytest.fixture
def play(redis_url: str) -> Callable[[Scenario], None]:
    """Runs a scenario on the loop of our processes, with a proxy on TCP and a client through it."""

    async def play(scenario: Scenario) -> None:
        async with FaultProxy.to_redis(redis_url) as link:
            client = connect(link.url)
            await scenario(link, client)
            await client.aclose()

    return lambda scenario: uvloop.run(cast(Coroutine[Any, Any, None], play(scenario)))


async def _at_once(client: Redis, count: int) -> None:
    await asyncio.gather(*(client.set(f"nova:test:{at}", at, ex=60) for at in range(count)))


def test_commands_after_a_reset_are_repeated_on_new_connections(play: Callable[[Scenario], None]):
    async def scenario(link: FaultProxy, client: Redis) -> None:
        for _ in range(3):
            await _at_once(client, 4)
            link.reset()
            # The resets arrive while the connections are idle; a write to them raises RuntimeError on this loop.
            await until(lambda: not link.connections)
            await _at_once(client, 4)
            link.reset()
            await _at_once(client, 4)

    play(scenario)


async def test_more_commands_than_connections_wait_for_one_another(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(redis_connections, "_CONNECTIONS", 3)
    client = connect(redis_url)
    pool = cast(Any, client.connection_pool)
    try:
        for _ in range(3):
            async with asyncio.timeout(10):
                answers = await asyncio.gather(*(client.echo(f"message {number}") for number in range(200)))
            assert answers == [f"message {number}".encode() for number in range(200)]
            assert len(pool._available_connections) <= 3
            assert not pool._in_use_connections
    finally:
        await client.aclose()


async def test_commands_larger_than_the_buffer_of_a_socket_arrive_whole(redis_url: str, redis: Redis):
    client = connect(redis_url)
    texts = [bytes([65 + number]) * 6_000_000 for number in range(4)]
    try:
        await asyncio.gather(*(client.set(f"nova:test:{text[:1].decode()}", text, ex=60) for text in texts))
        pipeline = client.pipeline(transaction=False)
        for text in texts:
            pipeline.set("nova:test:last", text, ex=60)
        assert all(await pipeline.execute())
    finally:
        await client.aclose()
    assert [await redis.get(f"nova:test:{text[:1].decode()}") == text for text in texts] == [True] * 4
    assert await redis.get("nova:test:last") == texts[-1]


def test_of_forgotten_connections_only_the_first_costs_a_timeout(
    play: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(redis_connections, "_REPLY_S", 15.0)

    async def scenario(link: FaultProxy, client: Redis) -> None:
        await _at_once(client, 8)
        link.forget()
        began_s = time.monotonic()
        await _at_once(client, 1)
        await _at_once(client, 8)
        assert 14.5 < time.monotonic() - began_s < 29

    play(scenario)


async def test_a_server_that_became_a_replica_is_one_that_is_away(redis: Redis, redis_url: str):
    client = connect(redis_url)
    script = client.register_script("return redis.call('SET', KEYS[1], 1, 'EX', 60)")
    async with replica_of_nothing(redis):
        with pytest.raises(ServerNotReady):
            await client.set("nova:test", 1, ex=60)
        with pytest.raises(ServerNotReady):
            await script(keys=["nova:test"])
        pipeline = client.pipeline(transaction=False)
        pipeline.get("nova:test")
        pipeline.set("nova:test", 1, ex=60)
        with pytest.raises(ServerNotReady):
            await pipeline.execute(raise_on_error=False)
    assert await client.set("nova:test", 1, ex=60)
    await client.aclose()


async def test_a_full_memory_is_a_server_that_is_away(redis: Redis, redis_url: str):
    client = connect(redis_url)
    await redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(ServerNotReady):
            await client.set("nova:test", 1, ex=60)
    finally:
        await redis.config_set("maxmemory", 0)
    await client.aclose()


async def test_a_doorbell_for_a_server_that_became_a_replica_is_a_connection_error(redis: Redis, redis_url: str):
    celery = build_celery(redis_url, fail_fast=True)

    def ring() -> None:
        celery.send_task("nova.reconcile", queue="system", ignore_result=True)

    ring()
    async with replica_of_nothing(redis):
        with pytest.raises((OperationalError, RedisError)) as caught:
            await asyncio.to_thread(ring)
    assert "read only replica" in str(caught.value)
    ring()
    assert await redis.llen(broker_queue("system")) == 2
    celery.close()
