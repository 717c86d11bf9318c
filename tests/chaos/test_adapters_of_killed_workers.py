"""A worker that executes a graph of LangGraph is killed: another one goes on after the last node that ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nova_workers.contracts.http.wire import AgentCreate, StatelessRunCreate
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.data.chat_model import CHAT_MODEL
from tests.support.processes.fleet import Fleet, add_api_key
from tests.support.processes.inspection import wait_until_gone
from tests.support.servers.model_server import Part, Stream, model_server
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

COMMON = """
import os
from pathlib import Path

HERE = Path(__file__).parent.parent

def did(name):
    with (HERE / "done").open("a") as file:
        file.write(f"{name} {os.getpid()}\\n")
"""

GRAPH = (
    CHAT_MODEL
    + """
import asyncio
from langgraph.graph import END, START, MessagesState, StateGraph
from nova_workers.sdk import Context, Message, agent
from nova_workers.sdk.adapters.langgraph import run_graph
from .common import HERE, did

async def think(state: MessagesState):
    return {"messages": [await Asked().ainvoke(state["messages"])]}

def act(state: MessagesState):
    did("graph-act")
    return {"messages": [("user", "It is done.")]}

async def wait(state: MessagesState):
    did("graph-wait")
    while not (HERE / "go").exists():
        await asyncio.sleep(0.05)
    return {}

builder = StateGraph(MessagesState)
for name, node in {"think": think, "act": act, "wait": wait, "answer": think}.items():
    builder.add_node(name, node)
for pair in ((START, "think"), ("think", "act"), ("act", "wait"), ("wait", "answer"), ("answer", END)):
    builder.add_edge(*pair)
graph = builder.compile()

@agent
async def plays(ctx: Context, message: Message) -> str:
    state = await run_graph(ctx, graph, {"messages": [("user", message.text)]})
    return " ".join(each.text for each in state["messages"])
"""
)


def _done(folder: Path) -> list[tuple[str, int]]:
    file = folder / "done"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [(name, int(pid)) for name, pid in map(str.split, lines)]


@proves("graphs.resumed")
async def test_a_graph_of_a_killed_worker_goes_on_elsewhere_after_its_last_node(
    env: dict[str, str], database: Database, tmp_path: Path
) -> None:
    key, tenant = await add_api_key(env["NOVA_DATABASE_URL"])
    project = {"name": "shop", "folder": str(tmp_path), "tenant": tenant}
    own = {"NOVA_TOOLS__PROJECTS": json.dumps([project])}
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "common.py").write_text(COMMON, encoding="utf-8")
    async with model_server() as model:
        (tmp_path / "code" / "graph.py").write_text(f"URL = {model.url!r}\n{GRAPH}", encoding="utf-8")
        model.reply(Stream((Part("text", ["One."]),)), Stream((Part("text", ["Two."]),)))
        async with Fleet({**env, **own}, workers=1, beat=True, api_key=key) as fleet:
            spec = {"id": "player", "name": "Player", "engine": "code", "engine_config": {"agent": "shop:plays"}}
            await fleet.client.agents.create(AgentCreate.model_validate(spec))
            run = await fleet.client.runs.create(StatelessRunCreate(message="go", agent_id="player"))
            await until(lambda: [name for name, _ in _done(tmp_path)] == ["graph-act", "graph-wait"])
            fleet.workers[0].kill()
            assert not wait_until_gone([_done(tmp_path)[0][1]], timeout_s=20)
            await fleet.start_worker()
            await until(lambda: len(_done(tmp_path)) == 3)
            (tmp_path / "go").touch()
            ended = await fleet.client.runs.result(run.id, timeout_s=60)
            assert (ended.status, ended.attempt) == ("succeeded", 2), ended.error
            assert ended.text == "go One. It is done. Two."
            assert [name for name, _ in _done(tmp_path)] == ["graph-act", "graph-wait", "graph-wait"]
            assert len(model.requests) == 2
            used = await database.fetchrow("SELECT sum(input_tokens), sum(output_tokens) FROM usage")
            assert used is not None
            assert tuple(used) == (20, 10)
