"""The event context precedes a turn's message, and is the same bytes in all later requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server

Json = dict[str, Any]

FINE = Stream((Part("text", ["Fine."]),))
WINTER = datetime(2026, 3, 28, 23, 30, tzinfo=UTC)
SUMMER = datetime(2026, 3, 29, 12, 5, tzinfo=UTC)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """The model server."""
    async with model_server() as server:
        server.reply(FINE)
        yield server


@pytest.fixture
async def harness(database: Database, redis: Redis, settings: Settings, server: ModelServer) -> AsyncIterator[Harness]:
    """A fleet with one worker, whose tenant is in Oslo."""
    harness = Harness(database, redis, settings)
    engine = AnthropicEngine(api_key="the-key", base_url=server.url, max_retries=0)
    harness.engines["anthropic"] = engine
    await harness.open()
    await harness.add_agent("clerk", {"name": "Clerk", "engine": "anthropic", "instructions": "Be brief."})
    await database.execute(
        "UPDATE tenants SET timezone = 'Europe/Oslo' WHERE id = :tenant_id", tenant_id=harness.tenant_id
    )
    harness.worker()
    yield harness
    await harness.close()
    await engine.close()


async def _turn(harness: Harness, text: str, at: datetime, thread_id: str, **fields: Any) -> None:
    """Run a turn that is started at a given time."""
    run = await harness.submit(text, thread_id, **fields)
    await _started_at(harness, run.run_id, at)
    await harness.settle(harness.workers[0])
    assert await harness.status(run.run_id) == "succeeded", dict(await harness.run(run.run_id))


async def _started_at(harness: Harness, run_id: str, at: datetime) -> None:
    await harness.database.execute(
        "UPDATE runs SET started_at = :started_at WHERE id = :run_id", run_id=run_id, started_at=at
    )


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value


def _bytes(request: Json) -> str:
    """Return the parts of a request that the provider caches, in its order."""
    parts = [request.get("tools"), request.get("system"), *request["messages"]]
    return json.dumps(_unmarked(parts)).removesuffix("]")


@proves("context.prefix", "context.time")
async def test_a_turn_at_another_time_begins_with_the_bytes_of_the_one_before(harness: Harness, server: ModelServer):
    thread_id = await harness.thread("clerk")
    await _turn(harness, "one", WINTER, thread_id)
    await harness.database.execute("UPDATE threads SET title = 'Numbers' WHERE id = :thread_id", thread_id=thread_id)
    await _turn(harness, "two", SUMMER, thread_id, source="channel", metadata={"channel": "sms"})
    await harness.database.execute("UPDATE tenants SET timezone = 'Asia/Tokyo'")
    await _turn(harness, "three", SUMMER, thread_id)
    first, second, third = server.requests
    assert _bytes(third).startswith(_bytes(second))
    assert _bytes(second).startswith(_bytes(first))
    said = [message["content"] for message in third["messages"] if message["role"] == "user"]
    assert [blocks[1]["text"] for blocks in said] == ["one", "two", "three"]
    times = [blocks[0]["text"].splitlines()[1] for blocks in said]
    assert times == [
        "- Time: Sunday, 2026-03-29, 00:30 (Europe/Oslo, UTC+01:00)",
        "- Time: Sunday, 2026-03-29, 14:05 (Europe/Oslo, UTC+02:00)",
        "- Time: Sunday, 2026-03-29, 21:05 (Asia/Tokyo, UTC+09:00)",
    ]
    assert "Numbers" not in said[0][0]["text"]
    assert "- Source: channel\n- Channel: sms\n- Thread: Numbers\n" in said[1][0]["text"]


@proves("context.resume")
async def test_the_attempt_after_a_crash_shows_the_same_event_context(harness: Harness, server: ModelServer):
    thread_id = await harness.thread("clerk")
    run = await harness.submit("one", thread_id)
    await _started_at(harness, run.run_id, WINTER)
    dying, other = harness.workers[0], harness.worker()
    dying.faults.plan("crash_before", "finish")
    await harness.settle(dying)
    assert dying.faults.dead
    await dying.crash()
    await harness.database.execute("UPDATE tenants SET timezone = 'Asia/Tokyo'")
    await harness.database.execute("UPDATE threads SET title = 'Numbers'")
    await harness.recover()
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    await harness.settle(other)
    assert (await harness.run(run.run_id))["attempt"] == 2
    before, after = server.requests
    assert _bytes(before) == _bytes(after)
    assert "00:30 (Europe/Oslo, UTC+01:00)" in before["messages"][0]["content"][0]["text"]


@proves("context.occurrence")
async def test_a_run_of_a_trigger_names_its_occurrence_in_the_triggers_zone(harness: Harness, server: ModelServer):
    await harness.database.execute(
        "INSERT INTO triggers (id, tenant_id, agent_id, kind, schedule, timezone, prompt, title, created_by)"
        " VALUES ('trg_1', :tenant_id, 'clerk', 'cron', '0 9 * * *', 'America/New_York', 'Look.', 'Mail', 'person')",
        tenant_id=harness.tenant_id,
    )
    thread_id = await harness.thread("clerk")
    run = await harness.submit("Look.", thread_id, source="trigger", queue="background", trigger_id="trg_1")
    await _started_at(harness, run.run_id, SUMMER)
    await harness.database.execute(
        "INSERT INTO trigger_firings (id, tenant_id, trigger_id, scheduled_for, run_id, outcome)"
        " VALUES ('fir_1', :tenant_id, 'trg_1', '2026-03-29T12:00:00Z', :run_id, 'fired')",
        tenant_id=harness.tenant_id,
        run_id=run.run_id,
    )
    await harness.settle(harness.workers[0])
    assert server.requests[0]["messages"][0]["content"][0]["text"].splitlines()[1:4] == [
        "- Time: Sunday, 2026-03-29, 08:05 (America/New_York, UTC-04:00)",
        "- Source: trigger",
        "- Trigger: Mail (trg_1), planned for Sunday, 2026-03-29, 08:00 (America/New_York, UTC-04:00)",
    ]
    await harness.database.execute("DELETE FROM trigger_firings")
    await _turn(harness, "And?", SUMMER, thread_id, queue="background")
    first, second = server.requests
    assert _bytes(second).startswith(_bytes(first))


async def test_a_turn_of_an_earlier_release_has_no_event_context(harness: Harness, server: ModelServer):
    thread_id = await harness.thread("clerk")
    await _turn(harness, "one", WINTER, thread_id)
    await harness.database.execute("UPDATE messages SET context = NULL")
    await _turn(harness, "two", SUMMER, thread_id)
    first, _, second = server.requests[1]["messages"]
    assert [block["text"] for block in first["content"]] == ["one"]
    assert [block["text"] for block in second["content"]][1:] == ["two"]


async def test_a_script_and_an_echo_get_the_message_without_the_context(harness: Harness):
    echo = await harness.submit("hello", agent_id="scripted")
    script = await harness.submit('{"script": [{"say": "Played."}]}', agent_id="scripted")
    await harness.settle(harness.workers[0])
    assert (await harness.run(echo.run_id))["result_text"] == "You said: hello"
    assert (await harness.run(script.run_id))["result_text"] == "Played."
