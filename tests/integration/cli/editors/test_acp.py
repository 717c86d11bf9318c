"""`nova acp` with the client of the protocol's own SDK, and a real fleet."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.connection import Connection
from acp.interfaces import Client
from acp.schema import ClientCapabilities, EnvVariable, McpServerStdio

from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.wire import AgentCreate
from tests.integration.cli.editors.editor import TestEditor
from tests.integration.cli.editors.opened import opened
from tests.requirements import proves
from tests.support.processes.fleet import Fleet
from tests.support.servers.installed_programs import ACP_CLIENT, why_no_acp_client
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

Script = Callable[..., str]


@proves("doors.acp")
async def test_an_editor_talks_and_its_files_and_terminal_are_tools(
    fleet: Fleet, tmp_path: Path, script: Script
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\ntwo\n")
    editor = TestEditor()
    editor.answers = ["once", "no", "always"]
    calls: list[dict[str, Any]] = [
        {"name": "editor_read_file", "input": {"path": "a.txt", "line": 2}, "id": "c_read"},
        {"name": "editor_edit_file", "input": {"path": "a.txt", "old_text": "two", "new_text": "2"}, "id": "c_edit"},
        {"name": "editor_write_file", "input": {"path": "b.txt", "content": "no"}, "id": "c_write"},
        {"name": "editor_run_command", "input": {"command": "cat a.txt"}, "id": "c_run"},
    ]
    items = [{"say": f"Step {index}. ", "tool": call} for index, call in enumerate(calls)]
    async with opened(fleet, editor) as agent:
        session = await agent.new_session(cwd=str(project), mcp_servers=[])
        assert session.modes is not None
        assert session.modes.current_mode_id == "ask"
        answer = await agent.prompt(session.session_id, [text_block(script(*items, {"say": "Done."}))])
        assert answer.stop_reason == "end_turn"
        assert editor.text(session.session_id) == "Step 0. Step 1. Step 2. Step 3. Done."
        assert (project / "a.txt").read_text() == "one\n2\n"
        assert not (project / "b.txt").exists()
        assert [options for _, options in editor.asked] == [("once", "always", "no")] * 3
        updates = editor.of(session.session_id, "tool_call_update")
        assert [update.status for update in updates if update.tool_call_id == "c_write"][-1] == "failed"
        (edited, *_) = [update for update in updates if update.tool_call_id == "c_edit" and update.content]
        assert (edited.content[0].old_text, edited.content[0].new_text) == ("one\ntwo\n", "one\n2\n")
        assert edited.locations[0].path == str(project / "a.txt")
        shown = json.dumps([update.model_dump(mode="json") for update in updates])
        assert "term_0" in shown
        read = [update for update in updates if update.tool_call_id == "c_read" and update.content]
        assert read[-1].content[0].content.text == "two\n"


@proves("doors.acp")
async def test_a_session_is_listed_loaded_resumed_and_deleted(fleet: Fleet, tmp_path: Path, script: Script) -> None:
    editor = TestEditor()
    async with opened(fleet, editor) as agent:
        made = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
        other = await agent.new_session(cwd="/elsewhere", mcp_servers=[])
        await agent.prompt(made.session_id, [text_block(script({"think": "Hm", "say": "First."}))])
    again = TestEditor()
    async with opened(fleet, again) as agent:
        listed = await agent.list_sessions(cwd=str(tmp_path))
        assert [session.session_id for session in listed.sessions] == [made.session_id]
        await agent.load_session(cwd=str(tmp_path), session_id=made.session_id, mcp_servers=[])
        kinds = [update.session_update for _, update in again.updates]
        assert kinds == ["user_message_chunk", "agent_thought_chunk", "agent_message_chunk"]
        await agent.resume_session(cwd=str(tmp_path), session_id=other.session_id, mcp_servers=[])
        answer = await agent.prompt(other.session_id, [text_block(script({"say": "Second."}))])
        assert (answer.stop_reason, again.text(other.session_id)) == ("end_turn", "Second.")
        await agent.close_session(session_id=other.session_id)
        with pytest.raises(RequestError, match="is not open"):
            await agent.prompt(other.session_id, [text_block("hello")])
        # The SDK's client has no method for it.
        connection: Connection = vars(agent)["_conn"]
        await connection.send_request("session/delete", {"sessionId": other.session_id})
        with pytest.raises(RequestError, match="deleted"):
            await agent.load_session(cwd="/", session_id=other.session_id, mcp_servers=[])


@proves("doors.acp")
async def test_a_run_goes_on_without_the_editor_and_the_next_one_finishes_it(
    fleet: Fleet, tmp_path: Path, script: Script
) -> None:
    (tmp_path / "a.txt").write_text("still here")
    editor = TestEditor()
    call = {"name": "editor_run_command", "input": {"command": "cat a.txt"}, "id": "c_late"}
    async with opened(fleet, editor) as agent:
        made = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
        message = text_block(script({"say": "Wait. ", "tool": call}, {"say": "Ok."}))
        prompt = asyncio.ensure_future(agent.prompt(made.session_id, [message]))
        # The person looks at the question when the editor ends.
        await until(lambda: editor.asked)
    with pytest.raises(ConnectionError):
        await prompt
    again = TestEditor()
    again.answers = ["once"]
    async with opened(fleet, again) as agent:
        await agent.load_session(cwd=str(tmp_path), session_id=made.session_id, mcp_servers=[])
        await until(lambda: again.text(made.session_id).endswith("Ok."))
        # What was said before is there once, though the run goes on.
        assert again.text(made.session_id) == "Wait. Ok."
        (prompted,) = again.of(made.session_id, "user_message_chunk")
        assert prompted.content.text == message.text
    results = [update for update in again.of(made.session_id, "tool_call_update") if update.tool_call_id == "c_late"]
    assert results[-1].status == "completed"


@pytest.fixture
async def asking(fleet: Fleet) -> AsyncGenerator[str]:
    """An agent that may ask people, and whose calls of one tool need a permission."""
    spec = {
        "id": "asking",
        "name": "Asking",
        "capabilities": {"user": {}, "memory": {}},
        "permissions": {"approvals": [{"tool": "memory_list", "decision": "ask"}]},
    }
    async with NovaClient(fleet.api_url, fleet.api_key) as client:
        yield (await client.agents.create(AgentCreate.model_validate(spec))).id
        await client.agents.delete("asking")


@proves("doors.acp")
async def test_questions_permissions_cancels_and_options(
    fleet: Fleet, tmp_path: Path, script: Script, asking: str
) -> None:
    editor = TestEditor()
    editor.answers = ["allow", "1"]
    ask: dict[str, Any] = {"name": "ask_user", "input": {"question": "Tea?"}}
    choose = {"name": "ask_user", "input": {"question": "Which?", "options": ["a", "b"], "only_options": True}}
    async with opened(fleet, editor, agent_id=asking) as agent:
        session = (await agent.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        items: list[dict[str, Any]] = [{"tool": {"name": "memory_list", "input": {}}}, {"tool": ask}, {"tool": choose}]
        first = await agent.prompt(session, [text_block(script(*items, {"say": " Good."}))])
        assert (first.stop_reason, editor.text(session)) == ("end_turn", "Tea?")
        second = await agent.prompt(session, [text_block("Yes, please.")])
        assert (second.stop_reason, editor.text(session)) == ("end_turn", "Tea? Good.")
        assert [options for _, options in editor.asked] == [("allow", "reject"), ("0", "1")]
        results = json.dumps([update.model_dump(mode="json") for update in editor.of(session, "tool_call_update")])
        assert "Yes, please." in results

        # A dialog that is closed leaves the question to the next prompt, and permits nothing.
        editor.answers = [None]
        closed = await agent.prompt(session, [text_block(script({"tool": choose}, {"say": " Well."}))])
        assert (closed.stop_reason, editor.text(session)[-14:]) == ("end_turn", "Which?\n- a\n- b")
        with pytest.raises(RequestError, match="options"):
            await agent.prompt(session, [text_block("neither")])
        assert (await agent.prompt(session, [text_block("a")])).stop_reason == "end_turn"
        assert editor.text(session).endswith(" Well.")
        editor.answers = [None]
        listing = {"tool": {"name": "memory_list", "input": {}}}
        await agent.prompt(session, [text_block(script(listing, {"say": " Refused."}))])
        assert editor.text(session).endswith(" Refused.")
        assert [update.status for update in editor.of(session, "tool_call_update")][-1] == "failed"

        asked = len(editor.asked) + 1
        waits = asyncio.ensure_future(agent.prompt(session, [text_block(script({"tool": choose}, {"say": "no"}))]))
        await until(lambda: len(editor.asked) == asked)
        await agent.cancel(session_id=session)
        assert (await waits).stop_reason == "cancelled"

        with pytest.raises(RequestError, match="broke"):
            await agent.prompt(session, [text_block(script({"error": {"message": "it broke"}}))])
        made = await agent.set_config_option(session_id=session, config_id="model", value="haiku")
        assert made is not None
        assert made.config_options[0].current_value == "haiku"
        await agent.set_session_mode(session_id=session, mode_id="read")
        for wrong in (
            agent.set_session_mode(session_id=session, mode_id="god"),
            agent.set_config_option(session_id=session, config_id="model", value="x"),
            agent.new_session(cwd="not/absolute", mcp_servers=[]),
            agent.prompt(session, []),
        ):
            with pytest.raises(RequestError) as refused:
                await wrong
            assert refused.value.code == -32602


@proves("doors.acp")
async def test_servers_of_the_editor_run_where_it_is_and_one_that_fails_is_named(
    fleet: Fleet, tmp_path: Path, script: Script
) -> None:
    editor = TestEditor()
    editor.answers = ["once"]
    program = ["-m", "tests.support.servers.mcp_stdio_server"]
    greeting = EnvVariable(name="GREETING", value="hi ")
    good = McpServerStdio(name="here", command=sys.executable, args=program, env=[greeting])
    bad = McpServerStdio(name="away", command="/no/such/program", args=[], env=[])
    async with opened(fleet, editor, ClientCapabilities()) as agent:
        session = (await agent.new_session(cwd=str(Path.cwd()), mcp_servers=[good, bad])).session_id
        await until(lambda: editor.of(session, "agent_thought_chunk"))
        assert "away" in editor.of(session, "agent_thought_chunk")[0].content.text
        call = {"name": "here__echo", "input": {"text": "there"}, "id": "c_echo"}
        await agent.prompt(session, [text_block(script({"tool": call}, {"say": "Five."}))])
        assert editor.text(session) == "Five."
        shown = [update for update in editor.of(session, "tool_call_update") if update.tool_call_id == "c_echo"]
        assert shown[-1].content[0].content.text == "hi there"

        # A mode that only reads has those tools alone that change nothing.
        await agent.set_session_mode(session_id=session, mode_id="read")
        editor.answers = ["once"]
        reading = {"name": "here__pid", "input": {}, "id": "c_pid"}
        changing = {"name": "here__echo", "input": {"text": "there"}, "id": "c_refused"}
        await agent.prompt(session, [text_block(script({"tool": reading}, {"tool": changing}))])
        updates = editor.of(session, "tool_call_update")
        refused = json.dumps([each.model_dump(mode="json") for each in updates if each.tool_call_id == "c_refused"])
        assert "hi there" not in refused
        assert [title for title, _ in editor.asked] == ["here__echo", "here__pid"]


@proves("doors.acp")
async def test_the_command_serves_an_editor(fleet: Fleet, tmp_path: Path) -> None:
    env = {"NOVA_API_URL": fleet.api_url, "NOVA_API_KEY": fleet.api_key, "NOVA_HOME": str(tmp_path)}
    command = (sys.executable, "-m", "nova_workers.cli", "acp")
    async with spawn_agent_process(cast("Client", TestEditor()), *command, env=env) as (agent, process):
        about = await agent.initialize(protocol_version=PROTOCOL_VERSION)
        assert about.agent_info is not None
        assert about.agent_info.title == "Nova"
        assert process.returncode is None


_NO_CLIENT = why_no_acp_client()


@pytest.mark.skipif(_NO_CLIENT is not None, reason=_NO_CLIENT or "")
@proves("doors.acp")
async def test_the_typescript_sdk_accepts_all_that_an_editor_gets(fleet: Fleet, tmp_path: Path, script: Script) -> None:
    file = tmp_path / "a.txt"
    await asyncio.to_thread(file.write_text, "one")
    call = {
        "name": "editor_edit_file",
        "input": {"path": "a.txt", "old_text": "one", "new_text": "two"},
        "id": "c_edit",
    }
    asked = {
        "command": [sys.executable, "-m", "nova_workers.cli", "acp"],
        "cwd": str(tmp_path),
        "prompt": script({"think": "Hm", "say": "Look. ", "tool": call}, {"say": "Done."}),
    }
    env = {
        **os.environ,
        "NOVA_API_URL": fleet.api_url,
        "NOVA_API_KEY": fleet.api_key,
        "NOVA_HOME": str(tmp_path / "home"),
    }
    done = await asyncio.to_thread(
        subprocess.run, ["node", ACP_CLIENT, json.dumps(asked)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["answer"]["stopReason"], seen["permissions"]) == ("end_turn", [f"editor_edit_file {file}"])
    assert await asyncio.to_thread(file.read_text) == "two"
    assert len(seen["sessions"]) == 1
    kinds = [update["sessionUpdate"] for update in seen["replayed"]]
    assert kinds[:4] == ["user_message_chunk", "agent_thought_chunk", "agent_message_chunk", "tool_call"]
    text = "".join(
        update["content"]["text"] for update in seen["replayed"] if update["sessionUpdate"] == "agent_message_chunk"
    )
    assert text == "Look. Done."
