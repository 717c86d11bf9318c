"""A tree of agents whose master and worker run in the program."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.domain.orchestrations.rules.service import NewOrchestration
from nova_workers.domain.orchestrations.sql.agents import agents_of
from nova_workers.ledger.database import Database
from tests.integration.engines.claude_agent.claude_turns import MODEL, conversation_of, text_response, tool_response
from tests.integration.engines.claude_agent.conftest import MakeEngine
from tests.support.harness.invariants import check_any_time, check_heads
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Stream

AGENT = "coder"


@pytest.fixture
async def harness(
    database: Database, redis: Redis, settings: Settings, make_engine: MakeEngine
) -> AsyncIterator[Harness]:
    """A fleet with an agent on the engine."""
    harness = Harness(database, redis, settings)
    harness.engines["claude_agent"] = make_engine()
    await harness.open()
    await harness.add_agent(AGENT, {"name": "Coder", "engine": "claude_agent", "model": MODEL})
    yield harness
    await harness.close()


def reply_to(server: ModelServer, prompt: str, *replies: Stream) -> None:
    """Answer the conversation that begins with a prompt."""

    def asks(_: Mapping[str, str], body: dict[str, Any]) -> bool:
        return prompt in str(body["messages"][0])

    server.reply_when(asks, *replies)


@pytest.mark.long  # programs/ shows it with a program that starts faster
async def test_a_master_spawns_a_worker_waits_for_it_and_sums_up(harness: Harness, server: ModelServer) -> None:
    spawn = {"prompt": "Count the files", "name": "Counter", "wait": False}
    reply_to(
        server,
        "Describe the project",
        tool_response(("mcp__nova__spawn_child", spawn)),
        tool_response(("mcp__nova__wait_for_message", {}), step=1),
        tool_response(("mcp__nova__task_complete", {"summary": "The project has three files."}), step=2),
    )
    reply_to(
        server,
        "Count the files",
        tool_response(("mcp__nova__report_progress", {"status": "counting", "percent": 50})),
        text_response("There are three files."),
    )
    worker = harness.worker()
    started = await harness.orchestrations.start(NewOrchestration(harness.tenant_id, AGENT, "Describe the project"))
    await harness.settle(worker)
    async with harness.database.connection() as connection:
        master, counter = await agents_of(connection, harness.tenant_id, started.orchestration_id)
    assert (master.state, master.summary) == ("COMPLETED", "The project has three files.")
    assert (counter.state, counter.summary, counter.name) == ("COMPLETED", "There are three files.", "Counter")
    assert counter.progress is not None
    assert counter.progress["status"] == "counting"
    runs = await harness.database.fetch(
        "SELECT t.engine, r.attempt FROM runs r JOIN turns t ON t.id = r.turn_id WHERE r.id = ANY(:ids::text[])",
        ids=[master.run_id, counter.run_id],
    )
    assert {row["engine"] for row in runs} == {"claude_agent"}
    assert max(row["attempt"] for row in runs) == 2, "The master's program ended while it waited."
    results = [text for at in range(len(server.requests)) for _, text in conversation_of(server, at)]
    assert any("There are three files." in text for text in results), "The master reads the worker's result."
    await check_any_time(harness.database)
    await check_heads(harness.database)
