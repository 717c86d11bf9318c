"""A worker that executes agents of other libraries is killed: another one goes on after their last finished step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nova_workers.contracts.http.wire import AgentCreate, RunView, StatelessRunCreate
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

AGENT = """
import asyncio
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from nova_workers.sdk import Context, Message, agent
from nova_workers.sdk.adapters.pydantic_ai import run_agent
from .common import HERE, did

helper = Agent(AnthropicModel("claude-haiku-4-5", provider=AnthropicProvider(api_key="k", base_url=URL)))

@helper.tool_plain
def act() -> str:
    did("agent-act")
    return "acted"

@helper.tool_plain
async def wait() -> str:
    did("agent-wait")
    while not (HERE / "go").exists():
        await asyncio.sleep(0.05)
    return "waited"

@agent
async def helps(ctx: Context, message: Message) -> str:
    return (await run_agent(ctx, helper, message.text)).output
"""


def _done(folder: Path) -> list[tuple[str, int]]:
    file = folder / "done"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [(name, int(pid)) for name, pid in map(str.split, lines)]


def _names(folder: Path) -> list[str]:
    return sorted(name for name, _ in _done(folder))


# Tests of the kit end each adapter after every step; `test_code_of_killed_workers.py` kills the process of the code.
@pytest.mark.long
@proves("graphs.resumed", "pydantic_ai.resumed")
async def test_agents_of_other_libraries_go_on_elsewhere_after_their_last_finished_step(
    env: dict[str, str], database: Database, tmp_path: Path
) -> None:
    key, tenant = await add_api_key(env["NOVA_DATABASE_URL"])
    project = {"name": "shop", "folder": str(tmp_path), "tenant": tenant}
    own = {"NOVA_TOOLS__PROJECTS": json.dumps([project])}
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "common.py").write_text(COMMON, encoding="utf-8")
    async with model_server() as model:
        (tmp_path / "code" / "graph.py").write_text(f"URL = {model.url!r}\n{GRAPH}", encoding="utf-8")
        (tmp_path / "code" / "helper.py").write_text(f"URL = {model.url!r}\n{AGENT}", encoding="utf-8")
        model.reply_to("play", _says("One."), _says("Two."))
        model.reply_to("help", _calls("act"), _calls("wait"), _says("Done."))
        async with Fleet({**env, **own}, workers=1, beat=True, api_key=key) as fleet:
            runs: list[RunView] = []
            for function, message in (("plays", "play"), ("helps", "help")):
                spec = {"id": function, "name": "It", "engine": "code", "engine_config": {"agent": f"shop:{function}"}}
                await fleet.client.agents.create(AgentCreate.model_validate(spec))
                runs.append(await fleet.client.runs.create(StatelessRunCreate(message=message, agent_id=function)))
            begun = ["agent-act", "agent-wait", "graph-act", "graph-wait"]
            await until(lambda: _names(tmp_path) == begun)
            fleet.workers[0].kill()
            assert not wait_until_gone([pid for _, pid in _done(tmp_path)], timeout_s=20)
            await fleet.start_worker()
            await until(lambda: len(_done(tmp_path)) == 6)
            (tmp_path / "go").touch()
            played, helped = [await fleet.client.runs.result(run.id, timeout_s=60) for run in runs]
            assert (played.status, played.attempt) == ("succeeded", 2), played.error
            assert (helped.status, helped.attempt) == ("succeeded", 2), helped.error
            assert (played.text, helped.text) == ("play One. It is done. Two.", "Done.")
            # What had not ended is executed again, and nothing else is.
            assert _names(tmp_path) == [
                "agent-act",
                "agent-wait",
                "agent-wait",
                "graph-act",
                "graph-wait",
                "graph-wait",
            ]
            assert len(model.requests) == 2 + 3
            rows = await database.fetch("SELECT run_id, input_tokens, output_tokens FROM usage")
            assert {tuple(row) for row in rows} == {(played.id, 20, 10), (helped.id, 30, 15)}


def _says(text: str) -> Stream:
    return Stream((Part("text", [text]),))


def _calls(tool: str) -> Stream:
    return Stream((Part("tool", (f"toolu_{tool}", tool, {})),))
