"""Facts about a turn in the ledger: role, engine, tools, permissions and cause."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from nova_workers.contracts.waits import Answer
from nova_workers.domain.threads.sql.lineage import list_turns
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.native import NativeTools, WebSearchSettings
from nova_workers.ledger.database import Row
from tests.support.harness.planned_engine import plan
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import Part, Stream, model_server

SAVE: dict[str, Any] = {"name": "memory_save", "input": {"content": "Tea"}}


def script(*items: dict[str, Any]) -> str:
    return orjson.dumps({"script": list(items)}).decode()


async def turn_of(harness: Harness, run_id: str) -> Row:
    row = await harness.database.fetchrow("SELECT * FROM turns WHERE run_id = :run_id", run_id=run_id)
    assert row is not None
    return row


@pytest.fixture
async def fleet(harness: Harness) -> Harness:
    """A fleet whose scripted agents may ask each other, and one that needs approval for saving memories."""
    await harness.add_agent(
        "chief", {"name": "Chief", "engine": "scripted", "capabilities": {"agents": {}, "user": {}}}
    )
    await harness.add_agent(
        "careful",
        {
            "name": "Careful",
            "engine": "scripted",
            "trust": "controlled",
            "capabilities": {"memory": {"tools": ["memory_save", "memory_list"]}},
            "permissions": {"approvals": [{"tool": "memory_save", "decision": "ask"}]},
        },
    )
    return harness


async def test_a_turn_records_the_tools_that_the_model_was_offered(harness: Harness) -> None:
    async with model_server() as server:
        engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0)
        harness.engines["planned"] = engine
        helper = {"description": "Finds.", "prompt": "You find."}
        grants = {"memory": {"tools": ["memory_list"]}}
        await harness.add_agent(
            "helped", {"name": "Helped", "engine": "planned", "capabilities": grants, "subagents": {"scout": helper}}
        )
        server.reply(Stream((Part("text", ["Hello"]),)))
        run = await harness.submit("hi", agent_id="helped")
        await harness.settle(harness.worker())
        turn = await turn_of(harness, run.run_id)
        sent = [tool["name"] for tool in server.requests[-1]["tools"]]
        assert turn["tools_available"] == sent == ["memory_list", "Task"]
        assert (turn["role"], turn["toolset_name"]) == ("manager", "sandbox")
        await engine.close()


async def test_a_turn_records_grants_verdicts_and_its_directory(fleet: Harness) -> None:
    worker = fleet.worker()
    run = await fleet.submit(
        script({"tool": SAVE}, {"tool": {"name": "memory_list"}}, {"say": "ok"}), agent_id="careful"
    )
    await fleet.settle(worker)
    waiting = await turn_of(fleet, run.run_id)
    assert waiting["permissions_used"] == {"memory_save": {"ask": 1, "rules": ["ask: memory_save"]}}
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(approve=True))
    await fleet.settle(worker)
    turn = await turn_of(fleet, run.run_id)
    assert turn["status"] == "succeeded"
    assert (turn["role"], turn["toolset_name"]) == ("unified", "controlled")
    assert turn["tools_available"] == ["memory_save", "memory_list"]
    assert turn["permissions_granted"] == {
        "trust": "controlled",
        "directories": [],
        "capabilities": {"memory": ["memory_save", "memory_list"]},
        "approvals": [{"tool": "memory_save", "decision": "ask"}],
    }
    assert turn["permissions_used"] == {
        "memory_save": {"ask": 1, "rules": ["ask: memory_save"]},
        "memory_list": {"allow": 1},
    }
    assert turn["workspace_path"] == str(fleet.settings.agent_directory(fleet.tenant_id, "careful"))


async def test_verdicts_of_a_dead_worker_in_committed_steps_count(harness: Harness) -> None:
    first, second = harness.worker(), harness.worker()
    run, _ = await harness.begin(first, plan(["look"], ["wait:a"], []), "a")
    await first.crash()
    await harness.recover()
    harness.engine.open("a")
    await harness.settle(second)
    assert (await turn_of(harness, run.run_id))["permissions_used"]["look"] == {"allow": 1}


async def test_a_call_that_asks_an_agent_names_the_run_that_it_started(fleet: Harness) -> None:
    worker = fleet.worker()
    ask = {"name": "ask_agent", "input": {"agent_id": "careful", "message": script({"say": "fine"})}}
    run = await fleet.submit(script({"tool": ask}, {"say": "ok"}), agent_id="chief")
    await fleet.settle(worker)
    child = await fleet.database.fetchrow(
        "SELECT id, status FROM runs WHERE parent_run_id = :parent_run_id", parent_run_id=run.run_id
    )
    assert child is not None
    assert child["status"] == "succeeded"
    async with fleet.database.connection() as connection:
        (turn,) = await list_turns(connection, fleet.tenant_id, run.thread_id, below_depth=None, limit=5)
    assert turn.tool_calls[0].spawned_run_id == child["id"]
    assert turn.role == "manager"
    assert (await turn_of(fleet, child["id"]))["role"] == "worker"


async def test_an_escalated_question_names_the_agents_run(fleet: Harness) -> None:
    worker = fleet.worker()
    question = {"question": script({"say": "tea"}), "expires_in_s": 60, "escalate_to": "careful"}
    run = await fleet.submit(script({"tool": {"name": "ask_user", "input": question}}, {"say": "ok"}), agent_id="chief")
    await fleet.settle(worker)
    await fleet.database.execute("UPDATE run_waits SET due_at = now()")
    await fleet.waiting.sweep()
    await fleet.settle(worker)
    child = await fleet.database.fetchval(
        "SELECT id FROM runs WHERE parent_run_id = :parent_run_id", parent_run_id=run.run_id
    )
    assert child is not None
    assert await fleet.database.fetchval("SELECT spawned_run_id FROM tool_calls WHERE tool_name = 'ask_user'") == child


async def test_a_turn_names_the_event_that_caused_it(harness: Harness) -> None:
    worker = harness.worker()
    with_event = await harness.submit("hi", metadata={"channel": "telegram", "event_id": "update-17"})
    fired = await harness.submit("hi", trigger_id="trg_1")
    plain = await harness.submit("hi")
    await harness.database.execute(
        "INSERT INTO triggers (id, tenant_id, agent_id, kind, schedule, prompt, created_by)"
        " VALUES ('trg_1', :tenant_id, 'planned', 'cron', '* * * * *', 'hi', 'person')",
        tenant_id=harness.tenant_id,
    )
    await harness.database.execute(
        "INSERT INTO trigger_firings (id, tenant_id, trigger_id, scheduled_for, run_id, outcome)"
        " VALUES ('fir_1', :tenant_id, 'trg_1', now(), :run_id, 'fired')",
        tenant_id=harness.tenant_id,
        run_id=fired.run_id,
    )
    await harness.settle(worker)
    sources = [(await turn_of(harness, run.run_id))["source_event_id"] for run in (with_event, fired, plain)]
    assert sources == ["update-17", "fir_1", None]


async def test_a_search_of_the_provider_counts_where_one_was_made(harness: Harness) -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    searches = Stream((Part("block", (use, [])), Part("block", (found, [])), Part("text", ["Tea."])))
    async with model_server() as server:
        native = NativeTools(web_search=WebSearchSettings())
        engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0, native=native)
        harness.engines["anthropic"] = engine
        await harness.add_agent("finder", {"name": "Finder", "engine": "anthropic", "trust": "controlled"})
        worker = harness.worker()
        used: list[Any] = []
        for reply in (Stream((Part("text", ["Hello"]),)), searches):
            server.reply(reply)
            run = await harness.submit("hi", agent_id="finder")
            await harness.settle(worker)
            assert await harness.status(run.run_id) == "succeeded"
            used.append((await turn_of(harness, run.run_id))["permissions_used"])
        await engine.close()
    assert used == [{}, {"WebSearch": {"allow": 1}}]
