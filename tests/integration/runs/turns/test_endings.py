"""The next turn gets how a turn ended: what was stopped and what failed stays in the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.keys import run_events
from nova_workers.contracts.engine import EngineResult
from nova_workers.contracts.runs import Accepted
from nova_workers.domain.prompts.rules import is_event_block
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.scripted import ScriptedEngine
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Status, Stream, model_server

AGENT = "talker"
FINE = Stream((Part("text", ["All ", "well."]),))


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """The model server."""
    async with model_server() as server:
        server.reply(FINE)
        yield server


@pytest.fixture
async def harness(database: Database, redis: Redis, settings: Settings, server: ModelServer) -> AsyncIterator[Harness]:
    """A fleet whose agent talks to the model server, with one worker."""
    harness = Harness(database, redis, settings)
    engine = AnthropicEngine(api_key="the-key", base_url=server.url, max_retries=0)
    harness.engines["anthropic"] = engine
    await harness.open()
    await harness.add_agent(AGENT, {"name": "Talker", "engine": "anthropic", "capabilities": {"memory": {}}})
    harness.worker(control=True)
    await harness.wait_for_control_channel()
    yield harness
    await harness.close()
    await engine.close()


async def _send(harness: Harness, text: str, after: Accepted | None = None) -> Accepted:
    run = await harness.submit(text, None if after is None else after.thread_id, agent_id=None if after else AGENT)
    await harness.settle(harness.workers[0])
    return run


async def _stop_midway(harness: Harness, server: ModelServer, *parts: Part) -> Accepted:
    """Send a message whose answer stalls, and stop its run when what came before the stall was seen."""
    server.reply(Stream((*parts, Part("stall"))), FINE)
    run = await harness.submit("Tell me.", agent_id=AGENT)
    slot = await harness.start_next(harness.workers[0])
    await _until_seen(harness, run.run_id, "token" if parts else "thinking")
    await harness.canceller.cancel(harness.tenant_id, run.run_id)
    await slot
    assert await harness.status(run.run_id) == "canceled"
    return run


async def _until_seen(harness: Harness, run_id: str, kind: str) -> None:
    async with asyncio.timeout(60):
        while True:
            if f'"{kind}"' in str(await harness.redis.xrange(run_events(run_id))):
                return
            await asyncio.sleep(0.005)


def _text(block: dict[str, Any]) -> str:
    return block.get("text", block["type"])


def _conversation(server: ModelServer) -> list[tuple[str, Any]]:
    """Return the roles and texts of the newest request's messages; of other blocks the type."""
    return [
        (message["role"], [text for block in message["content"] if not is_event_block(text := _text(block))])
        for message in server.requests[-1]["messages"]
    ]


def _alternates(server: ModelServer) -> bool:
    roles = [message["role"] for message in server.requests[-1]["messages"]]
    return roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


@proves("prompt.endings")
async def test_a_stopped_turn_keeps_its_text_and_has_a_note(harness: Harness, server: ModelServer):
    stopped = await _stop_midway(harness, server, Part("text", ["Once upon a time"]))
    server.reply(FINE)
    await _send(harness, "Go on.", stopped)
    assert _conversation(server) == [
        ("user", ["Tell me."]),
        ("assistant", ["Once upon a time", "\n\n(stopped by user)"]),
        ("user", ["Go on."]),
    ]


async def test_a_turn_stopped_before_any_text_has_a_note(harness: Harness, server: ModelServer):
    stopped = await _stop_midway(harness, server)
    server.reply(FINE)
    await _send(harness, "Go on.", stopped)
    assert _conversation(server) == [("user", ["Tell me."]), ("assistant", ["(stopped by user)"]), ("user", ["Go on."])]


@proves("prompt.endings")
async def test_an_error_stays_in_the_conversation(harness: Harness, server: ModelServer):
    server.reply(Status(400, "invalid_request_error", "The picture\nis broken."))
    failed = await _send(harness, "Look.")
    assert await harness.status(failed.run_id) == "failed"
    server.reply(FINE)
    await _send(harness, "And now?", failed)
    (_, said, _) = _conversation(server)
    assert said[0] == "assistant"
    (words,) = said[1]
    assert words.startswith("(error: ")
    assert words.endswith(")")
    assert "The picture is broken." in words
    assert _alternates(server)


