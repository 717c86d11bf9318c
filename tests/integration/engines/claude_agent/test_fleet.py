"""The engine in a fleet: sessions in Postgres, and turns that go on after a crash."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from nova_workers.config import Settings
from nova_workers.contracts.sessions import NewSession, StoredSession
from nova_workers.ledger.database import Database
from nova_workers.ledger.runs.sessions import load_session, save_session
from tests.integration.engines.claude_agent.conftest import MakeEngine
from tests.integration.engines.claude_agent.hands import MODEL, calling, said, saying, told
from tests.support.executor import Floor
from tests.support.invariants import check_any_time, check_heads
from tests.support.model_server import ModelServer

AGENT = "coder"
_FACT = {"content": "tea"}


@pytest.fixture
async def floor(database: Database, redis: Redis, settings: Settings, make_engine: MakeEngine) -> AsyncIterator[Floor]:
    """A fleet with an agent on the engine."""
    floor = Floor(database, redis, settings)
    floor.engines["claude_agent"] = make_engine()
    await floor.open()
    spec = {"name": "Coder", "engine": "claude_agent", "model": MODEL, "capabilities": {"memory": {}}}
    await floor.add_agent(AGENT, spec)
    yield floor
    await floor.close()


async def test_every_turn_resumes_the_session_of_the_one_before_on_whichever_worker(
    floor: Floor, server: ModelServer
) -> None:
    workers = (floor.worker(), floor.worker())
    thread = await floor.thread(AGENT)
    server.reply(
        calling(("mcp__nova__memory_save", _FACT)), saying("Saved."), saying("Tea."), saying("Yes \x00 \ud83d.")
    )
    for at, text in enumerate(("I like tea", "What do I like?", "Sure?", "Really?")):
        await floor.submit(text, thread)
        await floor.settle(workers[at % 2])
    rows = await floor.database.fetch("SELECT id, parent_id FROM engine_sessions ORDER BY created_at")
    assert [row["parent_id"] for row in rows] == [None, *(row["id"] for row in rows[:-1])]
    assert await floor.database.fetchval("SELECT session_id FROM threads WHERE id = $1", thread) == rows[-1]["id"]
    conversation = said(server)
    assert [text for role, text in conversation if role == "user" and "[" not in text] == [
        "I like tea",
        "What do I like?",
        "Sure?",
        "Really?",
    ]
    await check_any_time(floor.database)
    await check_heads(floor.database)


async def test_a_turn_goes_on_in_another_workers_program_after_a_crash(floor: Floor, server: ModelServer) -> None:
    worker, other = floor.worker(), floor.worker()
    thread = await floor.thread(AGENT)
    server.reply(saying("Hello."))
    await floor.submit("Hi", thread)
    await floor.settle(worker)
    worker.tap.plan("crash_after", "commit_step", nth=1)
    server.reply(calling(("mcp__nova__memory_save", _FACT)), saying("Saved."))
    run = await floor.submit("I like tea", thread)
    await floor.settle(worker)
    await floor.expire_leases()
    await floor.recover()
    await floor.settle(other)
    assert await floor.status(run.run_id) == "succeeded"
    assert await floor.database.fetchval("SELECT count(*) FROM memories") == 1
    assert [text for _, text in said(server)[:4]] == ["Hi", "Hello.", "I like tea", "mcp__nova__memory_save"]
    assert "tea" in told(server)
    await check_any_time(floor.database)
    await check_heads(floor.database)


async def test_a_session_is_seen_by_its_tenant_and_its_engine_only(floor: Floor, database: Database) -> None:
    thread = await floor.thread(AGENT)
    entries = ({"type": "user", "message": {"content": "a \x00 b"}},)
    first, second = NewSession("s1", None, entries, "f1"), NewSession("s2", "s1", ({"type": "assistant"},), "f2")
    async with database.connection() as connection:
        for session in (first, second, second):
            await save_session(connection, floor.tenant_id, thread, "claude_agent", session)
        stored = await load_session(connection, floor.tenant_id, "claude_agent", "s2")
        assert stored == StoredSession(
            ({"type": "user", "message": {"content": "a \ufffd b"}}, {"type": "assistant"}), "f2"
        )
        assert await load_session(connection, "ten_other", "claude_agent", "s2") is None
        assert await load_session(connection, floor.tenant_id, "other", "s2") is None
        assert await load_session(connection, floor.tenant_id, "claude_agent", "gone") is None
        # Half a session is none.
        await connection.execute("DELETE FROM engine_sessions WHERE id = 's1'")
        assert await load_session(connection, floor.tenant_id, "claude_agent", "s2") is None
        await connection.execute("DELETE FROM threads WHERE id = $1", thread)
        assert await connection.fetchval("SELECT count(*) FROM engine_sessions") == 0


async def test_an_agent_whose_engine_is_not_installed_is_told_what_to_install(floor: Floor) -> None:
    del floor.engines["claude_agent"]
    worker = floor.worker()
    run = await floor.submit("hi", await floor.thread(AGENT))
    await floor.settle(worker)
    row = await floor.run(run.run_id)
    assert row["status"] == "failed"
    assert "nova-workers[claude-agent]" in str(dict(row))
