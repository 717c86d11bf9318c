"""What the ledger stores at the end of a turn besides text: the answer as a value, and the bound that ended it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from nova_workers.contracts.events import EventCursor, StreamEnd
from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.domain.runs.sql.replay import load_recorded_run
from nova_workers.domain.streams.rules.replay import replay
from nova_workers.engines.anthropic import AnthropicEngine
from tests.requirements import proves
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server

USAGE = {"input_tokens": 900, "output_tokens": 100}
CALLS = Stream((Part("text", ["On"]), Part("tool", ("toolu_1", "memory_list", {}))), usage=USAGE)

CUT = Stream((Part("text", ['{"city": "U']),), stop_reason="max_tokens", usage=USAGE)


@pytest.fixture
async def server(harness: Harness) -> AsyncIterator[ModelServer]:
    """A model server, behind the real engine of all workers."""
    async with model_server() as server:
        engine = AnthropicEngine(api_key="the-key", base_url=server.url, max_retries=0)
        harness.engines["anthropic"] = engine
        yield server
        await engine.close()


async def _run(harness: Harness, **spec: Any) -> RunView:
    await harness.add_agent("teller", {"name": "Teller", "engine": "anthropic", **spec})
    run = await harness.submit("hi", agent_id="teller")
    await harness.settle(harness.worker())
    async with harness.database.connection() as connection:
        return await get_run(connection, harness.tenant_id, run.run_id)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "object"}, '{"city": "Ulm", "degrees": [7, null, 2.5]}', {"city": "Ulm", "degrees": [7, None, 2.5]}),
        ({"type": "array"}, '["a", "b"]', ["a", "b"]),
        ({"type": "string"}, '"Ulm"', "Ulm"),
        ({"type": "integer"}, "0", 0),
        ({"type": "boolean"}, "false", False),
        ({"type": "object"}, '{"nul\\u0000": "a\\u0000b"}', {"nul\ufffd": "a\ufffdb"}),
        ({"type": ["null", "string"]}, "null", None),
    ],
    ids=["object", "list", "text", "zero", "false", "what-no-database-takes", "null"],
)
@proves("engine.output")
async def test_the_answer_of_an_agent_with_an_output_schema_is_kept_as_a_value(
    harness: Harness, server: ModelServer, schema: dict[str, Any], text: str, value: Any
):
    server.reply(Stream((Part("text", [text]),)))
    run = await _run(harness, output_schema=schema)
    assert (run.status, run.stop_reason, run.limit_reached) == ("succeeded", "end_turn", None)
    assert run.output == value
    assert run.text == text


async def test_an_agent_without_an_output_schema_has_no_value(harness: Harness, server: ModelServer):
    server.reply(Stream((Part("text", ['{"city": "Ulm"}']),)))
    run = await _run(harness)
    assert (run.status, run.text, run.output) == ("succeeded", '{"city": "Ulm"}', None)


async def test_an_answer_that_never_matches_its_schema_leaves_no_value(harness: Harness, server: ModelServer):
    server.reply(Stream((Part("text", ["7"]),)))
    run = await _run(harness, output_schema={"type": "string"})
    assert (run.status, run.output) == ("failed", None)


@pytest.mark.parametrize(
    ("bound", "reply", "kind", "named"),
    [
        ({"max_tokens": 20}, CUT, "model_error", "max_tokens"),
        ({"max_turns": 1}, CALLS, "model_error", "max_turns"),
        ({"token_budget": 500}, CALLS, "budget_exceeded", "token_budget"),
        ({"cost_budget_usd": 0.000001}, CALLS, "budget_exceeded", "cost_budget_usd"),
        # The answer that is sent back reaches the limit as well.
        ({"max_turns": 1}, Stream((Part("text", ["no JSON"]),)), "model_error", "max_turns"),
        ({}, Stream((Part("text", ["7"]),), stop_reason="refusal"), "model_error", "refused"),
    ],
    ids=["cut", "turns", "tokens", "cost", "sent back", "refusal"],
)
@proves("engine.output")
async def test_without_an_answer_that_matches_its_schema_a_run_fails(
    harness: Harness, server: ModelServer, bound: dict[str, Any], reply: Stream, kind: str, named: str
):
    server.reply(reply)
    spec = {"capabilities": {"memory": {}}, "model": "claude-sonnet-5-5", "output_schema": {"type": "object"}}
    run = await _run(harness, **spec, **bound)
    assert (run.status, run.output) == ("failed", None)
    assert run.error is not None
    assert (run.error.kind, named in run.error.message) == (kind, True)


@pytest.mark.parametrize(
    ("bound", "limit", "reason"),
    [
        ({"max_turns": 1}, "turns", "tool_use"),
        ({"token_budget": 500}, "tokens", "max_tokens"),
        ({"cost_budget_usd": 0.000001}, "cost", "max_tokens"),
    ],
    ids=["turns", "tokens", "cost"],
)
@proves("engine.limits")
async def test_a_run_names_the_bound_that_ended_it_live_and_in_a_replay(
    harness: Harness, server: ModelServer, bound: dict[str, Any], limit: str, reason: str
):
    server.reply(CALLS)
    run = await _run(harness, capabilities={"memory": {}}, model="claude-sonnet-5-5", **bound)
    assert (run.status, run.stop_reason, run.limit_reached) == ("succeeded", reason, limit)
    async with harness.database.connection() as connection:
        recorded = await load_recorded_run(connection, harness.tenant_id, run.id)
    assert recorded is not None
    ends = [event for _, event in replay(recorded, EventCursor()) if isinstance(event, StreamEnd)]
    assert [end.limit for end in ends] == [limit]
