"""What a model was asked is rebuilt from the ledger, equal to the request, with its parts stored once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from nova_workers.base.errors import NotFound
from nova_workers.base.observability.redactor import Redactor
from nova_workers.contracts.engine import EngineCallbacks
from nova_workers.contracts.http.overview.requests import ModelRequestView
from nova_workers.contracts.steps import ModelRequest
from nova_workers.domain.overview.sql.timeline import load_timeline
from nova_workers.domain.runs.rules.turns.asked import load_request
from nova_workers.domain.runs.rules.turns.redaction import RedactedListener
from nova_workers.domain.runs.rules.turns.requests import MAX_SECTION_CHARS, MAX_TOOLS_BYTES, parts_of
from nova_workers.domain.runs.sql.requests import delete_unused
from nova_workers.engines.anthropic import AnthropicEngine
from tests.requirements import proves
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Status, Stream, model_server

Json = dict[str, Any]

AGED = "UPDATE request_parts SET used_at = now() - interval '3 hours'"
PARTS = "SELECT kind, count(*)::int AS number FROM request_parts GROUP BY kind ORDER BY kind"


@pytest.fixture
async def server(harness: Harness) -> AsyncIterator[ModelServer]:
    """The model, behind the real engine of the agent `keeper`."""
    async with model_server() as server:
        engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0)
        harness.engines["anthropic"] = engine
        spec = {
            "name": "Keeper",
            "engine": "anthropic",
            "identity": "You keep things.",
            "instructions": "Write <b>all</b> down.",
            "capabilities": {"memory": {"tools": ["memory_save"]}},
        }
        await harness.add_agent("keeper", spec)
        yield server
        await engine.close()


async def _request(harness: Harness, run_id: str, step: int) -> ModelRequestView:
    async with harness.database.connection() as connection:
        return await load_request(connection, harness.tenant_id, run_id, step)


def _plain(content: Any) -> Any:
    """Return content of a request without the marks of the provider's cache, which are not the conversation's."""
    return [{name: value for name, value in block.items() if name != "cache_control"} for block in content]


async def _parts(harness: Harness) -> dict[str, int]:
    return {row["kind"]: row["number"] for row in await harness.database.fetch(PARTS)}


@proves("runs.asked")
async def test_what_a_model_was_asked_is_rebuilt_from_the_ledger(harness: Harness, server: ModelServer) -> None:
    server.reply(
        Stream((Part("text", ["Saving."]), Part("tool", ("call_1", "memory_save", {"content": "Tea is at four."})))),
        Stream((Part("text", ["Saved."]),)),
        Stream((Part("text", ["At four."]),)),
    )
    worker = harness.worker()
    first = await harness.submit("Keep: tea is at four", agent_id="keeper")
    await harness.settle(worker)
    second = await harness.submit("When is tea?", (await harness.run(first.run_id))["thread_id"])
    await harness.settle(worker)
    calls = [(first.run_id, 0), (first.run_id, 1), (second.run_id, 0)]
    assert len(server.requests) == len(calls)
    for (run_id, step), sent in zip(calls, server.requests, strict=True):
        asked = await _request(harness, run_id, step)
        assert asked.wire == "recorded"
        assert [_plain(message.content) for message in reversed(asked.messages)] == [
            _plain(message["content"]) for message in sent["messages"]
        ]
        system = "\n\n".join(f"<{section.tag}>\n{section.text}\n</{section.tag}>" for section in asked.system)
        assert system == "".join(block["text"] for block in sent["system"])
        assert [tool.name for tool in asked.tools] == [tool["name"] for tool in sent["tools"]]
        assert asked.tools[0].input_schema == sent["tools"][0]["input_schema"]
        assert asked.parameters["max_tokens"] == sent["max_tokens"]
        assert asked.requested_at is not None
        assert asked.first_token_ms is not None
    asked = await _request(harness, second.run_id, 0)
    assert [section.tag for section in asked.system][:2] == ["Identity", "Instructions"]
    assert [message.content[0]["text"] for message in asked.response] == ["At four."]
    async with harness.database.connection() as connection:
        timeline = await load_timeline(connection, harness.tenant_id, first.run_id, after_step=None, limit=5)
    assert all(step.first_token_ms is not None for step in timeline.steps)
    assert (await _request(harness, first.run_id, 0)).response[1].content[0]["tool_use_id"] == "call_1"
    # The three calls have one form, one list of tools, and each section once.
    assert await _parts(harness) == {"form": 1, "section": len(asked.system), "tools": 1}
    with pytest.raises(NotFound):
        await _request(harness, second.run_id, 1)


@proves("runs.asked")
async def test_a_call_that_failed_is_shown_as_it_was_asked(harness: Harness, server: ModelServer) -> None:
    server.reply(Status(400, "invalid_request_error", "no such model"))
    run = await harness.submit("Hello?", agent_id="keeper")
    await harness.settle(harness.worker())
    assert await harness.status(run.run_id) == "failed"
    asked = await _request(harness, run.run_id, 0)
    assert (asked.wire, asked.response, asked.first_token_ms) == ("recorded", [], None)
    assert asked.messages[0].content[-1]["text"] == "Hello?"


@proves("runs.asked")
async def test_an_engine_that_makes_no_requests_gives_no_wire(harness: Harness) -> None:
    run = await harness.submit(plan())
    await harness.settle(harness.worker())
    asked = await _request(harness, run.run_id, 0)
    assert (asked.wire, asked.system, asked.tools, asked.parameters) == ("not_given", [], [], {})
    assert asked.message_count == 1
    await harness.database.execute("DELETE FROM model_calls")
    assert (await _request(harness, run.run_id, 0)).wire == "not_recorded"


@proves("runs.asked")
async def test_parts_are_deleted_once_no_model_call_names_them(harness: Harness) -> None:
    run = await harness.submit("hello", agent_id="scripted")
    await harness.settle(harness.worker())
    database = harness.database
    kept = await _parts(harness)
    assert set(kept) == {"form", "section"}

    async def sweep() -> None:
        async with database.connection() as connection:
            after = None
            while (swept := await delete_unused(connection, after, limit=1)).after is not None:
                after = swept.after

    await database.execute(AGED)
    await sweep()
    assert await _parts(harness) == kept
    # What retention deletes of a thread, its turns, takes the calls with it.
    await database.execute("DELETE FROM turns WHERE run_id = :run_id", run_id=run.run_id)
    await database.execute("UPDATE request_parts SET used_at = now()")
    await sweep()
    assert await _parts(harness) == kept, "a worker may remember them"
    await database.execute(AGED)
    await sweep()
    await sweep()
    assert await _parts(harness) == {}


def test_parts_have_bounds_and_are_storable() -> None:
    long = "x" * (MAX_SECTION_CHARS + 5)
    tools = [{"name": "big", "description": "d" * MAX_TOOLS_BYTES}]
    form, section, listed = parts_of(ModelRequest(0, f"<Task>\n{long}\n</Task>", tools, {"model": "m"}))
    assert form.content["sections"] == [["Task", section.id]]
    assert len(section.content) < len(long) + 60
    assert section.content.endswith("[… 5 characters are not stored …]")
    assert listed.content == [{"name": "big"}]
    odd = parts_of(ModelRequest(0, "a\x00\ud800", [{"name": "t\x00\ud800"}], {}))
    assert [part.content for part in odd[1:]] == ["a��", [{"name": "t��"}]]


@proves("secrets.hidden")
def test_secrets_in_a_prompt_are_not_recorded() -> None:
    recorded: list[ModelRequest] = []
    redactor = Redactor()
    redactor.learn("TOKEN", "tok-7f3a91", readable=True)
    listener = RedactedListener(EngineCallbacks(on_request=recorded.append), redactor)
    tools = [{"name": "send", "description": "With tok-7f3a91."}]
    listener.on_request(ModelRequest(0, "<Memories>\n- It is tok-7f3a91.\n</Memories>", tools, {"model": "m"}))
    assert "tok-7f3a91" not in str(parts_of(recorded[0]))
    assert "TOKEN" in str(parts_of(recorded[0]))
