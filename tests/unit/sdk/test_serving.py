"""`python -m nova_workers.sdk.serve` with the client of the MCP library: many calls, and functions that misbehave."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult, TextContent

from nova_workers.contracts.user_tools import CALL_CONTEXT, QUESTION, RETIRES, ToolListing
from tests.support.processes.user_code import forked_python

SHOP = '''
import asyncio, os, sys, threading, time
from nova_workers.sdk import NotAnswered, tool, ToolContext, ToolFailure

print("printed at import")
meeting = threading.Barrier(2)

@tool(read_only=True)
def stock(article: str) -> dict[str, int]:
    """Count an article."""
    print("printed in a call")
    os.system("echo printed by a child")
    return {article: 3}

@tool
def meet() -> str:
    """Wait for another call."""
    meeting.wait(20)
    return "met"

@tool
async def meet_async() -> str:
    """Wait for another call, in a thread."""
    await asyncio.to_thread(meeting.wait, 20)
    return "met"

@tool
def about(context: ToolContext) -> list[str]:
    """Tell the context."""
    context.progress(1, 2, "half")
    context.log.info("seen")
    return [context.agent_id, context.idempotency_key, context.secret("TOKEN")]

@tool
def ask(context: ToolContext) -> str:
    """Ask a person, and a second time if they are unsure."""
    try:
        answer = context.ask_user("Close?", options=["yes", "no"])
    except Exception:
        return "caught"
    return answer if answer != "unsure" else context.ask_user("Really?", expires_in_s=60, default="no")

@tool
async def ask_async(context: ToolContext) -> str:
    """Ask a person."""
    try:
        return context.ask_user("Close?")
    except NotAnswered:
        return "no answer"

@tool
def refuse() -> None:
    """Refuse."""
    raise ToolFailure("Closed on Sundays.")

@tool
def fail() -> None:
    """Fail."""
    raise ValueError("no good")  # in fail

@tool
def leave() -> None:
    """Leave."""
    sys.exit(3)  # in leave

@tool
async def leave_async() -> None:
    """Leave."""
    sys.exit(3)  # in leave_async

@tool
def fork() -> str:
    """Fork, and let the fork print and go on."""
    fork = os.fork()
    if fork == 0:
        print("printed by a fork", flush=True)
        return ""
    _, status = os.waitpid(fork, 0)
    return f"forked, and ended with {status}"

@tool(timeout_s=0.3)
def block() -> None:
    """Block."""
    time.sleep(60)  # in block

@tool(timeout_s=0.3)
async def block_async() -> None:
    """Block the loop."""
    time.sleep(2)  # in block_async

@tool(timeout_s=0.3)
async def wait() -> None:
    """Wait for long."""
    await asyncio.sleep(60)  # in wait

@tool  # in strange
def strange() -> object:
    """Return what JSON has no form for."""
    return object()

@tool(concurrency=1)
def alone() -> bool:
    """Say whether this call is the only one."""
    global inside
    inside += 1
    time.sleep(0.02)
    inside -= 1
    return inside == 0

inside = 0
'''


def _project(folder: Path, **modules: str) -> str:
    (folder / "tools").mkdir(exist_ok=True)
    for name, code in modules.items():
        (folder / "tools" / f"{name}.py").write_text(code.lstrip(), encoding="utf-8")
    return f"{folder}/"


@asynccontextmanager
async def _served(source: str, *, python: str | None = None) -> AsyncGenerator[Client]:
    command = ["-m", "nova_workers.sdk.serve", source]
    with (Path(source) / "stderr").open("w") as errors:
        parameters = StdioServerParameters(command=python or forked_python(), args=command, cwd=Path.cwd())
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            yield client


def _text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def _line(name: str) -> int:
    return next(at for at, text in enumerate(SHOP.lstrip().splitlines(), 1) if text.endswith(f"# in {name}"))


async def _call(client: Client, name: str, arguments: dict[str, Any] | None = None) -> str:
    return _text(await client.call_tool(name, arguments or {}))


def _listing(source: str, *options: str, python: str | None = None) -> ToolListing:
    command = [python or forked_python(), "-m", "nova_workers.sdk.serve", "--list", *options, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return ToolListing.model_validate_json(done.stdout)


async def test_what_code_prints_does_not_break_the_protocol(tmp_path: Path) -> None:
    async with _served(_project(tmp_path, shop=SHOP), python=sys.executable) as client:
        listed = {each.name: each for each in (await client.list_tools()).tools}
        assert listed["stock"].annotations is not None
        assert listed["stock"].annotations.read_only_hint
        assert json.loads(await _call(client, "stock", {"article": "bolt"})) == {"bolt": 3}
        assert await _call(client, "fork") == "forked, and ended with 0"
        assert json.loads(await _call(client, "stock", {"article": "nut"})) == {"nut": 3}
    printed = (tmp_path / "stderr").read_text()
    for words in ("printed at import", "printed in a call", "printed by a child", "printed by a fork"):
        assert words in printed


async def test_calls_run_at_once_up_to_the_concurrency_of_their_tool(tmp_path: Path) -> None:
    async with _served(_project(tmp_path, shop=SHOP)) as client:
        for name in ("meet", "meet_async"):
            assert await asyncio.gather(_call(client, name), _call(client, name)) == ["met", "met"]
        assert set(await asyncio.gather(*(_call(client, "alone") for _ in range(5)))) == {"true"}


async def test_a_call_brings_its_context(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with _served(_project(tmp_path, shop=SHOP)) as client:
        meta: Any = {CALL_CONTEXT: {"agent_id": "clerk", "idempotency_key": "k", "secrets": {"TOKEN": "abc"}}}
        result = await client.call_tool("about", {}, progress_callback=on_progress, meta=meta)
        assert json.loads(_text(result)) == ["clerk", "k", "abc"]
        assert seen == [(1.0, 2.0, "half")]
        assert "needs the secret 'TOKEN'" in await _call(client, "about")
    assert "INFO tools: seen [tool=about]" in (tmp_path / "stderr").read_text()


async def test_a_tool_that_asks_a_person_is_called_again_with_the_answers(tmp_path: Path) -> None:
    async def answered(name: str, *answers: tuple[str, str | None]) -> CallToolResult:
        given = [{"question": question, "text": text} for question, text in answers]
        meta: Any = {CALL_CONTEXT: {"run_id": "run_1", "answers": given}}
        return await client.call_tool(name, {}, meta=meta)

    async with _served(_project(tmp_path, shop=SHOP)) as client:
        question = (await answered("ask")).meta or {}
        assert question[QUESTION] == {**_ASKED, "question": "Close?", "options": ["yes", "no"]}
        assert _text(await answered("ask", ("Close?", "yes"))) == "yes"
        question = (await answered("ask", ("Close?", "unsure"))).meta or {}
        assert question[QUESTION] == {**_ASKED, "question": "Really?", "expires_in_s": 60, "default": "no"}
        assert _text(await answered("ask", ("Close?", "unsure"), ("Really?", "no"))) == "no"
        assert QUESTION in ((await answered("ask_async")).meta or {})
        assert _text(await answered("ask_async", ("Close?", None))) == "no answer"
        other = await answered("ask_async", ("Open?", "yes"))
        assert other.is_error
        assert "is 'Close?', and was 'Open?' before" in _text(other)
        # Outside of a fleet nothing can wait.
        assert "for whom only a run of a fleet can wait: Close?" in await _call(client, "ask")


_ASKED: dict[str, Any] = {"options": [], "only_options": False, "expires_in_s": None, "default": None}


@pytest.mark.parametrize(
    "problems",
    [
        {
            "refuse": "Closed on Sundays.",
            "fail": "fail failed: ValueError: no good",
            "leave": "leave failed: it tried to end the process (SystemExit)",
            "leave_async": "leave_async failed: it tried to end the process (SystemExit)",
            "wait": "wait did not end within its time limit of 0.3 s",
            "strange": "strange returned a object that is no JSON",
        },
        {"block": "block did not end within its time limit of 0.3 s"},
        {"block_async": "block_async did not end within its time limit of 0.3 s"},
    ],
    ids=["most", "block", "block_async"],
)
async def test_a_call_that_fails_has_an_error_with_its_place_and_others_go_on(
    tmp_path: Path, problems: dict[str, str]
) -> None:
    async with _served(_project(tmp_path, shop=SHOP)) as client:
        for name, problem in problems.items():
            result = await client.call_tool(name, {})
            assert result.is_error
            assert _text(result).startswith(problem)
            if name != "refuse":
                assert f"{tmp_path}/tools/shop.py:{_line(name)}" in _text(result)
            # A call that Python cannot end retires the process; one that was canceled does not.
            assert bool((result.meta or {}).get(RETIRES)) is name.startswith("block")
            assert json.loads(await _call(client, "stock", {"article": "bolt"})) == {"bolt": 3}


async def test_an_async_call_beside_one_that_blocks_gets_a_loop_that_works(tmp_path: Path) -> None:
    code = SHOP.replace("time.sleep(2)", "time.sleep(30)").replace(
        "@tool(timeout_s=0.3)\nasync def block_async", "@tool\nasync def block_async"
    )
    async with _served(_project(tmp_path, shop=code)) as client:
        blocking = asyncio.create_task(client.call_tool("block_async", {}))
        assert await _call(client, "leave_async") != ""
        assert not blocking.done()
        blocking.cancel()


async def test_a_server_object_of_the_library_is_served(tmp_path: Path) -> None:
    code = '''
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("weather")

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def forecast(city: str) -> str:
    """Say how the weather will be."""
    return f"Rain in {city}"
'''
    source = _project(tmp_path, weather=code)
    (listed,) = _listing(source).tools
    assert (listed.name, listed.read_only, listed.input_schema["required"]) == ("forecast", True, ["city"])
    async with _served(source) as client:
        assert await _call(client, "forecast", {"city": "Oslo"}) == "Rain in Oslo"
        assert "validation error" in await _call(client, "forecast")


def test_a_list_has_each_tool_with_what_it_declares(tmp_path: Path) -> None:
    code = '''
from nova_workers.sdk import tool

@tool(needs_approval=True, timeout_s=5, idempotent=True)
def pay(amount: int) -> None:
    """Pay."""
'''
    other = "from tools.money import pay\n"
    (listed,) = _listing(_project(tmp_path, money=code, other=other), python=sys.executable).tools
    assert (listed.name, listed.needs_approval, listed.timeout_s, listed.idempotent) == ("pay", True, 5.0, True)
    assert listed.place == f"{tmp_path}/tools/money.py:3"


_PAY = 'from nova_workers.sdk import tool\n\n@tool\ndef pay() -> None:\n    """Pay."""\n'


@pytest.mark.parametrize(
    ("modules", "place", "problem"),
    [
        ({"a": "import no_such_module"}, "a.py:1", "cannot be imported: ModuleNotFoundError: No module named"),
        ({"a": "x = 1\ndef f(:"}, "a.py:2", "cannot be imported: SyntaxError"),
        ({"a": "x = 1\nimport sys\nsys.exit(0)"}, "a.py:3", "ends the process in its import (SystemExit)"),
        ({"a": "\nimport time\ntime.sleep(60)"}, "a.py:2", "the import did not end within 2 s"),
        ({"a": f"{_PAY}\n{_PAY}"}, "a.py:", "'pay' replaces the function of this name at"),
        ({"a": _PAY, "b": _PAY}, "b.py:3", "the tool 'pay' has the name of the tool at"),
        ({"a": _PAY.replace("pay()", "pay(x)")}, "a.py:3", "the parameter 'x' has no type"),
        ({"a": _PAY.replace("@tool", "@tool(timeout_s=0)")}, "a.py:3", "timeout_s is 0; expected"),
    ],
)
def test_code_that_cannot_be_served_is_listed_as_a_problem_with_its_place(
    tmp_path: Path, modules: dict[str, str], place: str, problem: str
) -> None:
    listing = _listing(_project(tmp_path, **modules), "--import-timeout", "2")
    assert listing.tools == ()
    assert listing.problem is not None
    assert listing.problem.startswith(f"{tmp_path}/tools/{place}")
    assert problem in listing.problem


def test_a_directory_without_tools_and_an_unknown_module_are_problems(tmp_path: Path) -> None:
    assert "there is no directory 'tools' in it" in str(_listing(f"{tmp_path}/").problem)
    assert "cannot be imported" in str(_listing("no_such_module").problem)


def test_a_process_whose_import_fails_says_why_at_the_end_of_its_output(tmp_path: Path) -> None:
    source = _project(tmp_path, a="raise ValueError('x')")
    command = [sys.executable, "-m", "nova_workers.sdk.serve", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(f"{tmp_path}/tools/a.py:1: the module 'tools.a' cannot be imported")


def test_importing_the_kit_loads_no_server_no_mcp_library_and_no_contracts_of_turns() -> None:
    code = "import json, sys, nova_workers.sdk; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded: list[str] = json.loads(done.stdout)
    assert not {each.partition(".")[0] for each in loaded} & {
        *("mcp", "mcp_types", "anyio", "sqlalchemy", "structlog", "httpx2")
    }
    # Models of pydantic that take a third of the import, in each process of a user's code.
    assert not set(loaded) & {f"nova_workers.contracts.{name}" for name in ("agents", "engine", "events", "waits")}
