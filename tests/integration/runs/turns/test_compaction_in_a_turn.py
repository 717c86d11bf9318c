"""A single turn that grows longer than the model's window continues with a summary of its own first steps."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nova_workers.base.config import Settings
from nova_workers.contracts.engine import EngineOptions, EngineResult
from nova_workers.contracts.runs import Claim
from nova_workers.domain.prompts.rules import is_event_block
from nova_workers.domain.threads.sql.history import load_history_turns
from nova_workers.engines.anthropic import AnthropicEngine
from tests.integration.runs.turns.test_live_events import events_of, replay_of
from tests.requirements import proves
from tests.support.harness.invariants import check_any_time, check_heads
from tests.support.harness.workers import Harness, Worker
from tests.support.servers.model_server import ModelServer, Part, Status, Stream, model_server

WINDOW = 10_000
OVERFLOW = Status(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
LONG = "x" * 12_000


def call(step: int, tokens: int = 100) -> Stream:
    part = Part("tool", (f"toolu_{step}", "memory_save", {"content": f"{step} {LONG}"}))
    return Stream((part,), usage={"input_tokens": tokens, "output_tokens": 10})


NOTES = Stream((Part("text", ["Three facts were saved"]),), usage={"input_tokens": 50, "output_tokens": 5})
DONE = Stream((Part("text", ["All saved"]),), usage={"input_tokens": 100, "output_tokens": 10})


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A fleet whose models have a small window."""
    return settings.model_copy(update={"model": settings.model.model_copy(update={"max_context_tokens": WINDOW})})


@pytest.fixture
async def server(harness: Harness) -> AsyncIterator[ModelServer]:
    """The model server, behind the engine of the agent `saver`."""
    async with model_server() as server:
        engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0)
        harness.engines["anthropic"] = engine
        spec = {"name": "Saver", "engine": "anthropic", "model": "sonnet", "capabilities": {"memory": {}}}
        await harness.add_agent("saver", spec)
        yield server
        await engine.close()


async def _run(harness: Harness, worker: Worker, thread_id: str | None = None) -> str:
    run = await harness.submit("Save it all", thread_id, **({} if thread_id else {"agent_id": "saver"}))
    await harness.settle(worker)
    return run.run_id


def _conversation(request: dict[str, Any]) -> str:
    """Return a request's messages in short: whose, and which calls and results; each call has its result."""
    words: list[str] = []
    for message in request["messages"]:
        for block in message["content"]:
            match block:
                case {"type": "text", "text": text} if is_event_block(text):
                    words.append("context")
                case {"type": "text", "text": text}:
                    words.append("summary" if "<summary>" in text else "query" if "Save" in text else "text")
                case {"type": "tool_use", "id": id}:
                    words.append(f"call {id[-1]}")
                case {"type": "tool_result", "tool_use_id": id}:
                    words.append(f"result {id[-1]}")
                case _:
                    words.append("?")
    return ", ".join(words)


@proves("engine.overflow-in-turn")
async def test_a_turn_that_overflows_continues_after_a_summary_of_its_first_steps(
    harness: Harness, server: ModelServer
) -> None:
    server.reply(call(0), call(1), call(2), OVERFLOW, NOTES, DONE)
    run_id = await _run(harness, harness.worker())
    row = await harness.run(run_id)
    assert (row["status"], row["result_text"]) == ("succeeded", "All saved"), dict(row)
    asked = [_conversation(request) for request in server.requests]
    assert asked[3] == "context, query, call 0, result 0, call 1, result 1, call 2, result 2"
    assert asked[5] == "summary, context, query"
    assert "0 xxx" in server.requests[4]["messages"][0]["content"][0]["text"]
    record = await harness.database.fetchrow("SELECT * FROM compactions")
    assert record is not None
    assert (record["trigger"], record["through_step"]) == ("overflow_recovery", 2)
    for events in (await events_of(harness, run_id), await replay_of(harness, run_id)):
        places = [event["type"] for event in events if event["type"] in ("step", "compaction")]
        # The ledger has a step for the answer as well, which closes with the stream when it is live.
        assert places[:5] == ["step"] * 3 + ["compaction"] * 2
    assert record["summarized_through_turn_id"] == row["turn_id"]
    assert await harness.database.fetchval("SELECT count(*) FROM tool_calls WHERE result IS NOT NULL") == 3
    steps = await harness.database.fetchval("SELECT steps FROM turns WHERE id = :turn_id", turn_id=row["turn_id"])
    assert steps == 4
    await check_any_time(harness.database)
    await check_heads(harness.database)


