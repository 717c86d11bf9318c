"""A turn with a subagent: its live events, and its usage in the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from nova_workers.base.keys import run_events
from nova_workers.domain.streams.rules.wire import FIELD, decode
from nova_workers.engines.anthropic import AnthropicEngine
from tests.support.harness.workers import Harness, Worker
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server

Json = dict[str, Any]

USAGE = {"input_tokens": 100, "output_tokens": 10}
TASK = Stream((Part("text", ["I ask"]), Part("tool", ("toolu_1", "Task", {"agent": "scout", "prompt": "Find it"}))))
FOUND = Stream((Part("text", ["Found it"]),), usage=USAGE)
DONE = Stream((Part("text", ["Done"]),))
AGENT: Json = {
    "name": "Chief",
    "engine": "planned",
    "capabilities": {"memory": {}},
    "subagents": {"scout": {"description": "Finds.", "prompt": "You find."}},
}


@pytest.fixture
async def server(harness: Harness) -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0)
        harness.engines["planned"] = engine
        yield server
        await engine.close()


async def _run(harness: Harness, worker: Worker, **spec: Any) -> str:
    await harness.add_agent("chief", {**AGENT, **spec})
    accepted = await harness.submit("hi", thread_id=await harness.thread("chief"))
    await harness.settle(worker)
    return accepted.run_id


async def _events(harness: Harness, run_id: str) -> list[Json]:
    entries = cast("list[tuple[bytes, dict[bytes, bytes]]]", await harness.redis.xrange(run_events(run_id)))
    return [live.event for _, entry in entries for live in decode(entry[FIELD])]


async def test_a_subagents_events_have_its_name(harness: Harness, server: ModelServer) -> None:
    server.reply(TASK, DONE)
    server.reply_to("Find it", Stream((Part("tool", ("toolu_n", "memory_list", {})),), usage=USAGE), FOUND)
    run_id = await _run(harness, harness.worker())
    assert await harness.status(run_id) == "succeeded"
    events = await _events(harness, run_id)
    seen = [(event["type"], event.get("agent")) for event in events if event["type"] in ("token", "tool_status")]
    assert seen == [
        ("token", None),
        ("tool_status", None),
        ("tool_status", "scout"),
        ("tool_status", "scout"),
        ("token", "scout"),
        ("tool_status", None),
        ("token", None),
    ]
    assert "agent" not in events[-1]
    assert events[-1]["text"] == "Done"


async def test_a_subagents_usage_is_counted_once(harness: Harness, server: ModelServer) -> None:
    server.reply(TASK, DONE)
    server.reply_to("Find it", FOUND)
    run_id = await _run(harness, harness.worker())
    row = await harness.database.fetchrow(
        "SELECT input_tokens, output_tokens FROM usage WHERE run_id = :run_id", run_id=run_id
    )
    assert row is not None
    assert tuple(row) == (10 + 100 + 10, 5 + 10 + 5)


async def test_a_subagents_usage_is_counted_when_the_turn_ends_with_that_step(
    harness: Harness, server: ModelServer
) -> None:
    server.reply(TASK, DONE)
    server.reply_to("Find it", FOUND)
    run_id = await _run(harness, harness.worker(), token_budget=50)
    run = await harness.database.fetchrow("SELECT status, stop_reason FROM runs WHERE id = :run_id", run_id=run_id)
    assert run is not None
    assert tuple(run) == ("succeeded", "max_tokens")
    row = await harness.database.fetchrow(
        "SELECT input_tokens, output_tokens, cost_usd > 0 FROM usage WHERE run_id = :run_id", run_id=run_id
    )
    assert row is not None
    assert tuple(row) == (10 + 100, 5 + 10, True)
    assert len(server.requests) == 2
