"""A model that fails two conversations in a row is not called for a while, by the whole fleet; then one call probes."""

import asyncio
from dataclasses import replace

from redis.asyncio import Redis

from nova_workers.base import keys
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.engine import EngineCallbacks, EngineResult
from nova_workers.engines.anthropic import AnthropicEngine
from tests.integration.engines.resilience.conftest import HASTY
from tests.integration.engines.resilience.stage import (
    BROKEN,
    FINE,
    REFUSED,
    CountingMetrics,
    MakeEngine,
    error_of,
    key,
    keys_used,
    models_asked,
    turn,
)
from tests.requirements import proves
from tests.support.servers.model_server import Asks, ModelServer, Part, Stream
from tests.support.waiting import until

FALLS_AT_ONCE = replace(HASTY, max_retries=0, patience_s=0.0, breaker_open_s=60.0, breaker_open_cap_s=60.0)


BAD: Asks = lambda _, body: "poison" in str(body["messages"])  # noqa: E731 - a value of this type


@proves("engine.innocent")
async def test_a_conversation_that_always_fails_stops_no_other(
    server: ModelServer, make: MakeEngine, redis: Redis, counts: CountingMetrics
) -> None:
    server.reply_when(BAD, BROKEN)
    server.reply(FINE)
    policy = replace(HASTY, breaker_open_s=60.0, breaker_open_cap_s=60.0, patience_s=0.5)
    workers = [make(redis=redis, policy=policy) for _ in range(2)]
    for _ in range(3):
        # Each message of the thread is refused, through all of its retries, by both workers.
        errors = [error_of(await turn(engine, "poison", conversation="thr_bad")) for engine in workers]
        assert ["broken" in error.message for error in errors] == [True, True]
    assert len(server.requests) == 6 * 6
    assert [(await turn(engine)).text for engine in workers] == ["Well done"] * 2
    assert ("claude-sonnet-5-5", True) not in counts.breaker


async def test_two_bad_conversations_stop_the_others_once_and_briefly(
    server: ModelServer, make: MakeEngine, redis: Redis, counts: CountingMetrics
) -> None:
    server.reply_when(BAD, BROKEN)
    server.reply(FINE)
    engine = make(redis=redis, policy=replace(HASTY, max_retries=1))
    for name in ("thr_bad", "thr_worse"):
        error_of(await turn(engine, "poison", conversation=name))
    assert counts.breaker[-1] == ("claude-sonnet-5-5", True)
    assert (await turn(engine)).text == "Well done"
    counts.breaker.clear()
    for name in ("thr_bad", "thr_worse") * 3:
        error_of(await turn(engine, "poison", conversation=name))
    assert {is_open for _, is_open in counts.breaker} == {False}


async def test_a_request_that_its_retry_answers_is_not_counted(
    server: ModelServer, make: MakeEngine, redis: Redis, counts: CountingMetrics
) -> None:
    engine = make(redis=redis)
    server.reply(*(BROKEN, FINE) * 5)
    assert [(await turn(engine)).text for _ in range(5)] == ["Well done"] * 5
    assert ("claude-sonnet-5-5", True) not in counts.breaker


async def test_failures_of_two_conversations_stop_all_workers(
    server: ModelServer, make: MakeEngine, redis: Redis, counts: CountingMetrics
) -> None:
    server.reply(BROKEN)
    first, second = (make(redis=redis, policy=FALLS_AT_ONCE) for _ in range(2))
    for engine in (first, second):
        error_of(await turn(engine))
    assert len(server.requests) == 2
    for engine in (first, second, make(redis=redis, policy=FALLS_AT_ONCE)):
        error = error_of(await turn(engine))
        assert (error.kind, error.retryable) == ("model_error", True)
        assert "several conversations in a row" in error.message
    assert len(server.requests) == 2
    assert counts.breaker[-1] == ("claude-sonnet-5-5", True)


async def test_a_success_between_failures_resets_the_count(server: ModelServer, make: MakeEngine, redis: Redis) -> None:
    engine = make(redis=redis, policy=FALLS_AT_ONCE)
    server.reply(BROKEN, FINE, BROKEN, FINE, FINE)
    for _ in range(2):
        error_of(await turn(engine))
        assert (await turn(engine)).text == "Well done"
    assert len(server.requests) == 4


