"""`nova acp` while the fleet does not answer, and while the editor acts on a session that is being opened."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError, text_block
from acp.schema import EnvVariable, McpServerStdio

from nova_workers.client.client import NovaClient
from nova_workers.client.retry import Retry
from nova_workers.contracts.http.fleet import FleetPause
from nova_workers.contracts.http.wire import AgentCreate
from tests.integration.cli.editors.editor import TestEditor
from tests.integration.cli.editors.opened import opened
from tests.requirements import proves
from tests.support.processes.fleet import Fleet
from tests.support.processes.inspection import is_alive
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

Script = Callable[..., str]
_SOON = Retry(attempts=2)


@pytest.fixture
async def link(fleet: Fleet) -> AsyncGenerator[FaultProxy]:
    """The link of an editor to the fleet."""
    async with FaultProxy.to_http(fleet.api_url) as proxy:
        yield proxy


@pytest.fixture
async def client(fleet: Fleet) -> AsyncGenerator[NovaClient]:
    """A client of the fleet, past the link."""
    async with NovaClient(fleet.api_url, fleet.api_key) as client:
        yield client


async def count_runs(client: NovaClient, session: str) -> int:
    """Return how many runs a session's thread has."""
    return len((await client.runs.list(thread_id=session)).items)


def _notes(editor: TestEditor, session: str) -> str:
    return "".join(update.content.text for update in editor.of(session, "agent_thought_chunk"))


@proves("doors.acp")
async def test_what_a_run_asks_after_an_outage_is_answered_without_the_person(
    fleet: Fleet, tmp_path: Path, script: Script, link: FaultProxy
) -> None:
    (tmp_path / "a.txt").write_text("still here")
    editor = TestEditor()
    call = {"name": "editor_read_file", "input": {"path": "a.txt"}, "id": "c_read"}
    words: dict[str, Any] = {"say": "word " * 40, "tokens_per_s": 20, "tool": call}
    async with opened(fleet, editor, url=link.url, retry=_SOON) as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        prompt = asyncio.ensure_future(agent.prompt(session, [text_block(script(words, {"say": "Done."}))]))
        await until(lambda: editor.text(session))
        link.refuses = True
        link.reset()
        with pytest.raises(RequestError):
            await prompt
        link.heal()
        # The run waits for the editor's file, which only this process can read.
        await until(lambda: editor.text(session).endswith("Done."))
        assert editor.text(session) == "word " * 40 + "Done."
        again = await agent.prompt(session, [text_block(script({"say": " Again."}))])
        assert (again.stop_reason, editor.text(session)[-12:]) == ("end_turn", "Done. Again.")


@proves("doors.acp")
@pytest.mark.parametrize("request_lost", [1, 2, 3])
async def test_what_a_run_asks_is_answered_whichever_request_an_outage_hits(
    fleet: Fleet, tmp_path: Path, script: Script, link: FaultProxy, request_lost: int
) -> None:
    (tmp_path / "a.txt").write_text("still here")
    editor = TestEditor()
    call = {"name": "editor_read_file", "input": {"path": "a.txt"}, "id": "c_read"}
    words: dict[str, Any] = {"say": "word " * 20, "tokens_per_s": 20, "tool": call}
    async with opened(fleet, editor, url=link.url, retry=_SOON) as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        prompt = asyncio.ensure_future(agent.prompt(session, [text_block(script(words, {"say": "Done."}))]))
        await until(lambda: editor.text(session))
        link.goes_away_at = request_lost
        with pytest.raises(RequestError) as lost:
            await prompt
        assert lost.value.data is not None
        assert lost.value.data["run_id"].startswith("run_")
        link.heal()
        await until(lambda: editor.text(session) == "word " * 20 + "Done.")
        await until(lambda: "completed" in [each.status for each in editor.of(session, "tool_call_update")])


