"""Requests of a thread begin with the same bytes, although each turn reads the conversation from the ledger."""

from __future__ import annotations

import json
from typing import Any

from nova_workers.contracts.content import storable_json, text_block
from nova_workers.contracts.runs import Submission
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import Part, Stream, model_server

GIVEN: dict[str, Any] = {
    "path": "a", "content": "b", "é": 1, "zz": 2, "k": {"longer": [{"y": 1, "x": 2.50, "": None}], "b": True},
}  # fmt: skip


@proves("engine.same-prefix")
async def test_keys_have_the_order_of_the_ledger(database: Database) -> None:
    stored = await database.fetchval("SELECT :given::jsonb", given=GIVEN)
    assert json.dumps(stored) == json.dumps(storable_json(GIVEN))


@proves("engine.same-prefix")
async def test_a_turn_begins_with_the_bytes_of_the_turn_before(harness: Harness) -> None:
    async with model_server() as server:
        engine = AnthropicEngine(api_key="k", base_url=server.url)
        harness.engines["anthropic"] = engine
        await harness.add_agent("caller", {"name": "Caller", "engine": "anthropic"})
        calls = (Part("tool", ("toolu_1", "look", GIVEN)), Part("tool", ("toolu_2", "look", {"b": 1, "a": 2})))
        server.reply(Stream((Part("text", ["Let me see."]), *calls)), Stream((Part("text", ["Done."]),)))
        worker = harness.worker()
        first = await harness.submitter.submit(Submission(harness.tenant_id, (text_block("look"),), agent_id="caller"))
        await harness.settle(worker)
        thread_id = (await harness.run(first.run_id))["thread_id"]
        await harness.submitter.submit(Submission(harness.tenant_id, (text_block("again"),), thread_id=thread_id))
        await harness.settle(worker)
        await engine.close()
    before, after = (_messages(request) for request in server.requests[1:3])
    assert len(before) == 3
    assert after[: len(before)] == before


def _messages(request: dict[str, Any]) -> list[str]:
    for message in request["messages"]:
        for block in message["content"]:
            block.pop("cache_control", None)
    return [json.dumps(message) for message in request["messages"]]
