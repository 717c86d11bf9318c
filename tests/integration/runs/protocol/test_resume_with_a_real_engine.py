"""A worker dies between any two writes of a turn that the real engine plays over HTTP: another continues it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from nova_workers.contracts.content import Message
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.native import NativeTools, ShellSettings
from tests.contract.engines.stage import assert_valid
from tests.requirements import proves
from tests.support.harness.fault_injection import Fault
from tests.support.harness.invariants import check_any_time
from tests.support.harness.workers import Harness
from tests.support.points import each_once
from tests.support.servers.model_server import Asks, ModelServer, Part, Stream, model_server

Json = dict[str, Any]

USAGE = {"input_tokens": 100, "output_tokens": 10}
NOTES = Stream(
    (
        Part("text", ["I shall note both."]),
        Part("tool", ("toolu_tea", "Bash", {"command": "echo tea >> likes"})),
        Part("tool", ("toolu_figs", "Bash", {"command": "echo figs >> likes"})),
    ),
    usage=USAGE,
)
LOOKS = Stream((Part("tool", ("toolu_look", "Read", {"file_path": "likes"})),), usage=USAGE)
DONE = Stream((Part("text", ["All ", "is well."]),), usage=USAGE)
WRITES = [
    ("claim", 1),
    ("commit_calls", 1),
    ("commit_result", 1),
    ("commit_result", 2),
    ("commit_step", 1),
    ("commit_calls", 2),
    ("commit_step", 2),
    ("finish", 1),
]


def _after(responses: int) -> Asks:
    """Select requests with this number of responses: the reply depends only on the conversation."""

    def asks(_: Mapping[str, str], body: Json) -> bool:
        return sum(message["role"] == "assistant" for message in body["messages"]) == responses

    return asks


@pytest.fixture
async def server(harness: Harness) -> AsyncIterator[ModelServer]:
    """The model, behind the real engine of all workers."""
    async with model_server() as server:
        for at, response in enumerate((NOTES, LOOKS, DONE)):
            server.reply_when(_after(at), response)
        native = NativeTools(shell=ShellSettings())
        engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0, native=native)
        harness.engines["anthropic"] = engine
        await harness.add_agent("keeper", {"name": "Keeper", "engine": "anthropic", "trust": "unrestricted"})
        yield server
        await engine.close()


async def test_the_turn_has_the_writes_between_which_workers_are_killed(harness: Harness, server: ModelServer):
    worker = harness.worker()
    await harness.submit("remember", agent_id="keeper")
    await harness.settle(worker)
    seen = [name for name in worker.faults.log if name in {write for write, _ in WRITES}]
    assert seen == [name for name, _ in WRITES]
    assert len(server.requests) == 3


@pytest.mark.parametrize(("statement", "nth", "fault"), each_once(WRITES, ["crash_before", "crash_after"]))
@proves("journal.resume", "journal.once", "finish.usage-once", "finish.history")
async def test_a_real_turn_continues_after_a_kill_between_any_two_writes(
    harness: Harness, server: ModelServer, statement: str, nth: int, fault: Fault
):
    worker, other = harness.worker(), harness.worker()
    worker.faults.plan(fault, statement, nth=nth)
    run = await harness.submit("remember", agent_id="keeper")
    await harness.settle(worker)
    assert worker.faults.dead
    await worker.crash()
    await check_any_time(harness.database)
    await harness.recover()
    await harness.age_doorbells()
    await harness.reconciler.reconcile()
    async with asyncio.timeout(60):
        await harness.settle(other)
    row = await harness.run(run.run_id)
    assert (row["status"], row["stop_reason"], row["result_text"]) == ("succeeded", "end_turn", "All is well.")
    await _check_messages(harness, run.run_id)
    # Each response that was committed was asked for once, and counted once.
    again = 1 if statement in ("commit_calls", "finish") and fault == "crash_before" else 0
    assert len(server.requests) == 3 + again
    tokens = await harness.database.fetchrow("SELECT input_tokens, output_tokens, model_calls FROM usage")
    assert tuple(tokens or ()) == (300, 30, 3)


async def _check_messages(harness: Harness, run_id: str) -> None:
    rows = await harness.transcript(run_id)
    messages = [Message(row["role"], tuple(row["content"])) for row in rows]
    assert_valid(messages[1:])
    calls = await harness.database.fetch("SELECT call_id, status FROM tool_calls ORDER BY sequence")
    assert [call["call_id"] for call in calls] == ["toolu_tea", "toolu_figs", "toolu_look"]
    likes = harness.settings.agent_directory(harness.tenant_id, "keeper") / "likes"
    noted = likes.read_text().split() if likes.exists() else []
    # A call that was in flight is not run again: its effect happened once or not at all, and the model learns that.
    for call, word in zip(calls[:2], ("tea", "figs"), strict=True):
        assert call["status"] in {"completed", "interrupted"}
        assert noted.count(word) <= 1
        assert call["status"] == "interrupted" or word in noted
