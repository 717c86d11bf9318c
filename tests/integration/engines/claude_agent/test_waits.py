"""Calls whose results come from outside: the program ends, and another continues when the result is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

from nova_workers.contracts.content import JsonObject, text_block, text_of
from nova_workers.contracts.engine import (
    DEFERRAL,
    EngineResult,
    InProcessMcpServer,
    StepRecord,
    SubagentConfig,
    ToolAuthorization,
    ToolCallStatus,
)
from nova_workers.engines.claude_agent import ClaudeAgentEngine
from nova_workers.engines.native import ShellSettings
from tests.contract.engines.stage import TurnRecorder, assert_valid
from tests.integration.engines.claude_agent.claude_turns import (
    conversation_of,
    options,
    request_text,
    text_response,
    tool_response,
)
from tests.integration.engines.claude_agent.conftest import MakeEngine
from tests.requirements import proves
from tests.support.servers.model_server import ModelServer, Part, Stream

REQUEST = {"kind": "user", "question": "Which one?"}


def _asking() -> dict[str, InProcessMcpServer]:
    """Return a server with a tool that waits for a person, and one that answers at once."""

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        names = ("ask", "count")
        return ListToolsResult(
            tools=[Tool(name=name, description=name, input_schema={"type": "object"}) for name in names]
        )

    async def call_tool(_: Any, params: Any) -> CallToolResult:
        if params.name == "ask":
            return CallToolResult(content=[], _meta={DEFERRAL: REQUEST})
        return CallToolResult(content=[TextContent(text="1")])

    return {"desk": InProcessMcpServer(Server("desk", on_list_tools=list_tools, on_call_tool=call_tool))}


def _programs(marker: Path) -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline"]) if str(marker) in " ".join(one.info["cmdline"] or ())]


def _answered(record: StepRecord, result: EngineResult, call_id: str, status: ToolCallStatus, text: str) -> StepRecord:
    """Return the step in the ledger's form once it is answered."""
    ended = {call.id: call for call in result.tool_calls if call.result is not None}
    content = (text_block(text),) if status == "completed" else None
    calls = tuple(
        replace(call, status=status, result=content) if call.id == call_id else ended.get(call.id, call)
        for call in record.tool_calls
    )
    return replace(record, tool_calls=calls, complete=False)


@proves("engine.waits")
async def test_a_waiting_call_ends_the_program_and_another_continues_with_the_answer(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    recorder = TurnRecorder()
    server.reply(tool_response(("mcp__nova__ask", {}), ("mcp__nova__count", {})))
    given = options(mcp_servers=_asking(), cwd=str(workspace))
    waiting = await engine.run("hi", given, "sandbox", callbacks=recorder.callbacks())
    assert (waiting.stop_reason, waiting.error, len(server.requests)) == ("tool_use", None, 1)
    (deferred,) = waiting.deferred
    assert (deferred.call.tool_name, deferred.call.status, deferred.request) == ("ask", "deferred", REQUEST)
    assert [(call.tool_name, call.status) for call in recorder.results] == [("count", "completed")]
    assert not _programs(workspace)

    server.reply(text_response("The red one, then."))
    (record,) = recorder.before_tools
    step = _answered(record, replace(waiting, tool_calls=tuple(recorder.results)), "toolu_0_0", "completed", "The red.")
    result = await engine.run("hi", replace(given, journal=(step,)), "sandbox", callbacks=TurnRecorder().callbacks())
    assert (result.error, result.text, len(server.requests)) == (None, "The red one, then.", 2)
    assert "The red." in request_text(server)
    assert [role for role, _ in conversation_of(server)][:2] == ["user", "assistant"]
    assert_valid(result.messages)


async def test_a_command_that_waited_for_permission_runs_once_it_is_given(
    make_engine: MakeEngine, server: ModelServer, workspace: Path
) -> None:
    engine = make_engine(shell=ShellSettings())

    async def ask(name: str, _: JsonObject) -> ToolAuthorization:
        return ToolAuthorization(allowed=name != "Bash", reason="Ask first", deferral={"kind": "approval"})

    recorder = TurnRecorder()
    server.reply(tool_response(("Bash", {"command": "echo ran >> ran.txt; cat note.txt", "description": "Look"})))
    given = options(cwd=str(workspace))
    waiting = await engine.run("hi", given, "unrestricted", callbacks=recorder.callbacks(authorize_tool=ask))
    assert (waiting.stop_reason, [one.request for one in waiting.deferred]) == ("tool_use", [{"kind": "approval"}])
    assert not (workspace / "ran.txt").exists()

    server.reply(text_response("It says inside."))
    (record,) = recorder.before_tools
    step = _answered(record, waiting, "toolu_0_0", "approved", "")
    again = recorder.callbacks(authorize_tool=ask)
    result = await engine.run("hi", replace(given, journal=(step,)), "unrestricted", callbacks=again)
    assert (result.error, result.text) == (None, "It says inside.")
    assert (workspace / "ran.txt").read_text() == "ran\n"
    assert text_of(result.tool_calls[0].result or ()) == "inside"
    assert '"inside"' in request_text(server).replace("\\", "")


async def test_a_subagent_cannot_wait_and_gets_an_error(engine: ClaudeAgentEngine, server: ModelServer) -> None:
    helper = SubagentConfig("Asks", "You are the asker.")
    task = {"description": "Ask", "prompt": "ask it", "subagent_type": "asker"}
    nested: list[str] = []

    def of_helper(_: Any, body: JsonObject) -> bool:
        return "You are the asker." in str(body.get("system"))

    server.reply_when(of_helper, tool_response(("mcp__nova__ask", {}), step=7), text_response("I could not."))
    server.reply(Stream((Part("tool", ("toolu_agent", "Agent", task)),)), text_response("No question was asked."))
    given = options(mcp_servers=_asking(), agents={"asker": helper})
    result = await engine.run("hi", given, "sandbox", callbacks=TurnRecorder().callbacks())
    nested += [str(body["messages"]) for body in server.requests if of_helper(None, body)]
    assert (result.stop_reason, result.error, result.deferred) == ("end_turn", None, ())
    assert "a subagent cannot wait" in nested[-1]