@proves("doors.acp")
async def test_a_prompt_that_is_repeated_after_an_outage_is_sent_once(
    fleet: Fleet, tmp_path: Path, script: Script, link: FaultProxy, client: NovaClient
) -> None:
    editor = TestEditor()
    message: list[Any] = [text_block(script({"say": "Once."}))]
    async with opened(fleet, editor, url=link.url, retry=Retry(attempts=1)) as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        await agent.prompt(session, [text_block(script({"say": "Before. "}))])
        # The fleet accepts it, and does not answer.
        link.loses_answer_to = b"POST /v1/threads/"
        with pytest.raises(RequestError) as lost:
            await agent.prompt(session, message)
        assert lost.value.data is not None
        assert lost.value.data["code"] == "outcome_unknown"
        assert (await agent.prompt(session, message)).stop_reason == "end_turn"
        assert editor.text(session) == "Before. Once."
        assert await count_runs(client, session) == 2


@proves("doors.acp")
async def test_a_run_that_has_no_worker_is_followed_when_its_session_is_loaded(
    fleet: Fleet, tmp_path: Path, script: Script, client: NovaClient
) -> None:
    await client.agents.create(AgentCreate(id="paused", name="Paused"))
    pause = FleetPause(scope="agent", agent_id="paused")
    await client.fleet.pause(pause)
    first, again = TestEditor(), TestEditor()
    async with opened(fleet, first, agent_id="paused") as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        prompt = asyncio.ensure_future(agent.prompt(session, [text_block(script({"say": "At last."}))]))
        await until(lambda: count_runs(client, session))
    with pytest.raises(ConnectionError):
        await prompt
    async with opened(fleet, again, agent_id="paused") as agent:
        await agent.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[])
        assert len(again.of(session, "user_message_chunk")) == 1
        await client.fleet.resume(pause)
        await until(lambda: again.text(session) == "At last.")


@proves("doors.acp")
async def test_a_cancel_that_the_fleet_did_not_take_is_named(
    fleet: Fleet, tmp_path: Path, script: Script, link: FaultProxy
) -> None:
    editor = TestEditor()
    call = {"name": "editor_run_command", "input": {"command": "true"}, "id": "c_run"}
    async with opened(fleet, editor, url=link.url, retry=_SOON) as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        prompt = asyncio.ensure_future(agent.prompt(session, [text_block(script({"tool": call}))]))
        await until(lambda: editor.asked)
        # The stream stays; what is sent to the fleet does not arrive.
        link.blocks_requests = True
        await agent.cancel(session_id=session)
        assert (await prompt).stop_reason == "cancelled"
        assert "was not canceled" in _notes(editor, session)
        link.heal()


@proves("doors.acp")
async def test_a_session_that_is_opened_twice_at_once_is_there_once(
    fleet: Fleet, tmp_path: Path, script: Script
) -> None:
    editor = TestEditor()
    pids = tmp_path / "pids"
    program = f"echo $$ >> {pids}; exec {sys.executable} -m tests.support.servers.mcp_stdio_server"
    path = EnvVariable(name="PYTHONPATH", value=os.pathsep.join(sys.path))
    server = McpServerStdio(name="here", command="/bin/sh", args=["-c", program], env=[path])
    async with opened(fleet, editor) as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        await agent.prompt(session, [text_block(script({"say": "One."}))])
        loads = [agent.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[server]) for _ in range(2)]
        await asyncio.gather(*loads)
        await agent.close_session(session_id=session)
        started = [int(pid) for pid in (await asyncio.to_thread(pids.read_text)).split()]
        assert len(started) == 2
        assert not [pid for pid in started if is_alive(pid)]


@proves("doors.acp")
async def test_a_session_that_is_loaded_again_leaves_its_prompt_and_keeps_the_run(
    fleet: Fleet, tmp_path: Path, script: Script
) -> None:
    (tmp_path / "a.txt").write_text("here")
    editor = TestEditor()
    call = {"name": "editor_run_command", "input": {"command": "cat a.txt"}, "id": "c_run"}
    async with opened(fleet, editor) as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        prompt = asyncio.ensure_future(agent.prompt(session, [text_block(script({"tool": call}, {"say": "Done."}))]))
        await until(lambda: editor.asked)
        await agent.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[])
        assert (await prompt).stop_reason == "cancelled"
        editor.answers = ["once"]
        # The dialog of the first one is still open; the second one is answered.
        await until(lambda: editor.text(session) == "Done.")
