"""The provider refuses an image or a document: a note replaces it, as with every engine, and readers get an event."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.contracts.content import ContentBlock, text_block
from nova_workers.contracts.engine import EngineCallbacks
from nova_workers.contracts.refusals import LeftOut
from nova_workers.contracts.runs import Submission
from nova_workers.engines.claude_agent import ClaudeAgentEngine
from nova_workers.ledger.database import Database
from tests.integration.engines.claude_agent.claude_turns import MODEL, PIXEL, options, request_text, text_response
from tests.integration.engines.claude_agent.conftest import MakeEngine
from tests.integration.runs.turns.test_live_events import events_of, replay_of
from tests.requirements import proves
from tests.support.harness.invariants import check_any_time
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Status

AGENT = "looker"
UNREADABLE = Status(400, "invalid_request_error", "messages.0.content.1.image.source.base64: Could not process image")
NO_PDF = Status(400, "invalid_request_error", "messages.0.content.1.document.source.base64: The PDF was not valid.")
IMAGE: ContentBlock = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
PDF: ContentBlock = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQKJSVFT0YK"},
}


@pytest.fixture
async def harness(
    database: Database, redis: Redis, settings: Settings, make_engine: MakeEngine
) -> AsyncIterator[Harness]:
    """A fleet with an agent on the engine."""
    harness = Harness(database, redis, settings)
    harness.engines["claude_agent"] = make_engine()
    await harness.open()
    await harness.add_agent(AGENT, {"name": "Looker", "engine": "claude_agent", "model": MODEL})
    yield harness
    await harness.close()


def _refuse(server: ModelServer, block: ContentBlock, answer: Status) -> None:
    server.reply_when(lambda _, body: block["source"]["data"] in json.dumps(body["messages"]), answer)


async def _send(harness: Harness, thread: str, *content: ContentBlock) -> str:
    submission = Submission(harness.tenant_id, content, thread_id=thread)
    return (await harness.submitter.submit(submission)).run_id


@proves("engine.refused-content")
async def test_a_refused_image_is_recorded_and_left_out_of_this_and_later_turns(
    harness: Harness, server: ModelServer
) -> None:
    _refuse(server, IMAGE, UNREADABLE)
    server.reply(text_response("Nothing to see."), text_response("Bye."))
    worker, other = harness.worker(), harness.worker()
    thread = await harness.thread(AGENT)
    first = await _send(harness, thread, text_block("look"), IMAGE)
    await harness.settle(worker)
    assert await harness.status(first) == "succeeded"
    for events in (await events_of(harness, first), await replay_of(harness, first)):
        (event,) = [event for event in events if event["type"] == "content_left_out"]
        assert event["kind"] == "image"
        assert "could not be processed" in event["note"]
    assert (await harness.transcript(first))[0]["content"][1] == IMAGE

    asked = len(server.requests)
    second = await _send(harness, thread, text_block("and now?"))
    await harness.settle(other)
    assert await harness.status(second) == "succeeded"
    (request,) = server.requests[asked:]
    assert PIXEL not in json.dumps(request)
    assert "[Left out, since the model provider refused it: image." in json.dumps(request)
    sessions: list[Any] = await harness.database.fetch("SELECT id, parent_id FROM engine_sessions ORDER BY created_at")
    assert [row["parent_id"] for row in sessions] == [None, sessions[0]["id"]]
    await check_any_time(harness.database)


@pytest.mark.parametrize(
    ("content", "refused", "answer"),
    [
        pytest.param((PDF, IMAGE), IMAGE, UNREADABLE, id="image"),
        pytest.param((IMAGE, PDF), IMAGE, UNREADABLE, id="image first", marks=pytest.mark.long),
        pytest.param((IMAGE, PDF), PDF, NO_PDF, id="document", marks=pytest.mark.long),
        pytest.param((PDF, IMAGE), PDF, NO_PDF, id="document first", marks=pytest.mark.long),
    ],
)
async def test_only_the_kind_that_the_program_names_is_left_out(
    engine: ClaudeAgentEngine,
    server: ModelServer,
    content: tuple[ContentBlock, ContentBlock],
    refused: ContentBlock,
    answer: Status,
) -> None:
    left_out: list[ContentBlock] = []

    async def on_content_refused(given: tuple[LeftOut, ...]) -> None:
        left_out.extend(each.block for each in given)

    _refuse(server, refused, answer)
    server.reply(text_response("Ok."))
    callbacks = EngineCallbacks(on_content_refused=on_content_refused)
    result = await engine.run((text_block("look"), *content), options(), "sandbox", callbacks=callbacks)
    assert (result.text, result.error) == ("Ok.", None)
    assert left_out == [refused]
    kept = PDF if refused is IMAGE else IMAGE
    assert kept["source"]["data"] in request_text(server)
    assert refused["source"]["data"] not in request_text(server)
