"""Calls of read-only tools begin while the response still streams; nothing else changes."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool, ToolAnnotations

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import text_block
from nova_workers.contracts.engine import EngineOptions, InProcessMcpServer, ToolAuthorization
from nova_workers.engines.anthropic import AnthropicEngine
from tests.contract.engines.stage import TurnRecorder, assert_valid
from tests.support.servers.model_server import ModelServer, Part, Stream

LOOK = Part("tool", ("toolu_1", "look", {"n": 1}))
WRITE = Part("tool", ("toolu_2", "write", {}))
DONE = Stream((Part("text", ["Done"]),))


@dataclass
class TwoTools:
    """A read-only tool and an idempotent one, and their calls."""

    began: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    log: list[str] = field(default_factory=list[str])

    def options(self, **more: Any) -> EngineOptions:
        async def list_tools(_: Any, __: Any) -> ListToolsResult:
            hints = {"look": ToolAnnotations(read_only_hint=True), "write": ToolAnnotations(idempotent_hint=True)}
            tools = [Tool(name=name, input_schema={"type": "object"}, annotations=hint) for name, hint in hints.items()]
            return ListToolsResult(tools=tools)

        async def call_tool(_: Any, params: Any) -> CallToolResult:
            self.log.append(f"{params.name} began")
            if params.name == "look":
                self.began.set()
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    self.log.append("look canceled")
                    raise
            return CallToolResult(content=[TextContent(text=f"{params.name} saw {params.arguments}")])

        server = InProcessMcpServer(Server("room", on_list_tools=list_tools, on_call_tool=call_tool))
        return EngineOptions(mcp_servers={"room": server}, **more)


async def test_a_tool_that_only_reads_begins_before_the_response_is_whole(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    room, recorder = TwoTools(), TurnRecorder()
    room.release.set()
    # The response goes on only after the one tool ran, and gives the other one time to.
    parts = (LOOK, Part("wait", room.began), Part("text", ["and more"]), WRITE, Part("sleep", 0.2))
    server.reply(Stream(parts), DONE)

    async def on_tool_calls(record: Any) -> None:
        room.log.append("committed")

    callbacks = recorder.callbacks(on_tool_calls=on_tool_calls)
    result = await asyncio.wait_for(engine.run("hi", room.options(), "sandbox", callbacks=callbacks), 60)
    assert room.log == ["look began", "committed", "write began"]
    assert [call.result for call in result.tool_calls] == [
        (text_block("look saw {'n': 1}"),),
        (text_block("write saw {}"),),
    ]
    assert [(call.sequence, call.status) for call in result.tool_calls] == [(0, "completed"), (1, "completed")]
    assert_valid(result.messages)


async def test_callbacks_come_in_the_order_of_any_other_call(server: ModelServer, engine: AnthropicEngine) -> None:
    room, recorder = TwoTools(), TurnRecorder()
    room.release.set()
    server.reply(Stream((LOOK, Part("wait", room.began))), DONE)
    await engine.run("hi", room.options(), "sandbox", callbacks=recorder.callbacks())
    told = [entry for entry in recorder.log if entry not in ("thinking", "tokens") and entry[0] != "event"]
    assert told[:5] == [("authorize", "look"), "calls", ("tool", "look"), ("result", "look", "completed"), "summary"]


async def test_a_call_is_authorized_once_and_before_it_runs(server: ModelServer, engine: AnthropicEngine) -> None:
    room, recorder = TwoTools(), TurnRecorder()
    recorder.refuse = {"look": "Close your eyes"}
    authorized = asyncio.Event()

    async def authorize(name: str, given: Any) -> ToolAuthorization:
        authorized.set()
        return await recorder.callbacks().authorize_tool(name, given)  # type: ignore[misc] - the recorder has one

    server.reply(Stream((LOOK, Part("wait", authorized))), DONE)
    callbacks = recorder.callbacks(authorize_tool=authorize)
    result = await engine.run("hi", room.options(), "sandbox", callbacks=callbacks)
    assert room.log == []
    assert recorder.log.count(("authorize", "look")) == 1
    assert result.tool_calls[0].status == "failed"
    assert (result.tool_calls[0].error or "").startswith("Close your eyes.")


async def test_calls_of_an_interrupted_response_are_canceled(server: ModelServer, engine: AnthropicEngine) -> None:
    room, recorder = TwoTools(), TurnRecorder()
    server.reply(Stream((LOOK, Part("wait", room.began), Part("cut"))))
    result = await asyncio.wait_for(engine.run("hi", room.options(), "sandbox", callbacks=recorder.callbacks()), 60)
    assert result.stop_reason == "error"
    assert room.log[-1] == "look canceled"
    assert (result.tool_calls, recorder.results) == ((), [])


async def test_an_abort_in_mid_response_cancels_eager_calls(server: ModelServer, engine: AnthropicEngine) -> None:
    room, abort = TwoTools(), AbortSignal()
    server.reply(Stream((Part("text", ["So"]), LOOK, Part("stall"))))
    running = asyncio.create_task(engine.run("hi", room.options(), "sandbox", abort=abort))
    await asyncio.wait_for(room.began.wait(), 60)
    abort.abort("cancel")
    result = await asyncio.wait_for(running, 60)
    assert room.log == ["look began", "look canceled"]
    assert (result.stop_reason, result.text, result.tool_calls) == ("aborted", "So", ())


async def test_an_abort_after_the_response_interrupts_the_eager_call(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    room, abort, recorder = TwoTools(), AbortSignal(), TurnRecorder()
    server.reply(Stream((LOOK,)), DONE)

    async def on_tool_calls(_: Any) -> None:
        await room.began.wait()
        asyncio.get_running_loop().call_later(0.05, abort.abort, "cancel")

    callbacks = recorder.callbacks(on_tool_calls=on_tool_calls)
    result = await asyncio.wait_for(engine.run("hi", room.options(), "sandbox", callbacks=callbacks, abort=abort), 60)
    assert room.log == ["look began", "look canceled"]
    assert [call.status for call in result.tool_calls] == ["interrupted"]
    assert_valid(result.messages)


async def test_a_resumed_call_is_not_eager(server: ModelServer, engine: AnthropicEngine) -> None:
    room, recorder = TwoTools(), TurnRecorder()
    room.release.set()
    server.reply(Stream((LOOK,)), DONE)
    await engine.run("hi", room.options(), "sandbox", callbacks=recorder.callbacks())
    room.log.clear()
    server.reply(DONE)
    options = room.options(journal=(recorder.before_tools[0],))
    result = await engine.run("hi", options, "sandbox")
    assert (room.log, result.text) == (["look began"], "Done")


async def test_a_call_with_a_given_result_does_not_run_and_only_a_reading_tool_runs_where_asked(
    server: ModelServer, engine: AnthropicEngine
) -> None:
    room, recorder = TwoTools(), TurnRecorder()
    room.release.set()
    answers = {
        1: ToolAuthorization(False, "No", result=(text_block("recorded"),)),
        2: ToolAuthorization(False, "Not recorded", if_read_only=True),
    }

    async def authorize(_: str, given: Any) -> ToolAuthorization:
        return answers[given.get("n", 2)]

    again = Part("tool", ("toolu_3", "look", {"n": 2}))
    server.reply(Stream((LOOK, WRITE, again)), DONE)
    callbacks = recorder.callbacks(authorize_tool=authorize)
    result = await asyncio.wait_for(engine.run("hi", room.options(), "sandbox", callbacks=callbacks), 60)
    assert room.log == ["look began"]
    assert [(call.tool_name, call.status) for call in result.tool_calls] == [
        ("look", "completed"),
        ("write", "failed"),
        ("look", "completed"),
    ]
    assert result.tool_calls[0].result == (text_block("recorded"),)
    assert result.tool_calls[2].result == (text_block("look saw {'n': 2}"),)
    assert_valid(result.messages)
