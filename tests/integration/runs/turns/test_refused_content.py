"""The provider refuses a block of the conversation: a note replaces it, now and later, and the thread continues."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from nova_workers.contracts.content import ContentBlock, text_block
from nova_workers.contracts.runs import Submission
from nova_workers.domain.overview.sql.timeline import load_timeline
from nova_workers.domain.threads.sql.lineage import restore_content
from nova_workers.engines.anthropic import AnthropicEngine
from tests.integration.runs.turns.test_live_events import events_of, replay_of
from tests.requirements import proves
from tests.support.data import media_samples
from tests.support.harness.invariants import check_any_time
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Status, Stream, model_server

Json = dict[str, Any]

BAD = base64.b64encode(media_samples.png(2, 2)).decode()
"""What the provider refuses, although nothing can be seen to be wrong with it."""
GOOD = base64.b64encode(media_samples.png(3, 3)).decode()
NAMED = "messages.0.content.2.image.source.base64.data: Could not process image"
UNNAMED = "Could not process image"


@pytest.fixture
async def server(harness: Harness) -> AsyncIterator[ModelServer]:
    """The model, behind the real engine."""
    async with model_server() as server:
        engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=5)
        harness.engines["anthropic"] = engine
        await harness.add_agent("looker", {"name": "Looker", "engine": "anthropic"})
        yield server
        await engine.close()


def _image(data: str) -> ContentBlock:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def _has_bad(_: Mapping[str, str], body: Json) -> bool:
    return BAD in json.dumps(body)


async def _send(harness: Harness, *content: ContentBlock, thread_id: str | None = None) -> str:
    agent_id = None if thread_id else "looker"
    submission = Submission(harness.tenant_id, content, thread_id=thread_id, agent_id=agent_id)
    return (await harness.submitter.submit(submission)).run_id


@pytest.mark.parametrize("says", [NAMED, UNNAMED])
@proves("engine.refused-content")
async def test_a_refused_image_is_replaced_by_a_note_in_this_and_in_later_turns(
    harness: Harness, server: ModelServer, says: str
):
    server.reply_when(_has_bad, Status(400, "invalid_request_error", says))
    server.reply(Stream((Part("text", ["I see."]),)))
    worker = harness.worker()
    run_id = await _send(harness, text_block("look"), _image(BAD))
    await harness.settle(worker)
    assert await harness.status(run_id) == "succeeded"
    assert len(server.requests) == 2
    (note,) = [block for block in server.requests[1]["messages"][0]["content"] if "Left out" in block.get("text", "")]
    assert "Could not process image" in note["text"]
    later = await _send(harness, text_block("and?"), thread_id=(await harness.run(run_id))["thread_id"])
    await harness.settle(worker)
    assert await harness.status(later) == "succeeded"
    assert len(server.requests) == 3
    assert server.requests[2]["messages"][0]["content"][2]["text"] == note["text"]
    kept = (await harness.transcript(run_id))[0]["content"]
    assert kept[1] == _image(BAD)
    for events in (await events_of(harness, run_id), await replay_of(harness, run_id)):
        (event,) = [event for event in events if event["type"] == "content_left_out"]
        assert (event["kind"], event["note"]) == ("image", note["text"])
    await check_any_time(harness.database)


@proves("engine.tool-schemas")
async def test_a_tool_that_the_provider_refuses_is_named_to_readers_and_stays_in_the_ledger(
    harness: Harness, server: ModelServer
):
    await harness.add_agent("writer", {"name": "Writer", "engine": "anthropic", "capabilities": {"notes": {}}})
    server.refuses_tool = "note_create"
    server.reply(Stream((Part("text", ["So."]),)))
    run = await harness.submit("hi", agent_id="writer")
    await harness.settle(harness.worker())
    assert await harness.status(run.run_id) == "succeeded"
    for events in (await events_of(harness, run.run_id), await replay_of(harness, run.run_id)):
        (event,) = [event for event in events if event["type"] == "content_left_out"]
        assert (event["kind"], "note_create (the model provider refused it:" in event["note"]) == ("tool", True)
    async with harness.database.connection() as connection:
        timeline = await load_timeline(connection, harness.tenant_id, run.run_id, after_step=None, limit=1)
    assert (timeline.tools_left_out, timeline.content_left_out) == ([event["note"]], [])


@proves("engine.refused-content")
async def test_images_that_the_provider_accepted_are_kept(harness: Harness, server: ModelServer):
    server.reply_when(_has_bad, Status(400, "invalid_request_error", UNNAMED))
    server.reply(Stream((Part("text", ["I see."]),)))
    worker = harness.worker()
    first = await _send(harness, text_block("look"), _image(GOOD))
    await harness.settle(worker)
    thread_id = (await harness.run(first))["thread_id"]
    second = await _send(harness, text_block("and this"), _image(BAD), thread_id=thread_id)
    await harness.settle(worker)
    assert await harness.status(second) == "succeeded"
    sent = json.dumps(server.requests[-1])
    assert GOOD in sent
    assert BAD not in sent


@pytest.mark.parametrize("fault", ["crash_before", "crash_after"])
@proves("engine.refused-content")
async def test_a_worker_that_dies_while_it_stores_the_refusal_loses_nothing(
    harness: Harness, server: ModelServer, fault: Any
):
    server.reply_when(_has_bad, Status(400, "invalid_request_error", NAMED))
    server.reply(Stream((Part("text", ["I see."]),)))
    dying, heir = harness.worker(), harness.worker()
    dying.faults.plan(fault, "commit_refused")
    run_id = await _send(harness, text_block("look"), _image(BAD))
    await harness.settle(dying)
    await dying.crash()
    await harness.recover()
    await harness.settle(heir)
    assert await harness.status(run_id) == "succeeded"
    await check_any_time(harness.database)


async def test_a_refused_text_is_not_replaced(harness: Harness, server: ModelServer):
    server.reply(Status(400, "invalid_request_error", "messages.0.content.0: no"))
    run_id = await _send(harness, text_block("look"))
    await harness.settle(harness.worker())
    row = await harness.run(run_id)
    assert (row["status"], row["error_retryable"], len(server.requests)) == ("failed", False, 1)


UNFORESEEN = "That is not possible"


async def _bricked(harness: Harness, server: ModelServer, worker: Any) -> str:
    """Return a thread with the result of a tool that the provider took once, and refuses from now on."""
    server.reply(Stream((Part("tool", ("toolu_1", "look", {})),)), Stream((Part("text", ["I looked."]),)))
    first = await _send(harness, text_block("look"))
    await harness.settle(worker)
    assert await harness.status(first) == "succeeded"
    server.reply(Stream((Part("text", ["Ok."]),)))
    server.reply_when(
        lambda _, body: "no tool 'look'" in json.dumps(body), Status(400, "invalid_request_error", UNFORESEEN)
    )
    return (await harness.run(first))["thread_id"]


@proves("engine.refused-twice")
async def test_a_thread_that_is_refused_goes_on_without_its_newest_result(harness: Harness, server: ModelServer):
    worker = harness.worker()
    thread_id = await _bricked(harness, server, worker)
    asked = len(server.requests)
    second = await _send(harness, text_block("and now?"), thread_id=thread_id)
    await harness.settle(worker)
    assert await harness.status(second) == "succeeded"
    assert len(server.requests) == asked + 3
    for events in (await events_of(harness, second), await replay_of(harness, second)):
        (event,) = [event for event in events if event["type"] == "content_left_out"]
        assert event["kind"] == "tool_result"
        assert "It was the result of look." in event["note"]
        assert UNFORESEEN in event["note"]
    third = await _send(harness, text_block("still?"), thread_id=thread_id)
    await harness.settle(worker)
    assert await harness.status(third) == "succeeded"
    assert len(server.requests) == asked + 4
    assert "It was the result of look." in json.dumps(server.requests[-1])
    await check_any_time(harness.database)


@proves("engine.content-restored")
async def test_restored_content_is_sent_again_and_left_out_again_where_it_is_refused(
    harness: Harness, server: ModelServer
):
    worker = harness.worker()
    thread_id = await _bricked(harness, server, worker)
    second = await _send(harness, text_block("and now?"), thread_id=thread_id)
    await harness.settle(worker)
    turn_id: str = (await harness.run(second))["turn_id"]
    async with harness.database.connection() as connection:
        (note,) = await restore_content(connection, harness.tenant_id, thread_id, turn_id)
    asked = len(server.requests)
    third = await _send(harness, text_block("again"), thread_id=thread_id)
    await harness.settle(worker)
    assert await harness.status(third) == "succeeded"
    assert len(server.requests) == asked + 3
    (turn,) = await harness.database.fetch("SELECT refused_blocks FROM turns WHERE run_id = :run_id", run_id=third)
    assert turn["refused_blocks"] == {"call:toolu_1": note}
