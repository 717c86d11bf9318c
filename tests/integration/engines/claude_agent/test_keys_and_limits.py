"""Keys, cool-downs, fallbacks and rate limits: the program shares them with all engines of the provider."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from nova_workers.contracts.engine import EngineResult
from nova_workers.engines.anthropic import AnthropicEngine, Profile
from nova_workers.engines.claude_agent import ClaudeAgentEngine
from nova_workers.engines.resilience import Policy, RateLimit, RateLimiter, Resilience, SharedHealth
from tests.contract.engines.stage import Bench, assert_valid
from tests.integration.engines.claude_agent.claude_turns import (
    MODEL,
    conversation_of,
    options,
    text_response,
    tool_response,
)
from tests.integration.engines.claude_agent.conftest import MakeEngine
from tests.requirements import proves
from tests.support.servers.model_server import Asks, ModelServer, Status

SPARE = "claude-haiku-4-5"
REFUSED = Status(401, "authentication_error", "invalid x-api-key")
LIMITED = Status(429, "rate_limit_error", "slow down")
PROFILES = (Profile("main", "key-main"), Profile("spare", "key-spare"))


def _key_of(headers: Mapping[str, str]) -> str:
    return (headers.get("x-api-key") or headers.get("authorization", "")).removeprefix("Bearer ")


def _with_key(key: str) -> Asks:
    return lambda headers, _: _key_of(headers) == key


def _keys_used(server: ModelServer) -> list[str]:
    return [_key_of(headers).removeprefix("key-") for headers in server.headers]


def _shared(limiter: RateLimiter | None = None, **policy: Any) -> Resilience:
    numbers = replace(Policy(max_retries=1, backoff_s=0.01, rate_cooldown_s=600.0, auth_cooldown_s=300.0), **policy)
    return Resilience(numbers, SharedHealth(None, numbers, time.monotonic), limiter or RateLimiter({}))


async def _turn(engine: ClaudeAgentEngine, **given: Any) -> EngineResult:
    return await asyncio.wait_for(engine.run("hi", options(**given), "sandbox"), 60)


@pytest.mark.parametrize(
    "trouble",
    [pytest.param(REFUSED, id="refused"), pytest.param(LIMITED, id="limited", marks=pytest.mark.long)],
)
@proves("engine.keys")
async def test_a_failing_key_is_replaced_by_the_next_and_rests_for_all_engines(
    make_engine: MakeEngine, server: ModelServer, trouble: Status
) -> None:
    server.reply_when(_with_key("key-main"), trouble)
    server.reply(text_response("Well done"))
    shared = _shared()
    engine = make_engine(profiles=PROFILES, resilience=shared)
    assert (await _turn(engine)).text == "Well done"
    assert (await _turn(engine)).text == "Well done"
    assert _keys_used(server) == ["main", "spare", "spare"]
    other = AnthropicEngine(profiles=PROFILES, base_url=server.url, resilience=shared)
    assert (await other.run("hi", options(), "sandbox")).text == "Well done"
    await other.close()
    assert _keys_used(server)[-1] == "spare"


async def test_a_key_that_fails_in_mid_turn_loses_no_text(make_engine: MakeEngine, server: ModelServer) -> None:
    server.reply_when(_with_key("key-main"), tool_response(("mcp__nova__count", {})), LIMITED)
    server.reply(text_response("Counted."))
    bench = Bench()
    result = await _turn(make_engine(profiles=PROFILES, resilience=_shared()), mcp_servers=bench.servers())
    assert (result.error, result.text, bench.runs) == (None, "Counted.", ["count"])
    assert _keys_used(server) == ["main", "main", "spare"]
    assert conversation_of(server, -1)[: len(conversation_of(server, -2))] == conversation_of(server, -2)
    assert_valid(result.messages)
    assert result.usage.turns == 2


@pytest.mark.long  # the keys are of the shared turn; the kind is in test_turns.py
async def test_if_every_key_is_refused_the_turn_fails_as_an_auth_failure(
    make_engine: MakeEngine, server: ModelServer
) -> None:
    server.reply(REFUSED)
    engine = make_engine(profiles=PROFILES, resilience=_shared())
    for asked in (2, 2):
        result = await _turn(engine)
        assert result.error is not None
        assert (result.error.kind, result.error.retryable) == ("auth_failure", False)
        assert "'main'" in result.error.message
        assert len(server.requests) == asked


@pytest.mark.long  # the next model is of the shared turn, as the next key
async def test_an_unavailable_model_is_replaced_by_the_next(make_engine: MakeEngine, server: ModelServer) -> None:
    server.reply_when(lambda _, body: body["model"] == MODEL, Status(404, "not_found_error", f"model: {MODEL}"))
    server.reply(text_response("Well done"))
    result = await _turn(make_engine(profiles=PROFILES, resilience=_shared()), fallback_models=(SPARE,))
    assert (result.error, result.text, result.model) == (None, "Well done", SPARE)
    assert {body["model"] for body in server.requests} == {MODEL, SPARE}


async def test_an_open_breaker_keeps_the_program_from_calling_the_model(
    make_engine: MakeEngine, server: ModelServer
) -> None:
    shared = _shared(max_retries=0, patience_s=0.0)
    server.reply(Status(529, "overloaded_error", "Overloaded"))
    engine = make_engine(profiles=PROFILES, resilience=shared)
    for _ in range(3):
        await _turn(engine)
    asked = len(server.requests)
    result = await _turn(engine)
    assert result.error is not None
    assert (result.error.kind, len(server.requests)) == ("model_error", asked)
    assert "several conversations in a row" in result.error.message


async def test_each_answer_of_the_program_is_counted_against_the_rate_limit(
    make_engine: MakeEngine, server: ModelServer
) -> None:
    server.reply(tool_response(("mcp__nova__count", {})), text_response("Counted."))
    limiter = RateLimiter({MODEL: RateLimit(requests=1)}, window_s=3)
    engine = make_engine(resilience=_shared(limiter))
    began_s = time.monotonic()
    result = await _turn(engine, mcp_servers=Bench().servers())
    assert (result.error, result.text) == (None, "Counted.")
    assert time.monotonic() - began_s >= 3.0
