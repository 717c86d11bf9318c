"""A whole agent with the real engine: its deliveries during a run exist, and the next turn gets them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.native import NativeTools
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server

Json = dict[str, Any]

DONE = Stream((Part("text", ["Done"]),))
AGENT: Json = {
    "name": "Clerk",
    "engine": "anthropic",
    "trust": "controlled",
    "capabilities": {"notes": {}, "file-send": {}},
}


@pytest.fixture
async def harness(database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Harness]:
    """A fleet with the agent `clerk`."""
    harness = Harness(database, redis, settings)
    await harness.open()
    await harness.add_agent("clerk", AGENT)
    yield harness
    await harness.close()


@pytest.fixture
async def server(harness: Harness) -> AsyncIterator[ModelServer]:
    """The model, behind the real engine."""
    async with model_server() as server:
        engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0, native=NativeTools())
        harness.engines["anthropic"] = engine
        yield server
        await engine.close()


def _calls(*calls: tuple[str, Json]) -> Stream:
    return Stream(tuple(Part("tool", (f"toolu_{at}_{name}", name, given)) for at, (name, given) in enumerate(calls)))


def _results(request: Json) -> list[str]:
    """Return the latest tool results in a request."""
    blocks = [block for block in request["messages"][-1]["content"] if block["type"] == "tool_result"]
    return ["".join(part["text"] for part in block["content"]) for block in blocks]


def _offered(request: Json) -> set[str]:
    return {tool["name"] for tool in request["tools"]}


@proves("deliveries.background")
async def test_a_run_in_the_background_notifies_sends_a_file_and_shares_a_note(
    harness: Harness, server: ModelServer
) -> None:
    worker = harness.worker()
    server.reply(
        _calls(
            ("Write", {"file_path": "report.csv", "content": "a,b\n"}),
            ("note_create", {"title": "Plan", "content": "# P"}),
        ),
        _calls(
            ("notify_user", {"message": "The report is ready."}),
            ("file_send", {"path": "report.csv", "caption": "This week"}),
            ("file_send", {"path": "../../../etc/passwd"}),
        ),
        DONE,
    )
    accepted = await harness.submit("Do the report", agent_id="clerk", queue="background")
    await harness.settle(worker)
    assert await harness.status(accepted.run_id) == "succeeded"
    assert {"notify_user", "file_send", "note_share"} <= _offered(server.requests[0])
    (created,) = [said for said in _results(server.requests[1]) if said.startswith("Created note_")]
    note_id = re.findall(r"note_\w+", created)[0]
    notified, sent, refused = _results(server.requests[2])
    assert notified == "The user will get it."
    assert sent.startswith("Sent report.csv (4 bytes) as file_")
    assert "outside" in refused

    server.reply(_calls(("note_share", {"note_id": note_id}), ("note_list", {})), DONE)
    second = await harness.submit("Share it", accepted.thread_id, queue="background")
    await harness.settle(worker)
    assert _results(server.requests[-1])[0] == f"{note_id} is shared."
    rows = await harness.database.fetch("SELECT kind, agent_id, thread_id, run_id, payload FROM deliveries")
    assert len(rows) == 3
    found = {row["kind"]: row for row in rows}
    assert {kind: row["run_id"] for kind, row in found.items()} == {
        "notification": accepted.run_id,
        "file": accepted.run_id,
        "note": second.run_id,
    }
    assert {(row["agent_id"], row["thread_id"]) for row in rows} == {("clerk", accepted.thread_id)}
    assert found["notification"]["payload"] == {"text": "The report is ready."}
    file_id = found["file"]["payload"]["file_id"]
    content = await harness.database.fetchval("SELECT content FROM sent_files WHERE id = :file_id", file_id=file_id)
    assert content == b"a,b\n"


@proves("deliveries.background")
async def test_an_interactive_run_has_no_notify_user_and_the_next_turn_sees_the_note(
    harness: Harness, server: ModelServer
) -> None:
    worker = harness.worker()
    server.reply(
        _calls(("note_create", {"title": "Plan", "content": "# One"}), ("notify_user", {"message": "Hello?"})), DONE
    )
    accepted = await harness.submit("Write it down", agent_id="clerk")
    await harness.settle(worker)
    assert "notify_user" not in _offered(server.requests[0])
    assert {"file_send", "note_create"} <= _offered(server.requests[0])
    assert "notify_user" in _results(server.requests[1])[1]
    assert await harness.database.fetchval("SELECT count(*) FROM deliveries") == 0

    server.reply(_calls(("note_list", {})), DONE)
    await harness.submit("What do you have?", accepted.thread_id)
    await harness.settle(worker)
    assert "'Plan' (by clerk" in _results(server.requests[-1])[0]