async def test_another_model_is_not_affected(server: ModelServer, make: MakeEngine, redis: Redis) -> None:
    server.reply(BROKEN, BROKEN, FINE)
    engine = make(redis=redis, policy=FALLS_AT_ONCE)
    for _ in range(2):
        error_of(await turn(engine))
    assert (await turn(engine, model="claude-haiku-4-5")).text == "Well done"


async def test_a_turn_waits_for_the_breaker_and_continues(
    server: ModelServer, make: MakeEngine, redis: Redis, counts: CountingMetrics
) -> None:
    opener = make(redis=redis, policy=replace(HASTY, max_retries=0))
    server.reply(BROKEN, BROKEN, FINE)
    for _ in range(2):
        error_of(await turn(opener))
    result = await turn(make(redis=redis))
    assert (result.text, len(server.requests)) == ("Well done", 3)
    assert counts.breaker[-1] == ("claude-sonnet-5-5", False)


async def test_one_of_all_waiting_calls_probes(
    server: ModelServer, make: MakeEngine, redis: Redis, counts: CountingMetrics
) -> None:
    opener = make(redis=redis, policy=FALLS_AT_ONCE)
    server.reply(BROKEN)
    for _ in range(2):
        error_of(await turn(opener))
    await _end_open_time(redis)
    counts.breaker.clear()
    begins = asyncio.Event()
    server.reply(replace(FINE, begins=begins))
    engines = [make(redis=redis, policy=replace(HASTY, breaker_open_s=60.0, breaker_open_cap_s=60.0)) for _ in range(3)]
    turns = [asyncio.create_task(turn(engine)) for engine in engines for _ in range(3)]
    # One is admitted, and each of the others is refused at least once.
    await until(lambda: len(server.requests) == 3 and len(counts.breaker) >= 8)
    assert len(server.requests) == 3
    begins.set()
    results = await asyncio.gather(*turns)
    assert [result.text for result in results] == ["Well done"] * 9


async def test_a_probe_that_begins_to_answer_admits_the_others(
    server: ModelServer, make: MakeEngine, redis: Redis
) -> None:
    engine = await _half_open(server, make, redis)
    done = asyncio.Event()
    server.reply(Stream((Part("text", ["Well"]), Part("wait", done))), FINE)
    probing = asyncio.create_task(turn(engine))
    await until(lambda: len(server.requests) == 3)
    # It waits for the probe for 0.6 s, and the probe ends when this is over.
    assert (await turn(engine)).text == "Well done"
    done.set()
    assert (await probing).text == "Well"


async def test_failures_while_others_begin_to_answer_are_not_consecutive(
    server: ModelServer, make: MakeEngine, redis: Redis
) -> None:
    engine, done = make(redis=redis, policy=FALLS_AT_ONCE), asyncio.Event()
    server.reply_when(lambda _, body: "broken" in str(body["messages"]), BROKEN)
    shown: list[str] = []
    answers: list[asyncio.Task[EngineResult]] = []
    for at in range(4):
        # Each was asked for before the failure that it begins after, and none ends before all failures are over.
        begins = asyncio.Event()
        server.reply(Stream((Part("text", [f"{at}"]), Part("wait", done)), begins=begins))
        answers.append(asyncio.create_task(turn(engine, callbacks=EngineCallbacks(on_token=shown.append))))
        await until(lambda at=at: len(server.requests) == 2 * at + 1)
        error_of(await turn(engine, "broken"))
        begins.set()
        await until(lambda at=at: f"{at}" in shown)
    assert len(server.requests) == 8
    done.set()
    assert [(await answer).text for answer in answers] == ["0", "1", "2", "3"]


async def test_interrupted_responses_are_retried_and_do_not_open_the_breaker(
    server: ModelServer, make: MakeEngine, counts: CountingMetrics
) -> None:
    server.reply(*[Stream((Part("text", ["So"]), Part("cut")))] * 4, FINE)
    callbacks = EngineCallbacks(on_token=lambda _: None, on_restart=lambda: None)
    result = await turn(make(policy=replace(HASTY, breaker_open_s=60.0)), callbacks=callbacks)
    assert (result.text, len(server.requests)) == ("Well done", 5)
    assert ("claude-sonnet-5-5", True) not in counts.breaker


