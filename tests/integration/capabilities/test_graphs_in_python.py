"""Graphs of LangGraph as agents of a fleet: streams, usage, budgets, cancellation, waits, and the state of a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.waits import Answer
from nova_workers.ledger.database import Database
from tests.integration.capabilities.stage import Stage, open_stage, says
from tests.requirements import proves
from tests.support.data.chat_model import CHAT_MODEL
from tests.support.servers.model_server import model_server
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("forked_user_code")

CODE = (
    CHAT_MODEL
    + '''
import asyncio
from pathlib import Path
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from nova_workers.sdk import Context, Message, agent
from nova_workers.sdk.adapters.langgraph import run_graph

HERE = Path(__file__).parent.parent

def record(line):
    with (HERE / "done").open("a") as file:
        file.write(line + "\\n")

async def think(state: MessagesState):
    record("think")
    return {"messages": [await Asked().ainvoke(state["messages"])]}

async def check(state: MessagesState):
    record("check")
    text = state["messages"][-1].text
    if text == "Wait." and not (HERE / "go").exists():
        try:
            await asyncio.sleep(600)
        finally:
            record("stopped")
    if text == "Ask.":
        return {"messages": [("ai", "You said " + interrupt({"question": "Which?", "options": ["a", "b"]}))]}
    if text == "Break.":
        raise ValueError("no luck")
    return {}

builder = StateGraph(MessagesState)
builder.add_node(think)
builder.add_node(check)
builder.add_edge(START, "think")
builder.add_edge("think", "check")
builder.add_edge("check", END)
graph = builder.compile()

@agent
async def talks(ctx: Context, message: Message) -> str:
    """Answer by a graph."""
    state = await run_graph(ctx, graph, {"messages": [("user", message.text)]})
    return state["messages"][-1].text
'''
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop" / "code").mkdir(parents=True)
    return tmp_path / "shop"


@pytest.fixture
async def stage(database: Database, redis: Redis, settings: Settings, folder: Path) -> AsyncIterator[Stage]:
    async with model_server() as model, open_stage(database, redis, settings, model, projects=()) as stage:
        (folder / "code" / "shop.py").write_text(f"URL = {model.url!r}\n{CODE}", encoding="utf-8")
        project = {"name": "shop", "folder": str(folder), "tenant": stage.harness.tenant_id}
        tools = stage.harness.settings.tools.model_copy(
            update={"projects": Settings.model_validate({"tools": {"projects": [project]}}).tools.projects}
        )
        stage.harness.settings = stage.harness.settings.model_copy(update={"tools": tools})
        yield stage


async def _agent(stage: Stage, agent_id: str = "talks", **spec: Any) -> None:
    given = {"engine": "code", "engine_config": {"agent": "shop:talks"}, "capabilities": {"user": {}}, **spec}
    await stage.agent(agent_id, **given)


async def _run(stage: Stage, text: str, said: str, thread_id: str | None = None, *, agent_id: str = "talks") -> RunView:
    pieces = [said[at : at + 2] for at in range(0, len(said), 2)]
    return await stage.run(text, says(*pieces), agent_id=agent_id, thread_id=thread_id)


def _done(folder: Path) -> list[str]:
    """Return what nodes were executed since the last time."""
    file = folder / "done"
    done = file.read_text(encoding="utf-8").split()
    file.unlink()
    return done


def _last(folder: Path) -> str:
    file = folder / "done"
    return file.read_text(encoding="utf-8").split()[-1] if file.exists() else ""


@proves("graphs.runs", "graphs.state")
async def test_a_graph_streams_once_keeps_its_state_for_the_next_message_and_waits_at_an_interrupt(
    stage: Stage, folder: Path, database: Database
) -> None:
    await _agent(stage)
    first = await _run(stage, "hi", "Hello.")
    assert (first.status, first.text) == ("succeeded", "Hello."), first.error
    assert await stage.tokens() == "Hello."
    rows = await database.fetch("SELECT content FROM messages ORDER BY seq")
    assert [block["text"] for row in rows for block in row[0] if block["type"] == "text"] == ["hi", "Hello."]
    used = await database.fetchrow("SELECT input_tokens, output_tokens, cost_usd FROM usage")
    assert used is not None
    assert tuple(used)[:2] == (10, 5)
    assert used[2] > 0
    rows = await database.fetch("SELECT params->'nodes' FROM tool_calls ORDER BY sequence")
    assert [row[0] for row in rows if row[0]] == [["think"], ["check"]]
    run = await _run(stage, "And?", "Ask.", first.thread_id)
    assert run.status == "waiting", run.error
    said = [("user", "hi"), ("assistant", "Hello."), ("user", "And?")]
    assert (stage.model.conversation(), len(stage.model.requests)) == (said, 1)
    await stage.harness.waiting.answer(stage.harness.tenant_id, run.id, None, Answer(text="b"))
    await stage.harness.settle(stage.harness.worker(keeper=True))
    row = await stage.harness.run(run.id)
    assert (row["status"], row["result_text"]) == ("succeeded", "You said b"), row["error_message"]
    # No node before the one that asked is executed again.
    assert len(stage.model.requests) == 1
    assert _done(folder) == ["think", "check", "think", "check", "check"]


@pytest.mark.long
async def test_a_graph_ends_at_budgets_errors_cancellations_and_drains_as_a_turn_does(
    stage: Stage, folder: Path
) -> None:
    harness = stage.harness
    await _agent(stage, "poor", token_budget=12)
    run = await _run(stage, "hi", "Hello.", agent_id="poor")
    assert (run.stop_reason, run.limit_reached, _done(folder)) == ("max_tokens", "tokens", ["think"]), run.error
    await _agent(stage)
    run = await _run(stage, "hi", "Break.")
    assert (run.status, _done(folder)) == ("failed", ["think", "check"])
    assert run.error is not None
    assert f"ValueError: no luck (at {folder}/code/shop.py:" in run.error.message

    stage.model.reply(says("Wait."))
    worker, other = harness.worker(control=True, keeper=True), harness.worker(keeper=True)
    await harness.wait_for_control_channel()
    accepted = await harness.submit("hi", agent_id="talks")
    slot = await harness.start_next(worker)
    await until(lambda: _last(folder) == "check")
    await harness.canceller.cancel(harness.tenant_id, accepted.run_id)
    await slot
    row = await harness.run(accepted.run_id)
    assert (row["status"], row["stop_reason"]) == ("canceled", "aborted")
    await until(lambda: _last(folder) == "stopped")
    assert _done(folder) == ["think", "check", "stopped"]

    stage.model.requests.clear()
    accepted = await harness.submit("hi", agent_id="talks")
    slot = await harness.start_next(worker)
    await until(lambda: _last(folder) == "check")
    worker.drain()
    worker.stop_in_mid_step()
    await slot
    await until(lambda: _last(folder) == "stopped")
    (folder / "go").touch()
    await harness.settle(other)
    row = await harness.run(accepted.run_id)
    assert (row["status"], row["result_text"], row["attempt"]) == ("succeeded", "Wait.", 2)
    assert (len(stage.model.requests), _done(folder)) == (1, ["think", "check", "stopped", "check"])
