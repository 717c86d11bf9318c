"""Agents of Pydantic AI as agents of a fleet: streams, usage, budgets, approvals, and the conversation before."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.contracts.waits import Answer
from nova_workers.ledger.database import Database
from tests.integration.capabilities.stage import Stage, calls, open_stage, says
from tests.requirements import proves
from tests.support.servers.model_server import model_server

CODE = '''
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from nova_workers.sdk import Context, Message, agent
from nova_workers.sdk.adapters.pydantic_ai import run_agent

helper = Agent(AnthropicModel("claude-haiku-4-5", provider=AnthropicProvider(api_key="k", base_url=URL)))

@helper.tool_plain
def look() -> str:
    """Look."""
    return "seen"

@helper.tool_plain(requires_approval=True)
def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"

@agent
async def helps(ctx: Context, message: Message) -> str:
    """Help."""
    return (await run_agent(ctx, helper, message.text)).output
'''


@pytest.fixture
async def stage(database: Database, redis: Redis, settings: Settings, tmp_path: Path) -> AsyncIterator[Stage]:
    async with model_server() as model, open_stage(database, redis, settings, model, projects=()) as stage:
        folder = tmp_path / "shop"
        (folder / "code").mkdir(parents=True)
        (folder / "code" / "shop.py").write_text(f"URL = {model.url!r}\n{CODE}", encoding="utf-8")
        project = {"name": "shop", "folder": str(folder), "tenant": stage.harness.tenant_id}
        tools = stage.harness.settings.tools.model_copy(
            update={"projects": Settings.model_validate({"tools": {"projects": [project]}}).tools.projects}
        )
        stage.harness.settings = stage.harness.settings.model_copy(update={"tools": tools})
        yield stage


@proves("pydantic_ai.runs", "pydantic_ai.waits")
async def test_an_agent_streams_once_counts_usage_waits_for_approvals_and_has_the_conversation(
    stage: Stage, database: Database
) -> None:
    given: dict[str, Any] = {
        "engine": "code",
        "engine_config": {"agent": "shop:helps"},
        "capabilities": {"user": {}},
    }
    await stage.agent("helps", **given)
    first = await stage.run("hi", calls(("look", {}), narration=("I ", "look.")), says("Hel", "lo."), agent_id="helps")
    assert (first.status, first.text) == ("succeeded", "Hello."), first.error
    assert await stage.tokens() == "I look.Hello."
    rows = await database.fetch("SELECT content FROM messages ORDER BY seq")
    texts = [block["text"] for row in rows for block in row[0] if block["type"] == "text"]
    assert texts == ["hi", "I look.", "Hello."]
    rows = await database.fetch("SELECT params->>'name' FROM tool_calls ORDER BY sequence")
    assert [row[0] for row in rows] == ["model", "look", "model"]
    used = await database.fetchrow("SELECT input_tokens, output_tokens, cost_usd FROM usage")
    assert used is not None
    assert tuple(used)[:2] == (20, 10)
    assert used[2] > 0

    run = await stage.run(
        "pay", calls(("pay", {"cents": 5})), says("Paid."), agent_id="helps", thread_id=first.thread_id
    )
    assert run.status == "waiting", run.error
    assert "May pay be called with" in json.dumps([wait.model_dump(mode="json") for wait in run.waits])
    assert stage.model.conversation() == [("user", "hi"), ("assistant", "I look.Hello."), ("user", "pay")]
    await stage.harness.waiting.answer(stage.harness.tenant_id, run.id, None, Answer(text="approve"))
    await stage.harness.settle(stage.harness.worker(keeper=True))
    row = await stage.harness.run(run.id)
    assert (row["status"], row["result_text"]) == ("succeeded", "Paid."), row["error_message"]
    assert len(stage.model.requests) == 2
    assert "paid 5" in stage.asked(1)

    await stage.agent("poor", **given, token_budget=1)
    run = await stage.run("hi", calls(("look", {})), says("Never."), agent_id="poor")
    assert (run.stop_reason, run.limit_reached, len(stage.model.requests)) == ("max_tokens", "tokens", 1), run.error
