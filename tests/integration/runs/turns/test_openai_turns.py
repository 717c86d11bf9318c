"""Whole runs with the engine `openai`: journal, ledger and compaction hold as with the others."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from nova_workers.base.config import OpenAISettings, Settings
from nova_workers.engines.openai import Catalog, Key, OpenAIEngine, OpenAIProvider
from nova_workers.engines.openai.provider import WireForm
from tests.support.harness.invariants import check_any_time, check_heads
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import ModelServer, Part, Status, Stream, model_server

LONG = "x" * 12_000
OVERFLOW = Status(400, "invalid_request_error", "too long", detail="context_length_exceeded")
NOTES = Stream((Part("text", ["Two facts were saved"]),))
DONE = Stream((Part("text", ["All saved"]),))


def _call(step: int) -> Stream:
    thinks = Part("thinking", ["Save ", "it."])
    return Stream((thinks, Part("tool", (f"call_{step}", "memory_save", {"content": f"{step} {LONG}"}))))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A fleet whose models have a small window."""
    openai = OpenAISettings.model_validate({"model": "local/m", "providers": {"local": {"base_url": "http://x/v1"}}})
    model = settings.model.model_copy(update={"max_context_tokens": 10_000})
    return settings.model_copy(update={"model": model, "openai": openai})


@pytest.fixture(params=["chat", "responses"])
async def server(request: pytest.FixtureRequest, harness: Harness) -> AsyncIterator[ModelServer]:
    """The model server, behind the engine of the agent `saver`, which names no model."""
    api: WireForm = request.param
    async with model_server() as server:
        provider = OpenAIProvider("local", f"{server.url}/v1", api, (Key(api_key="k"),))
        engine = OpenAIEngine(Catalog([provider], default_model="local/m"), max_retries=0)
        harness.engines["openai"] = engine
        await harness.add_agent("saver", {"name": "Saver", "engine": "openai", "capabilities": {"memory": {}}})
        yield server
        await engine.close()


async def test_a_turn_that_overflows_is_compacted_by_the_same_engine(harness: Harness, server: ModelServer) -> None:
    server.reply(_call(0), _call(1), OVERFLOW, NOTES, DONE)
    run = await harness.submit("Save it all", agent_id="saver")
    await harness.settle(harness.worker())
    row = await harness.run(run.run_id)
    assert (row["status"], row["result_text"]) == ("succeeded", "All saved"), dict(row)
    assert {request["model"] for request in server.requests} == {"m"}
    assert "<summary>" in server.conversation()[0][1]
    assert await harness.database.fetchval("SELECT count(*) FROM tool_calls WHERE result IS NOT NULL") == 2
    await check_any_time(harness.database)
    await check_heads(harness.database)


async def test_another_worker_goes_on_after_the_last_committed_step(harness: Harness, server: ModelServer) -> None:
    first, second = harness.worker(), harness.worker()
    first.faults.plan("crash_after", "commit_step", nth=1)
    server.reply(_call(0), DONE)
    run = await harness.submit("Save it all", agent_id="saver")
    await harness.settle(first)
    await first.crash()
    await harness.recover()
    await harness.settle(second)
    row = await harness.run(run.run_id)
    assert (row["result_text"], row["attempt"]) == ("All saved", 2)
    assert len(server.requests) == 2
    # The reasoning of the first worker's step reached the model again: it came from the journal.
    assert "enc_1_0" in str(server.requests[-1]) or "'reasoning_content': 'Save it.'" in str(server.requests[-1])
