"""Several keys: one that is refused or over its limit rests, for all workers, and the next is used."""

import asyncio
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from nova_workers.base import keys
from nova_workers.contracts.abort import AbortSignal
from tests.integration.engines.resilience.conftest import HASTY
from tests.integration.engines.resilience.stage import (
    FINE,
    LIMITED,
    OVERLOADED,
    REFUSED,
    CountingMetrics,
    FakeClock,
    MakeEngine,
    error_of,
    key,
    keys_used,
    turn,
)
from tests.support.servers.model_server import ModelServer, Part, Status, Stream
from tests.support.waiting import until

FORBIDDEN = Status(403, "permission_error", "not for you")
MODEL = "claude-sonnet-5-5"


@pytest.mark.parametrize("spent", [REFUSED, FORBIDDEN, LIMITED, Status(402, "billing_error", "no credit")])
async def test_the_next_key_is_used_in_the_same_step(
    server: ModelServer, make: MakeEngine, counts: CountingMetrics, spent: Status
) -> None:
    server.reply_when(key("a"), spent)
    server.reply(FINE)
    engine = make("a", "b")
    result = await turn(engine)
    assert (result.text, result.usage.turns, keys_used(server)) == ("Well done", 1, ["a", "b"])
    assert (await turn(engine)).text == "Well done"
    assert keys_used(server) == ["a", "b", "b"]
    assert counts.cooldowns == [("a", "rate_limit" if spent is LIMITED else "auth")]


async def test_a_spent_key_rests_for_all_workers(server: ModelServer, make: MakeEngine, redis: Redis) -> None:
    server.reply_when(key("a"), LIMITED)
    server.reply(FINE)
    await turn(make("a", "b", redis=redis))
    await turn(make("a", "b", redis=redis))
    assert keys_used(server) == ["a", "b", "b"]


async def test_a_rest_ends_and_its_key_is_preferred_again(
    server: ModelServer, make: MakeEngine, clock: FakeClock
) -> None:
    server.reply_when(key("a"), LIMITED, FINE)
    server.reply(FINE)
    engine = make("a", "b", clock=clock)
    await turn(engine)
    clock.now_s += 31
    await turn(engine)
    assert keys_used(server) == ["a", "b", "a"]


async def test_a_key_over_its_limit_for_one_model_is_used_for_another(
    server: ModelServer, make: MakeEngine, redis: Redis
) -> None:
    server.reply(LIMITED, FINE)
    engine = make("a", redis=redis)
    result = await turn(engine, fallback_models=("claude-haiku-4-5",))
    assert (result.text, result.model) == ("Well done", "claude-haiku-4-5")


async def test_a_limit_in_mid_stream_switches_to_the_next_key(server: ModelServer, make: MakeEngine) -> None:
    event = Part("event", ("error", {"error": {"type": "rate_limit_error", "message": "slow down"}}))
    server.reply_when(key("a"), Stream((event,)))
    server.reply(FINE)
    assert (await turn(make("a", "b"))).text == "Well done"


async def test_if_all_keys_are_refused_the_error_names_them(server: ModelServer, make: MakeEngine) -> None:
    server.reply(REFUSED)
    engine = make("first", "second")
    error = error_of(await turn(engine))
    assert (error.kind, error.retryable, len(server.requests)) == ("auth_failure", False, 2)
    assert "'first'" in error.message
    assert "'second'" in error.message
    assert "invalid x-api-key" in error.message
    assert "key-" not in error.message.replace("x-api-key", "")
    again = error_of(await turn(engine))
    assert (again.kind, len(server.requests)) == ("auth_failure", 2)


async def test_if_all_keys_are_over_their_limit_the_error_is_a_rate_limit(
    server: ModelServer, make: MakeEngine
) -> None:
    server.reply(Status(429, "rate_limit_error", "slow down", headers={"retry-after": "3600"}))
    error = error_of(await turn(make("a", "b")))
    assert (error.kind, error.retryable) == ("rate_limit", True)
    assert "'a' (over its rate limit, rests 300 s)" in error.message


async def test_a_refused_and_a_limited_key_are_a_retryable_auth_failure(server: ModelServer, make: MakeEngine) -> None:
    server.reply_when(key("a"), REFUSED)
    server.reply(Status(429, "rate_limit_error", "slow down", headers={"retry-after": "3600"}))
    error = error_of(await turn(make("a", "b")))
    assert (error.kind, error.retryable) == ("auth_failure", True)


async def test_a_short_rest_of_the_only_key_is_waited_for(
    server: ModelServer, make: MakeEngine, counts: CountingMetrics
) -> None:
    server.reply(Status(429, "rate_limit_error", "slow", headers={"retry-after-ms": "50"}), FINE)
    assert (await turn(make())).text == "Well done"
    assert counts.retries == [(MODEL, "rate_limit")]


async def test_an_endless_rate_limit_ends_the_turn(server: ModelServer, make: MakeEngine) -> None:
    server.reply(Status(429, "rate_limit_error", "slow", headers={"retry-after": "0"}))
    error = error_of(await turn(make("a", "b")))
    assert (error.kind, error.retryable) == ("rate_limit", True)
    assert len(server.requests) <= 2 + HASTY.max_retries


async def test_an_abort_ends_the_wait_for_a_key(server: ModelServer, make: MakeEngine, counts: CountingMetrics) -> None:
    server.reply(LIMITED)
    abort = AbortSignal()
    running = asyncio.create_task(turn(make(), abort=abort))
    await until(lambda: counts.cooldowns)
    abort.abort("cancel")
    assert (await asyncio.wait_for(running, 60)).stop_reason == "aborted"


async def test_without_redis_a_process_keeps_its_own_rests(server: ModelServer, make: MakeEngine) -> None:
    server.reply_when(key("a"), LIMITED)
    server.reply(FINE)
    away = Redis.from_url("unix:///nowhere/valkey.sock")
    engine = make("a", "b", redis=away)
    assert (await turn(engine)).text == "Well done"
    assert (await turn(engine)).text == "Well done"
    assert keys_used(server) == ["a", "b", "b"]
    await away.aclose()


async def test_a_hanging_redis_delays_turns_only_briefly(server: ModelServer, make: MakeEngine) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    hole = await asyncio.start_server(swallow, "127.0.0.1", 0)
    away = Redis(port=hole.sockets[0].getsockname()[1])
    server.reply(FINE)
    engine = make(redis=away, policy=replace(HASTY, redis_timeout_s=0.05, redis_away_s=60.0))
    async with asyncio.timeout(60):
        for _ in range(5):
            assert (await turn(engine)).text == "Well done"
    await away.aclose()
    hole.close()


async def test_all_health_keys_have_a_ttl(server: ModelServer, make: MakeEngine, redis: Redis) -> None:
    server.reply(LIMITED, REFUSED, OVERLOADED, OVERLOADED, FINE)
    await turn(make("a", "b", "c", redis=redis))
    left = [name async for name in redis.scan_iter("nova:*")]
    assert {keys.profile_cooldown("anthropic", "a", "00", MODEL).encode()} <= set(left)
    assert all([await redis.pttl(name) > 0 for name in left])
    assert not any(b"key-" in name for name in left)
