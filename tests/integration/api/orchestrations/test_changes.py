"""The files that agents of an orchestration changed, over HTTP, each with why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.native import NativeTools
from tests.integration.api.orchestrations.conftest import PATH, Orchestrated
from tests.requirements import proves
from tests.support.processes.command_line import Done, Nova
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server

CHANGE = "Something changes."
BUG = "The bug is an off-by-one in the loop; this fixes it."


@pytest.fixture
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of people, outside of NOVA_HOME."""
    return tmp_path_factory.mktemp("project")


@pytest.fixture
async def model(orchestrated: Orchestrated, project: Path) -> AsyncIterator[ModelServer]:
    """The model of the agent `writer`, whose tools change files."""
    async with model_server() as server:
        engine = AnthropicEngine(api_key="k", base_url=server.url, max_retries=0, native=NativeTools())
        orchestrated.harness.engines["anthropic"] = engine
        spec = {"name": "Writer", "engine": "anthropic", "trust": "controlled", "directories": [str(project)]}
        await orchestrated.harness.add_agent("writer", spec)
        yield server
        await engine.close()


def says(text: str, *calls: tuple[str, dict[str, Any]]) -> Stream:
    """Return a response with text and calls of tools. The ids of calls repeat from turn to turn."""
    tools = (Part("tool", (f"toolu_{at}_{name}", name, given)) for at, (name, given) in enumerate(calls))
    return Stream((Part("text", [text]), *tools))


def reply_to(model: ModelServer, prompt: str, *replies: Stream) -> None:
    """Answer the conversation that begins with a prompt."""
    model.reply_when(lambda _, body: prompt in str(body["messages"][0]), *replies)


def child(name: str, directory: Path) -> tuple[str, dict[str, Any]]:
    return "spawn_child", {"prompt": f"Work of {name}", "name": name, "wait": True, "cwd": str(directory / name)}


async def changed(orchestrated: Orchestrated, model: ModelServer, directory: Path) -> dict[str, Any]:
    """Run a tree with two agents, which change three files and fail to change a fourth; return its view."""
    parser, notes, names = (str(directory / name) for name in ("Fixer/parser.py", "Fixer/notes.md", "Namer/names.py"))
    reply_to(
        model,
        "Tidy up",
        says("I delegate.", child("Fixer", directory), child("Namer", directory)),
        says("All is done."),
    )
    reply_to(
        model,
        "Work of Fixer",
        says(BUG, ("Write", {"file_path": parser, "content": "x" * 10_000})),
        says(CHANGE, ("Edit", {"file_path": "/etc/passwd", "old_string": "a", "new_string": "b"})),
        says("", ("Write", {"file_path": notes, "content": "n"}), ("Read", {"file_path": parser})),
        says("Fixed."),
    )
    reply_to(model, "Work of Namer", says("Names.", ("Write", {"file_path": names, "content": "n"})), says("Named."))
    body = {"agent_id": "writer", "task": "Tidy up"}
    started = await orchestrated.api.http.post(PATH, json=body)
    assert started.status_code == 201, started.text
    await orchestrated.settle()
    view = await orchestrated.get(started.json()["id"])
    assert view["state"] == "COMPLETED", view
    return view


@proves("orchestration.rationale")
async def test_changes_of_files_come_with_their_agent_and_their_rationale(
    orchestrated: Orchestrated, model: ModelServer, project: Path
) -> None:
    view = await changed(orchestrated, model, project)
    agents = {agent["name"]: agent for agent in (await orchestrated.get(view["id"], "/tree"))["agents"]}
    changes = (await orchestrated.get(view["id"], "/changes"))["items"]
    assert changes == sorted(changes, key=lambda each: each["at"])
    by_file = {Path(each["path"]).name: each for each in changes}
    assert set(by_file) == {"parser.py", "notes.md", "names.py"}, "A failed call changed nothing."
    first = by_file["parser.py"]
    assert (first["agent_id"], first["run_id"]) == (agents["Fixer"]["id"], agents["Fixer"]["run_id"])
    assert (first["tool_call_id"], first["tool_name"]) == ("toolu_0_Write", "Write")
    assert (first["rationale"], first["score"]) == (BUG, 6)
    assert by_file["notes.md"]["rationale"] == BUG, "It is looked for in ten entries before the call."
    assert (by_file["names.py"]["rationale"], by_file["names.py"]["score"]) == (None, 0)


async def test_changes_are_read_in_pages_and_of_one_agent(
    orchestrated: Orchestrated, model: ModelServer, project: Path
) -> None:
    view = await changed(orchestrated, model, project)
    path, http = f"{PATH}/{view['id']}/changes", orchestrated.api.http
    whole = (await http.get(path)).json()["items"]
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = (await http.get(path, params={"limit": 1, **({"cursor": cursor} if cursor else {})})).json()
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == whole
    agents = {agent["name"]: agent["id"] for agent in (await orchestrated.get(view["id"], "/tree"))["agents"]}
    own = (await http.get(path, params={"agent": agents["Namer"][-8:]})).json()["items"]
    assert [each["agent_id"] for each in own] == [agents["Namer"]]
    assert (await http.get(path, params={"agent": agents["Master"]})).json()["items"] == []
    first = (await http.get(path, params={"limit": 1})).json()["next_cursor"]
    refused = await http.get(path, params={"cursor": first, "agent": agents["Namer"]})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor")
    unknown = await http.get(path, params={"agent": "oag_nothing"})
    assert (unknown.status_code, agents["Namer"] in unknown.json()["detail"]) == (404, True)


async def test_the_command_line_shows_each_file_with_who_changed_it_and_why(
    orchestrated: Orchestrated, model: ModelServer, project: Path, tmp_path: Path
) -> None:
    view = await changed(orchestrated, model, project)
    api = orchestrated.api
    nova = Nova({"NOVA_HOME": str(tmp_path), "NOVA_API_URL": api.url, "NOVA_API_KEY": api.tenant.key, "NO_COLOR": "1"})

    async def run(*arguments: str) -> Done:
        with nova.child("orchestrations", *arguments) as child:
            return await asyncio.to_thread(child.done)

    listed = (await run("changes", view["id"])).out
    assert listed.splitlines()[0].split() == ["file", "agent", "why", "tool", "at"]
    line = next(line for line in listed.splitlines() if "parser.py" in line)
    assert "Fixer" in line
    assert BUG in line
    own = (await run("changes", view["id"], "--agent", view["master_id"])).err
    assert "No file was changed" in own
    watched = await run("tree", view["id"], "--follow")
    assert watched.out == "All is done.\n"
    assert f"✎ {project / 'Fixer' / 'parser.py'} · Fixer: {BUG}\n" in watched.err
    assert f"✎ {project / 'Namer' / 'names.py'} · Namer\n" in watched.err
