"""What an editor is shown of a run, what its prompts become, and what its modes allow."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from acp import RequestError
from acp.client.connection import ClientSideConnection
from acp.connection import Connection
from acp.helpers import (
    embedded_blob_resource,
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
    text_block,
)
from acp.interfaces import Client
from acp.router import MessageRouter
from acp.schema import AudioContentBlock, ClientCapabilities, FileSystemCapabilities

from nova_workers.base.stopping import stop_tasks
from nova_workers.cli.acp.editor import Editor
from nova_workers.cli.acp.mcp_servers import ToolServers
from nova_workers.cli.acp.prompts import message_of
from nova_workers.cli.acp.tools import EditorTools
from nova_workers.cli.acp.updates import LiveUpdates, StoredUpdates, plan_of
from nova_workers.contracts.events import (
    AssistantMessage,
    Event,
    Restart,
    Step,
    StreamStart,
    Token,
    ToolServersAway,
    ToolStatus,
)
from nova_workers.contracts.http.tasks import StepView, TaskView
from nova_workers.contracts.http.wire import MessageView
from tests.integration.cli.editors.editor import TestEditor
from tests.requirements import proves

_START = StreamStart(run_id="r", thread_id="t", attempt=1, agent_id="a")


@asynccontextmanager
async def _editor(person: TestEditor) -> AsyncGenerator[Editor]:
    """Connect to an editor that has files and terminals."""
    ends = [await asyncio.open_connection(sock=each) for each in socket.socketpair()]
    connection = Connection(MessageRouter(), ends[0][1], ends[0][0])
    editors_end = ClientSideConnection(cast("Client", person), ends[1][1], ends[1][0])
    editor = Editor(connection)
    files = FileSystemCapabilities(read_text_file=True, write_text_file=True)
    editor.capabilities = ClientCapabilities(fs=files, terminal=True)
    try:
        yield editor
    finally:
        await connection.close()
        await editors_end.close()
        for _, writer in ends:
            writer.close()


def _shown(events: Sequence[Event]) -> list[tuple[str, str, Any]]:
    live = LiveUpdates("r")
    updates: list[Any] = [update for event in events for update in live.of(event)]
    return [(update.session_update, update.content.text, update.message_id) for update in updates]


def test_text_is_sent_once_and_a_new_message_begins_after_a_call_or_a_restart() -> None:
    started = ToolStatus(tool_call_id="c", tool_name="x", status="started")
    live = LiveUpdates("r")
    events: list[Event] = [_START, Token(text="a"), Token(text="b"), AssistantMessage(text="ab"), started]
    kinds = [update.session_update for event in events for update in live.of(event)]
    assert kinds == ["agent_message_chunk", "agent_message_chunk", "tool_call"]
    # The whole text may come after the call that its step makes.
    assert _shown([_START, Token(text="a"), AssistantMessage(text="ab"), Step(index=0), Token(text="c")]) == [
        ("agent_message_chunk", "a", "r-m0"),
        ("agent_message_chunk", "b", "r-m0"),
        ("agent_message_chunk", "c", "r-m1"),
    ]
    live = LiveUpdates("r")
    events = [_START, Token(text="a"), started, AssistantMessage(text="a", step=0), Step(index=0)]
    kinds = [update.session_update for event in events for update in live.of(event)]
    assert kinds == ["agent_message_chunk", "tool_call"]
    assert _shown([_START, Token(text="a"), Restart(), Token(text="b")]) == [
        ("agent_message_chunk", "a", "r-m0"),
        ("agent_thought_chunk", "The answer broke off, and begins again.\n", "r-t1"),
        ("agent_message_chunk", "b", "r-m1"),
    ]
    assert _shown([_START, Token(text="a"), Step(index=0), _START, AssistantMessage(text="a", step=0)]) == [
        ("agent_message_chunk", "a", "r-m0")
    ]
    assert _shown([_START, Token(text="a", agent="sub"), AssistantMessage(text="whole")]) == [
        ("agent_message_chunk", "whole", "r-m0")
    ]
    away = ToolServersAway.model_validate({"servers": [{"name": "db", "reason": "refused"}]})
    assert _shown([away])[0][1] == "The tool server db is away: refused\n"


def test_changes_of_files_are_shown_as_such_and_results_do_not_replace_them() -> None:
    def message(role: str, *content: dict[str, Any]) -> MessageView:
        fields = {"id": "m", "turn_id": "t", "thread_id": "t", "kind": "response", "created_at": "2026-01-01T00:00:00Z"}
        return MessageView.model_validate({**fields, "role": role, "content": list(content)})

    stored = StoredUpdates()
    params = {"file_path": "/a", "old_string": "x", "new_string": "y"}
    used = message("assistant", {"type": "tool_use", "id": "c", "name": "Edit", "input": params})
    (call,) = cast("list[Any]", list(stored.replayed(used)))
    assert (call.kind, call.title, call.locations[0].path) == ("edit", "Edit /a", "/a")
    assert (call.content[0].old_text, call.content[0].new_text) == ("x", "y")
    good = message("user", {"type": "tool_result", "tool_use_id": "c", "content": "edited"})
    (done,) = cast("list[Any]", list(stored.replayed(good)))
    assert (done.status, done.content) == ("completed", None)
    bad = message("user", {"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True})
    (failed,) = cast("list[Any]", list(stored.details(bad)))
    assert (failed.status, failed.content[0].content.text) == ("failed", "no")


def test_prompts_become_messages_and_commands_name_skills() -> None:
    blocks = message_of(
        [
            text_block("/review the diff"),
            image_block("aGk=", "image/png"),
            resource_link_block("a.py", "file:///a.py"),
            resource_block(embedded_text_resource("file:///b", "text")),
            resource_block(embedded_blob_resource("file:///c.pdf", "aGk=", mime_type="application/pdf")),
        ],
        {"review": "Reviews changes."},
    )
    assert [block["type"] for block in blocks] == ["text", "image", "text", "text", "document"]
    assert blocks[0]["text"] == "Use the skill 'review'. the diff"
    assert blocks[2]["text"] == "[a.py](file:///a.py)"
    assert message_of([text_block("/other")], {"review": ""})[0]["text"] == "/other"
    sound = AudioContentBlock(type="audio", data="aGk=", mime_type="audio/wav")
    zipped = resource_block(embedded_blob_resource("file:///c.zip", "aGk=", mime_type="application/zip"))
    for wrong, word in ((sound, "audio"), (zipped, "application/zip")):
        with pytest.raises(RequestError, match=word):
            message_of([wrong], {})


def test_the_steps_of_a_task_are_a_plan() -> None:
    steps = [{"id": "x", "title": f"s{n}", "details": "", "done": n < 1, "subtask": None} for n in range(3)]
    task = TaskView.model_construct(status="active", steps=[StepView.model_validate(step) for step in steps])
    assert [(entry.content, entry.status) for entry in plan_of(task).entries] == [
        ("s0", "completed"),
        ("s1", "in_progress"),
        ("s2", "pending"),
    ]


async def test_an_editor_that_releases_no_terminal_holds_up_nothing(tmp_path: Path) -> None:
    class Forgetful(TestEditor):
        async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
            await asyncio.Future[None]()

    async with _editor(Forgetful()) as editor:
        tools = EditorTools(editor, "thr_1", (tmp_path,), ToolServers(), set[str]().add, mode="auto")
        async with asyncio.timeout(30):
            assert await tools.call("c_1", "editor_run_command", {"command": "echo one"}) == ("one\n", False)


@proves("doors.acp")
async def test_a_terminal_that_opens_after_its_call_was_canceled_is_released(tmp_path: Path) -> None:
    class Slow(TestEditor):
        def __init__(self) -> None:
            super().__init__()
            self.asked_for, self.opens = asyncio.Event(), asyncio.Event()
            self.released: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def create_terminal(self, session_id: str, command: str, *args: Any, **more: Any) -> Any:
            self.asked_for.set()
            await self.opens.wait()
            return await super().create_terminal(session_id, command, *args, **more)

        async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:
            self.released.set_result(terminal_id)
            return await super().release_terminal(session_id, terminal_id)

    person = Slow()
    async with _editor(person) as editor:
        tools = EditorTools(editor, "thr_1", (tmp_path,), ToolServers(), set[str]().add, mode="auto")
        call = asyncio.create_task(tools.call("c_1", "editor_run_command", {"command": "echo one"}))
        await person.asked_for.wait()
        await stop_tasks([call])
        assert call.cancelled()
        person.opens.set()
        async with asyncio.timeout(30):
            assert await person.released == "term_0"


async def test_a_mode_holds_for_tools_that_were_offered_before(tmp_path: Path) -> None:
    person = TestEditor()
    write = {"path": "a.txt", "content": "one"}
    async with _editor(person) as editor:
        tools = EditorTools(editor, "thr_1", (tmp_path,), ToolServers(), set[str]().add, mode="edit")
        assert (await tools.call("c_1", "editor_write_file", write))[1] is False
        tools.mode = "read"
        text, failed = await tools.call("c_2", "editor_write_file", {**write, "content": "two"})
        assert (failed, "'read'" in text) == (True, True)
        assert (await tools.call("c_3", "editor_read_file", {"path": "a.txt"})) == ("one", False)
        assert person.asked == []
