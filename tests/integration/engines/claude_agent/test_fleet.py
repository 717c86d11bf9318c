"""The engine in a fleet: sessions in Postgres, and turns that continue after a crash."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.contracts.sessions import NewSession, StoredSession
from nova_workers.domain.runs.sql.sessions import load_session, save_session
from nova_workers.ledger.database import Database
from tests.integration.engines.claude_agent.claude_turns import (
    MODEL,
    conversation_of,
    request_text,
    text_response,
    tool_response,
)
from tests.integration.engines.claude_agent.conftest import MakeEngine
from tests.support.harness.invariants import check_any_time, check_heads
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer

AGENT = "coder"
_FACT = {"content": "tea"}


@pytest.fixture
async def harness(
    database: Database, redis: Redis, settings: Settings, make_engine: MakeEngine
) -> AsyncIterator[Harness]:
    """A fleet with an agent on the engine."""
    harness = Harness(database, redis, settings)
    harness.engines["claude_agent"] = make_engine()
    await harness.open()
    spec = {"name": "Coder", "engine": "claude_agent", "model": MODEL, "capabilities": {"memory": {}}}
    await harness.add_agent(AGENT, spec)
    yield harness
    await harness.close()


async def test_every_turn_resumes_the_previous_session_on_any_worker(harness: Harness, server: ModelServer) -> None:
    workers = (harness.worker(), harness.worker())
    thread = await harness.thread(AGENT)
    server.reply(
        tool_response(("mcp__nova__memory_save", _FACT)),
        text_response("Saved."),
        text_response("Yes \x00 \ud83d."),
    )
    for at, text in enumerate(("I like tea", "What do I like?", "Really?")):
        await harness.submit(text, thread)
        await harness.settle(workers[at % 2])
    rows = await harness.database.fetch("SELECT id, parent_id FROM engine_sessions ORDER BY created_at")
    assert [row["parent_id"] for row in rows] == [None, *(row["id"] for row in rows[:-1])]
    assert (
        await harness.database.fetchval("SELECT session_id FROM threads WHERE id = :thread_id", thread_id=thread)
        == rows[-1]["id"]
    )
    conversation = conversation_of(server)
    assert [text for role, text in conversation if role == "user" and "[" not in text] == [
        "I like tea",
        "What do I like?",
        "Really?",
    ]
    await check_any_time(harness.database)
    await check_heads(harness.database)


async def test_a_turn_continues_in_another_workers_program_after_a_crash(harness: Harness, server: ModelServer) -> None:
    worker, other = harness.worker(), harness.worker()
    thread = await harness.thread(AGENT)
    server.reply(text_response("Hello."))
    await harness.submit("Hi", thread)
    await harness.settle(worker)
    worker.faults.plan("crash_after", "commit_step", nth=1)
    server.reply(tool_response(("mcp__nova__memory_save", _FACT)), text_response("Saved."))
    run = await harness.submit("I like tea", thread)
    await harness.settle(worker)
    await harness.expire_leases()
    await harness.recover()
    await harness.settle(other)
    assert await harness.status(run.run_id) == "succeeded"
    assert await harness.database.fetchval("SELECT count(*) FROM memories") == 1
    assert [text for _, text in conversation_of(server)[:4]] == ["Hi", "Hello.", "I like tea", "mcp__nova__memory_save"]
    assert "tea" in request_text(server)
    await check_any_time(harness.database)
    await check_heads(harness.database)


async def test_a_session_is_seen_by_its_tenant_and_its_engine_only(harness: Harness, database: Database) -> None:
    thread = await harness.thread(AGENT)
    entries = ({"type": "user", "message": {"content": "a \x00 b"}},)
    first, second = NewSession("s1", None, entries, "f1"), NewSession("s2", "s1", ({"type": "assistant"},), "f2")
    async with database.connection() as connection:
        for session in (first, second, second):
            await save_session(connection, harness.tenant_id, thread, "claude_agent", session)
        stored = await load_session(connection, harness.tenant_id, "claude_agent", "s2")
        assert stored == StoredSession(
            ({"type": "user", "message": {"content": "a \ufffd b"}}, {"type": "assistant"}), "f2"
        )
        assert await load_session(connection, "ten_other", "claude_agent", "s2") is None
        assert await load_session(connection, harness.tenant_id, "other", "s2") is None
        assert await load_session(connection, harness.tenant_id, "claude_agent", "gone") is None
        # What another program wrote is left to the engine, which knows its entries.
        await connection.execute("UPDATE engine_sessions SET entries = '7' WHERE id = 's2'")
        unreadable = await load_session(connection, harness.tenant_id, "claude_agent", "s2")
        assert unreadable is not None
        assert unreadable.entries[-1:] == (7,)
        # An incomplete session is not used.
        await connection.execute("DELETE FROM engine_sessions WHERE id = 's1'")
        assert await load_session(connection, harness.tenant_id, "claude_agent", "s2") is None
        await connection.execute("DELETE FROM threads WHERE id = :thread_id", thread_id=thread)
        assert await connection.fetchval("SELECT count(*) FROM engine_sessions") == 0


async def test_a_run_of_an_engine_that_is_not_installed_fails_with_what_to_install(harness: Harness) -> None:
    del harness.engines["claude_agent"]
    worker = harness.worker()
    run = await harness.submit("hi", await harness.thread(AGENT))
    await harness.settle(worker)
    row = await harness.run(run.run_id)
    assert row["status"] == "failed"
    assert "nova-workers[claude-agent]" in str(dict(row))
