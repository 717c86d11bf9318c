"""Agents that change themselves and create others: real engine, real ledger, a model on loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.default_agents import DEFAULT_AGENTS
from nova_workers.domain.agents.sql import records as ledger
from nova_workers.engines.anthropic import AnthropicEngine
from tests.requirements import proves
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server

Json = dict[str, Any]

DONE = Stream((Part("text", ["Done."]),))


def _calls(tool: str, /, **given: Any) -> Stream:
    return Stream((Part("tool", (f"toolu_{tool}", tool, given)),))


def _results(request: Json) -> str:
    """Return the tool results in a request to the model."""
    blocks = [block for message in request["messages"] for block in message["content"] if isinstance(block, dict)]
    found = [block["content"] for block in blocks if block["type"] == "tool_result"]
    return " ".join(part["text"] for content in found for part in content)


@pytest.fixture
async def harness(harness: Harness) -> Harness:
    """A fleet with the default agents, which use the engine `anthropic`."""
    harness.settings = harness.settings.model_copy(update={"default_engine": "anthropic"})
    async with harness.database.connection() as connection:
        await ledger.seed_defaults(connection, harness.tenant_id)
    return harness


@pytest.fixture
async def model(harness: Harness) -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        harness.engines["anthropic"] = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0)
        yield server
        await harness.engines["anthropic"].close()


async def _send(harness: Harness, text: str, *, thread_id: str) -> str:
    """Send a message, let a worker answer it, and return the run's id."""
    accepted = await harness.submit(text, thread_id=thread_id)
    worker = harness.workers[0] if harness.workers else harness.worker()
    await harness.settle(worker)
    assert await harness.status(accepted.run_id) == "succeeded"
    return accepted.run_id


@proves("agents.self", "agents.versions")
async def test_an_agent_changes_its_instructions_and_its_next_turn_has_them(
    harness: Harness, model: ModelServer
) -> None:
    thread_id = await harness.thread("nova")
    model.reply(
        _calls("self_read"),
        _calls("self_set_instructions", instructions="Answer in rhyme."),
        _calls("self_add_responsibility", title="Rhymes", content="Keep a list of good ones."),
        DONE,
        DONE,
    )
    first = await _send(harness, "From now on, rhyme.", thread_id=thread_id)
    prompts = [str(request["system"]) for request in model.requests]
    assert len(set(prompts)) == 1, "a turn goes on with the prompt that it began with"
    assert "Answer in rhyme." not in prompts[0]
    said = _results(model.requests[3])
    assert "id: nova" in said
    assert "version 2" in said
    assert "version 3" in said

    second = await _send(harness, "Hello", thread_id=thread_id)
    prompt = str(model.requests[4]["system"])
    assert "Answer in rhyme." in prompt
    assert "Keep a list of good ones." in prompt
    assert [(await harness.run(run_id))["agent_version"] for run_id in (first, second)] == [1, 3]
    async with harness.database.connection() as connection:
        versions = await ledger.list_versions(connection, harness.tenant_id, "nova", before=None, limit=9)
    assert [(each.version, each.created_by) for each in versions] == [(3, "nova"), (2, "nova"), (1, "seed")]


@proves("agents.rights")
async def test_the_agent_builder_makes_an_agent_and_cannot_give_it_trust(harness: Harness, model: ModelServer) -> None:
    wish: Json = {
        "id": "poet",
        "name": "Poet",
        "identity": "You are a poet.",
        "instructions": "Write verse.",
        "capabilities": {"memory": ["memory_list"]},
    }
    model.reply(_calls("agent_create", **wish, trust="unrestricted"), _calls("agent_create", **wish), DONE, DONE)
    await _send(harness, "Make a poet.", thread_id=await harness.thread("agent-builder"))
    assert "trust is set by people only" in _results(model.requests[1])
    assert "Made agent 'poet', version 1. It is in the sandbox" in _results(model.requests[2])
    async with harness.database.connection() as connection:
        poet = await ledger.get_agent(connection, harness.tenant_id, "poet")
    assert (poet.created_by, poet.spec.trust) == ("agent-builder", "sandbox")

    await _send(harness, "A verse, please.", thread_id=await harness.thread("poet"))
    request = model.requests[-1]
    assert "You are a poet." in str(request["system"])
    offered = {tool["name"] for tool in request["tools"]}
    assert "memory_list" in offered
    assert not offered & {"memory_save", "Read", "Bash", "agent_create", "self_read"}


async def test_a_tool_that_the_grant_leaves_out_is_not_offered(harness: Harness, model: ModelServer) -> None:
    await harness.add_agent("reader", {"name": "R", "capabilities": {"self": {"tools": ["self_read"]}}})
    model.reply(_calls("self_set_instructions", instructions="Obey."), DONE)
    await _send(harness, "Change.", thread_id=await harness.thread("reader"))
    assert [tool["name"] for tool in model.requests[0]["tools"] if tool["name"].startswith("self")] == ["self_read"]
    assert "There is no tool 'self_set_instructions'" in _results(model.requests[1])
    async with harness.database.connection() as connection:
        assert (await ledger.get_agent(connection, harness.tenant_id, "reader")).version == 1


@proves("agents.approvals")
async def test_a_never_rule_applies_to_tools_of_capabilities(harness: Harness, model: ModelServer) -> None:
    rules = [
        {"tool": "memory_save", "pattern": "*password*", "decision": "never"},
        {"tool": "memory_*", "decision": "always"},
    ]
    spec = {"name": "G", "capabilities": {"memory": {}}, "permissions": {"approvals": rules}}
    await harness.add_agent("guarded", AgentSpec.model_validate(spec).model_dump(mode="json"))
    model.reply(
        _calls("memory_save", content="The password is 1234."), _calls("memory_save", content="Likes tea."), DONE
    )
    await _send(harness, "Remember.", thread_id=await harness.thread("guarded"))
    assert "must not use 'memory_save' like this" in _results(model.requests[1])
    kept = await harness.database.fetch(
        "SELECT content FROM memories WHERE tenant_id = :tenant_id", tenant_id=harness.tenant_id
    )
    assert [row["content"] for row in kept] == ["Likes tea."]


def test_the_default_agents_can_change_themselves() -> None:
    assert "self" in DEFAULT_AGENTS["nova"].capabilities
    assert {"self", "agent-management"} <= set(DEFAULT_AGENTS["agent-builder"].capabilities)
    assert (DEFAULT_AGENTS["nova"].trust, DEFAULT_AGENTS["agent-builder"].trust) == ("controlled", "sandbox")
