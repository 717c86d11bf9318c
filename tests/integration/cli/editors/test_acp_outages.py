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

from nova_workers.client.retry import Retry
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