async def test_a_call_that_an_error_left_open_is_answered_before_the_note_of_the_error(
    harness: Harness, server: ModelServer
):
    call = Part("tool", ("toolu_1", "memory_save", {"content": "Likes tea"}))
    server.reply(Stream((Part("text", ["Let me note that."]), call)), Status(400, "invalid_request_error", "No."))
    failed = await _send(harness, "I like tea.")
    assert await harness.status(failed.run_id) == "failed"
    server.reply(FINE)
    await _send(harness, "Do you?", failed)
    assert [(role, kinds[-1][:7]) for role, kinds in _conversation(server)] == [
        ("user", "I like "),
        ("assistant", "tool_us"),
        ("user", "tool_re"),
        ("assistant", "(error:"),
        ("user", "Do you?"),
    ]


async def test_the_note_of_a_turn_never_changes(harness: Harness, server: ModelServer):
    server.reply(Status(400, "invalid_request_error", "No."))
    failed = await _send(harness, "Look.")
    server.reply(FINE)
    await _send(harness, "One.", failed)
    first = _conversation(server)
    await _send(harness, "Two.", failed)
    assert _conversation(server)[: len(first)] == first


async def test_the_ledger_has_the_messages_without_the_notes(harness: Harness, server: ModelServer):
    stopped = await _stop_midway(harness, server, Part("text", ["Once upon a time"]))
    kinds = [(row["kind"], row["content"][-1]["text"]) for row in await harness.transcript(stopped.run_id)]
    assert kinds == [("query", "Tell me."), ("response", "Once upon a time")]


async def test_a_long_error_is_cut(harness: Harness, server: ModelServer):
    server.reply(Status(400, "invalid_request_error", "no " * 2_000))
    failed = await _send(harness, "Look.")
    server.reply(FINE)
    await _send(harness, "And now?", failed)
    assert len(_conversation(server)[1][1][0]) < 600


class _Keeper(ScriptedEngine):
    """Names a session of its own after every turn, also after one that failed."""

    turns = 0

    async def run(self, *given: Any, **named: Any) -> EngineResult:
        """Play one turn."""
        self.turns += 1
        return replace(await super().run(*given, **named), session_id=f"ses_{self.turns}")


@proves("finish.session")
async def test_a_failed_turn_leaves_the_last_good_session(harness: Harness):
    harness.engines["scripted"] = _Keeper(environment="development")
    worker = harness.worker()
    thread_id = await harness.thread("scripted")
    sessions: list[str] = []
    for message in ("hello", '{"script": [{"error": {"message": "No."}}]}', "hello"):
        await harness.submit(message, thread_id)
        await harness.settle(worker)
        sessions.append(
            await harness.database.fetchval("SELECT session_id FROM threads WHERE id = :thread_id", thread_id=thread_id)
        )
    assert sessions == ["ses_1", "ses_1", "ses_3"]


@proves("prompt.background")
async def test_a_background_run_sends_only_what_its_agent_delivers(harness: Harness, server: ModelServer):
    quiet = await harness.submit("Look after it.", agent_id=AGENT, queue="background")
    await harness.settle(harness.workers[0])
    assert (await harness.run(quiet.run_id))["result_text"] == "All well."
    assert await harness.database.fetch("SELECT 1 FROM deliveries") == []
    call = Part("tool", ("toolu_1", "notify_user", {"message": "The roof leaks."}))
    server.reply(Stream((call,)), FINE)
    await harness.submit("Look again.", quiet.thread_id, queue="background")
    await harness.settle(harness.workers[0])
    (sent,) = await harness.database.fetch("SELECT kind, payload FROM deliveries")
    assert (sent["kind"], "The roof leaks." in str(sent["payload"])) == ("notification", True)