@proves("engine.overflow-in-turn")
async def test_a_turn_near_the_window_is_compacted_between_two_steps(harness: Harness, server: ModelServer) -> None:
    server.reply(call(0), call(1, tokens=9_000), NOTES, call(2), DONE)
    run_id = await _run(harness, harness.worker())
    assert await harness.status(run_id) == "succeeded"
    asked = [_conversation(request) for request in server.requests]
    assert asked[3] == "summary, context, query"
    assert asked[4] == "summary, context, query, call 2, result 2"
    assert await harness.database.fetchval("SELECT trigger FROM compactions") == "context_limit"


@proves("engine.overflow-in-turn")
async def test_a_worker_that_dies_after_the_summary_leaves_the_same_conversation_to_the_next(
    harness: Harness, server: ModelServer
) -> None:
    first, second = harness.worker(), harness.worker()
    first.faults.plan("crash_after", "compaction", nth=1)
    server.reply(call(0), call(1), call(2), OVERFLOW, NOTES)
    run_id = await _run(harness, first)
    assert await harness.status(run_id) == "running"
    await first.crash()
    await harness.recover()
    server.reply(DONE)
    await harness.settle(second)
    assert (await harness.run(run_id))["result_text"] == "All saved"
    assert _conversation(server.requests[-1]) == "summary, context, query"
    assert await harness.database.fetchval("SELECT count(*) FROM compactions") == 1


async def test_the_next_turn_gets_the_compacted_rest_of_the_long_one(harness: Harness, server: ModelServer) -> None:
    worker = harness.worker()
    server.reply(call(0), call(1), OVERFLOW, NOTES, call(2), DONE)
    run_id = await _run(harness, worker)
    row = await harness.run(run_id)
    async with harness.database.connection() as connection:
        turns = await load_history_turns(connection, harness.tenant_id, row["turn_id"])
    assert [turn.summary for turn in turns] == [True, False]
    server.reply(DONE)
    await _run(harness, worker, row["thread_id"])
    assert _conversation(server.requests[-1]) == "summary, context, query, call 2, result 2, text, context, query"


async def test_a_conversation_that_overflows_again_at_once_fails(harness: Harness, server: ModelServer) -> None:
    server.reply(call(0), call(1), OVERFLOW, NOTES, OVERFLOW, NOTES)
    row = await harness.run(await _run(harness, harness.worker()))
    assert (row["status"], row["error_kind"]) == ("failed", "context_overflow")
    await check_any_time(harness.database)


class _CountingClaims(AnthropicEngine):
    """Notes at each turn, and each summary, which claims there are, by their parent turns."""

    def __init__(self, url: str) -> None:
        super().__init__(api_key="k", base_url=url, max_retries=0)
        self.parents: list[list[str | None]] = []

    async def run(self, message: Any, options: EngineOptions, *args: Any, **named: Any) -> EngineResult:
        claims = [each for each in gc.get_objects() if type(each) is Claim and each.run_id == options.run_id]
        self.parents.append([each.parent_turn_id for each in claims])
        return await super().run(message, options, *args, **named)


async def test_no_copy_of_the_claim_outlives_a_compaction(harness: Harness, server: ModelServer) -> None:
    engine = _CountingClaims(server.url)
    harness.engines["anthropic"] = engine
    worker = harness.worker()
    server.reply(DONE, call(0), call(1), OVERFLOW, NOTES, DONE)
    # What is imported by a first turn excludes the objects of that time from what is found.
    await _run(harness, worker)
    run_id = await _run(harness, worker)
    assert await harness.status(run_id) == "succeeded"
    await engine.close()
    compaction_id = await harness.database.fetchval(
        "SELECT t.parent_turn_id FROM runs r JOIN turns t ON t.id = r.turn_id WHERE r.id = :run_id", run_id=run_id
    )
    assert engine.parents[-3:] == [[None], [None], [compaction_id]]