async def test_a_probe_that_fails_opens_it_again(server: ModelServer, make: MakeEngine, redis: Redis) -> None:
    engine = make(redis=redis, policy=FALLS_AT_ONCE)
    server.reply(BROKEN)
    for _ in range(2):
        error_of(await turn(engine))
    await _end_open_time(redis)
    error_of(await turn(engine))
    assert len(server.requests) == 3
    error_of(await turn(engine))
    assert len(server.requests) == 3


async def test_an_abort_ends_the_wait_for_a_breaker(
    server: ModelServer, make: MakeEngine, counts: CountingMetrics
) -> None:
    engine = make(policy=replace(HASTY, max_retries=0, breaker_open_s=20.0, breaker_open_cap_s=20.0))
    server.reply(BROKEN)
    for _ in range(2):
        error_of(await turn(engine))
    counts.breaker.clear()
    abort = AbortSignal()
    running = asyncio.create_task(turn(engine, abort=abort))
    await until(lambda: counts.breaker)
    abort.abort("cancel")
    result = await asyncio.wait_for(running, 60)
    assert (result.stop_reason, len(server.requests)) == ("aborted", 2)


async def test_without_redis_each_worker_has_a_breaker_of_its_own(server: ModelServer, make: MakeEngine) -> None:
    server.reply(BROKEN)
    away = Redis.from_url("unix:///nowhere/valkey.sock")
    first, second = (make(redis=away, policy=FALLS_AT_ONCE) for _ in range(2))
    for _ in range(4):
        error_of(await turn(first))
    assert len(server.requests) == 2
    error_of(await turn(second))
    assert len(server.requests) == 3
    await away.aclose()


async def test_an_open_breaker_sends_a_turn_to_the_next_model(
    server: ModelServer, make: MakeEngine, redis: Redis
) -> None:
    opener = make(redis=redis, policy=FALLS_AT_ONCE)
    server.reply(BROKEN)
    for _ in range(2):
        error_of(await turn(opener))
    server.reply(FINE)
    result = await turn(make(redis=redis, policy=FALLS_AT_ONCE), fallback_models=("claude-haiku-4-5",))
    assert (result.text, models_asked(server)[2:]) == ("Well done", ["claude-haiku-4-5"])


async def _half_open(server: ModelServer, make: MakeEngine, redis: Redis) -> AnthropicEngine:
    """Return an engine with a breaker that admits one call now, and the next in a minute."""
    opener = make(redis=redis, policy=FALLS_AT_ONCE)
    server.reply(BROKEN)
    for _ in range(2):
        error_of(await turn(opener))
    await _end_open_time(redis)
    return make(redis=redis, policy=replace(FALLS_AT_ONCE, patience_s=0.6))


async def _end_open_time(redis: Redis) -> None:
    """End the breaker's open time: a test cannot move the clock of Redis."""
    breaker = keys.model_breaker("anthropic", "claude-sonnet-5-5")
    await redis.hset(breaker, mapping={"open_until": "0", "retry_until": "0"})


@proves("engine.probe")
async def test_an_aborted_probe_lets_the_next_call_probe_at_once(
    server: ModelServer, make: MakeEngine, redis: Redis
) -> None:
    engine = await _half_open(server, make, redis)
    server.reply(Stream((Part("text", ["Well"]), Part("stall"))), FINE)
    abort = AbortSignal()
    probing = asyncio.create_task(turn(engine, abort=abort))
    await until(lambda: len(server.requests) == 3)
    abort.abort("cancel")
    assert (await asyncio.wait_for(probing, 60)).stop_reason == "aborted"
    result = await asyncio.wait_for(turn(engine), 60)
    assert (result.text, len(server.requests)) == ("Well done", 4)


async def test_a_probe_whose_key_is_refused_is_repeated_with_the_next_key(
    server: ModelServer, make: MakeEngine, redis: Redis
) -> None:
    await _half_open(server, make, redis)
    engine = make("main", "spare", redis=redis, policy=replace(FALLS_AT_ONCE, patience_s=0.2))
    server.reply_when(key("main"), REFUSED)
    server.reply(FINE)
    result = await asyncio.wait_for(turn(engine), 60)
    assert (result.text, keys_used(server)[2:]) == ("Well done", ["main", "spare"])
