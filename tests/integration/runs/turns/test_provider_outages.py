"""A real engine before a provider that refuses: its runs say so at once, wait in order, and succeed afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nova_workers.engines.anthropic import AnthropicEngine
from tests.integration.runs.turns.test_live_events import events_of
from tests.requirements import proves
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Status, Stream, model_server

REFUSALS = {
    "key_refused": Status(401, "authentication_error", "invalid x-api-key"),
    "quota": Status(402, "billing_error", "no credit"),
    "rate_limit": Status(429, "rate_limit_error", "slow down", headers={"retry-after": "11"}),
    "model_missing": Status(404, "not_found_error", "no such model"),
}


@pytest.fixture
async def server(harness: Harness) -> AsyncIterator[ModelServer]:
    """The provider, behind the real engine."""
    async with model_server() as server:
        harness.engines["anthropic"] = engine = AnthropicEngine(api_key="k", base_url=server.url)
        await harness.add_agent("real", {"name": "Real", "engine": "anthropic"})
        yield server
        await engine.close()


@pytest.mark.parametrize("reason", REFUSALS)
@proves("runs.holds")
async def test_runs_wait_in_order_for_a_provider_that_refuses(
    harness: Harness, server: ModelServer, reason: str
) -> None:
    server.reply(REFUSALS[reason])
    worker = harness.worker()
    first = await harness.submit("one", agent_id="real")
    second = await harness.submit("two", first.thread_id)
    # No refusal costs a reader more than two seconds of silence.
    async with asyncio.timeout(20):
        await harness.settle(worker)
    held = await harness.run(first.run_id)
    assert (held["hold"], held["hold_detail"]["outage"], held["losses"]) == ("provider", reason, 0)
    waits_s = (held["held_until"] - held["held_since"]).total_seconds()
    assert (9 < waits_s <= 11) if reason == "rate_limit" else 0 < waits_s <= 6
    assert (await harness.run(second.run_id))["attempt"] == 0
    (told,) = [event for event in await events_of(harness, first.run_id) if event["type"] == "provider_unavailable"]
    assert (told["reason"], told["provider"], told["held"]) == (reason, "anthropic", True)
    assert told["next_try_at"]
    assert len(server.requests) == 1

    # As if the pause had passed, also that of the key.
    await harness.redis.flushdb()
    fresh = AnthropicEngine(api_key="k", base_url=server.url)
    harness.engines["anthropic"] = fresh
    server.reply(Stream((Part("text", ["Well done"]),)))
    again = harness.worker()
    await harness.database.execute("UPDATE runs SET held_until = now() WHERE held_until > now()")
    await harness.reconciler.reconcile()
    await harness.settle(again)
    for run in (first, second):
        assert await harness.status(run.run_id) == "succeeded"
    assert [body["messages"][-1]["content"][-1]["text"] for body in server.requests[1:]] == ["one", "two"]
    await fresh.close()
