"""Turns of vendors' programs: answers, tools through the bridge, waits, stops, and what a program gets to see."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp.server import Server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import Message, text_block, text_of
from nova_workers.contracts.engine import DEFERRAL, InProcessMcpServer
from tests.contract.engines.stage import Bench, TurnRecorder, assert_valid
from tests.integration.engines.programs.stage import KEY, ProgramStage, program_homes, program_processes
from tests.requirements import proves
from tests.support.data import media_samples
from tests.support.servers.model_server import Part, Status, Stream
from tests.support.waiting import until

PIXEL = base64.b64encode(media_samples.png()).decode()


async def test_an_answer_has_its_text_its_usage_and_its_price(stage: ProgramStage) -> None:
    stage.server.reply(stage.says("Hello there.", input_tokens=60, cache_read_input_tokens=40, output_tokens=7))
    recorder = TurnRecorder()
    options = stage.options(system_prompt="You are Nova.")
    result = await stage.engine().run("hi", options, "sandbox", callbacks=recorder.callbacks())
    assert (result.error, result.text, result.stop_reason) == (None, "Hello there.", "end_turn")
    assert "".join(recorder.tokens) == "Hello there."
    tokens = result.usage.tokens
    assert (tokens.input_tokens, tokens.cache_read_tokens, tokens.output_tokens) == (60, 40, 7)
    assert tokens.cost_usd
    assert (result.provider, result.model) == (stage.name, stage.model)
    assert "You are Nova." in str(stage.server.requests[0])
    assert "hi" in stage.sent()


@proves("engine.programs")
async def test_a_program_has_the_turns_tools_and_none_of_its_own(stage: ProgramStage, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("inside\n")
    stage.server.reply(
        stage.calls(("Read", {"file_path": str(tmp_path / "note.txt")}), text="Let me look."), stage.says("It says so.")
    )
    recorder, bench = TurnRecorder(), Bench()
    options = stage.options(cwd=str(tmp_path), mcp_servers=bench.servers())
    result = await stage.engine().run("hi", options, "controlled", callbacks=recorder.callbacks())
    assert (result.error, result.text) == (None, "It says so.")
    (call,) = result.tool_calls
    assert (call.tool_name, call.status) == ("Read", "completed")
    assert "inside" in text_of(call.result or ())
    assert "inside" in str(stage.server.requests[1])
    # What only reads may begin while the response is still open, so before the step with its calls is committed.
    assert {"calls", ("authorize", "Read")} <= set(recorder.log)
    assert ("narration", "Let me look.") in recorder.log
    assert set(result.tools_available or ()) == {"Read", "Write", "Edit", "Glob", "Grep", "add", "count", "break"} | {
        "raise",
        "hang",
        "meet",
    }
    offered = str(stage.server.requests[0]["tools"])
    for own in ("shell", "exec_command", "apply_patch", "web_search", "run_shell_command", "write_file", "update_plan"):
        assert own not in offered
    assert_valid(result.messages)


async def test_usage_of_a_program_counts_once_over_its_steps(stage: ProgramStage) -> None:
    stage.server.reply(stage.calls(("count", {})), stage.calls(("count", {}), step=1), stage.says("Counted."))
    options = stage.options(mcp_servers=Bench().servers())
    result = await stage.engine().run("hi", options, "sandbox")
    assert (result.error, result.usage.turns) == (None, 3)
    tokens = result.usage.tokens
    assert 330 <= tokens.total_tokens <= 1_500, "What the program reports, or a little more where an estimate was high."


async def test_a_program_gets_no_secret_and_leaves_nothing_behind(
    stage: ProgramStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOVA_DATABASE_URL", "postgresql://secret")
    environments: dict[str, str] = {}
    homes: dict[Path, dict[str, int]] = {}

    async def look(_: Any, __: Any) -> CallToolResult:
        environments.update({" ".join(one.cmdline()): str(one.environ()) for one in program_processes()})
        homes.update(program_homes())
        return CallToolResult(content=[TextContent(text="looked")])

    async def tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="look", description="Looks.", input_schema={"type": "object"})])

    servers = {"eye": InProcessMcpServer(Server("eye", on_list_tools=tools, on_call_tool=look))}
    stage.server.reply(stage.calls(("look", {})), stage.says("Seen."))
    result = await stage.engine().run("hi", stage.options(mcp_servers=servers, system_prompt="Private."), "sandbox")
    assert result.error is None
    assert list(homes.values()) == [{".": 0o700, "tools": 0o600}]
    relays = [given for command, given in environments.items() if command.split()[-2].endswith("relay.py")]
    assert relays
    assert KEY not in str(relays)
    assert "postgresql" not in str(environments)
    assert not any(word in command for command in environments for word in (KEY, "Private."))
    assert not any(map(Path.exists, homes))


@proves("engine.programs")
async def test_an_abort_ends_the_program_with_all_its_processes(stage: ProgramStage) -> None:
    bench, abort = Bench(), AbortSignal()
    stage.server.reply(stage.calls(("hang", {})), stage.says("Never."))
    turn = asyncio.create_task(
        stage.engine().run("hi", stage.options(mcp_servers=bench.servers()), "sandbox", abort=abort)
    )
    async with asyncio.timeout(60):
        await bench.began.wait()
    running = list(program_processes())
    assert len(running) >= 2, "the program and its relay"
    abort.abort("cancel")
    async with asyncio.timeout(60):
        result = await turn
    assert (result.stop_reason, bench.canceled.is_set()) == ("aborted", True)
    assert not [process for process in running if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


async def test_an_abort_while_the_model_thinks_ends_the_program(stage: ProgramStage) -> None:
    abort = AbortSignal()
    stage.server.reply(Stream((Part("stall"),)))
    turn = asyncio.create_task(stage.engine().run("hi", stage.options(), "sandbox", abort=abort))
    await until(lambda: bool(stage.server.requests))
    abort.abort("cancel")
    async with asyncio.timeout(60):
        result = await turn
    assert result.stop_reason == "aborted"
    assert not list(program_processes())


@proves("engine.programs", "engine.waits")
async def test_a_call_that_waits_ends_the_program_and_another_continues_with_the_answer(stage: ProgramStage) -> None:
    async def tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="ask", description="Asks.", input_schema={"type": "object"})])

    async def ask(_: Any, __: Any) -> CallToolResult:
        return CallToolResult(content=[], _meta={DEFERRAL: {"kind": "user"}})

    servers = {"desk": InProcessMcpServer(Server("desk", on_list_tools=tools, on_call_tool=ask))}
    recorder = TurnRecorder()
    stage.server.reply(stage.calls(("ask", {"question": "Which?"}), text="I ask."))
    given = stage.options(mcp_servers=servers)
    waiting = await stage.engine().run("Choose", given, "sandbox", callbacks=recorder.callbacks())
    assert (waiting.stop_reason, waiting.error, len(stage.server.requests)) == ("tool_use", None, 1)
    assert [one.request for one in waiting.deferred] == [{"kind": "user"}]
    assert not list(program_processes())

    (record,) = recorder.before_tools
    answered = replace(record.tool_calls[0], status="completed", result=(text_block("The red one."),))
    journal = (replace(record, tool_calls=(answered,), complete=False),)
    stage.server.reply(stage.says("Red, then."))
    result = await stage.engine().run("Choose", replace(given, journal=journal), "sandbox")
    assert (result.error, result.text, len(stage.server.requests)) == (None, "Red, then.", 2)
    for part in ("Choose", "I ask.", "Which?", "The red one."):
        assert part in stage.sent()


async def test_a_conversation_continues_with_its_history_and_its_images(stage: ProgramStage) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    history = (Message("user", (text_block("My name is Ada."),)), Message("assistant", (text_block("Hello, Ada."),)))
    stage.server.reply(stage.says("You are Ada."))
    result = await stage.engine().run((text_block("Who am I?"), image), stage.options(history=history), "sandbox")
    assert (result.error, result.text) == (None, "You are Ada.")
    assert all(part in stage.sent() for part in ("My name is Ada.", "Hello, Ada.", "Who am I?", "[image 1]"))
    assert PIXEL[:40] in str(stage.server.requests[0])


async def test_an_answer_fulfils_the_schema_of_the_agent(stage: ProgramStage) -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"type": "string"}},
        "required": ["colour"],
        "additionalProperties": False,
    }
    stage.server.reply(stage.says("Red."), stage.says('{"colour": "red"}'))
    result = await stage.engine().run("Choose", stage.options(output_schema=schema), "sandbox")
    assert (result.error, result.output) == (None, {"colour": "red"})
    assert "colour" in str({key: value for key, value in stage.server.requests[0].items() if key != "tools"})


@pytest.mark.parametrize(
    ("status", "error", "kind", "retryable"),
    [
        (401, {"type": "authentication_error", "message": "bad key"}, "auth_failure", False),
        (429, {"type": "rate_limit_error", "message": "slow down"}, "rate_limit", True),
        (500, {"type": "server_error", "message": "broken"}, "model_error", True),
    ],
)
async def test_what_the_provider_refuses_is_classified(
    stage: ProgramStage, status: int, error: dict[str, Any], kind: str, retryable: bool
) -> None:
    stage.server.reply(Status(status, error["type"], error["message"]))
    result = await stage.engine().run("hi", stage.options(), "sandbox")
    assert result.error is not None
    assert (result.error.kind, result.error.retryable) == (kind, retryable)
    assert KEY not in result.error.message
    assert not list(program_processes())


async def test_a_missing_program_is_named_with_how_to_install_it(stage: ProgramStage, tmp_path: Path) -> None:
    for engine in (stage.engine(program=tmp_path / "gone"), stage.engine(program=None, environment={"PATH": "/gone"})):
        result = await engine.run("hi", stage.options(), "sandbox")
        assert result.error is not None
        assert "npm install -g @" in result.error.message
        assert f"NOVA_{stage.name.upper()}__PROGRAM" in result.error.message
        assert "npm install" in str((await engine.probe(timeout_s=1.0))[""])


async def test_what_a_program_cannot_do_is_refused_before_it_starts(stage: ProgramStage) -> None:
    engine = stage.engine()
    for options, word in (
        (stage.options(model="sonnet"), "MODEL"),
        (stage.options(model="unheard-of", cost_budget_usd=1.0), "PRICES"),
    ):
        result = await engine.run("hi", options, "sandbox")
        assert result.error is not None
        assert word in result.error.message
    result = await stage.engine(api_key=None).run("hi", stage.options(), "sandbox")
    assert result.error is not None
    assert (result.error.kind, "_API_KEY" in result.error.message) == ("auth_failure", True)
    assert await engine.probe(timeout_s=1.0) == {"": None}
    assert await stage.engine(api_key=None).probe(timeout_s=1.0) == {"": "it has no key"}
    assert stage.server.requests == []
