"""The program as a child of the worker: what it can reach, and that none of its processes outlives its turn."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import EngineCallbacks, StdioMcpServer, ToolAuthorization, ToolCall
from nova_workers.contracts.steps import INTERRUPTED, NOT_BEGUN
from nova_workers.engines.claude_agent import ClaudeAgentEngine
from tests.integration.engines.claude_agent.claude_turns import options, results, text_response, tool_response
from tests.integration.engines.claude_agent.conftest import MakeEngine
from tests.requirements import proves
from tests.support.processes.inspection import wait_until_gone
from tests.support.servers.model_server import ModelServer, Part, Stream, model_server
from tests.support.waiting import until

_FAMILY = "(setsid sleep 300 &) ; (env -i sleep 301 &) ; (setsid env -i sleep 303 &) ; echo begun > begun; sleep 302"
"""A shell with a child that leaves its session and its parents, one without an environment, and one of both kinds."""
_WORKER = """
import asyncio, os, sys
from nova_workers.engines.claude_agent import ClaudeAgentEngine
from nova_workers.contracts.engine import EngineOptions
engine = ClaudeAgentEngine(environment=os.environ, api_key="k", base_url=sys.argv[1], max_retries=0)
asyncio.run(engine.run("hi", EngineOptions(model="claude-sonnet-5", cwd=sys.argv[2]), "unrestricted"))
"""


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this test's private homes; other tests run concurrently."""
    path = tmp_path / "homes"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


def family(homes: Path) -> set[int]:
    """Return all living processes of this test's turns."""
    found: set[int] = set()
    for process in psutil.process_iter():
        try:
            environment = process.environ() if process.status() != psutil.STATUS_ZOMBIE else {}
            if environment.get("HOME", "").startswith(str(homes)):
                found |= {process.pid, *(child.pid for child in process.children(recursive=True))}
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def whole_family(homes: Path) -> set[int]:
    """Return its processes once all have started."""
    found = family(homes)
    return found if len(found) >= 6 else set()


async def test_an_abort_ends_the_program_and_all_processes_of_its_shell(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path, homes: Path
) -> None:
    abort = AbortSignal()
    server.reply(tool_response(("Bash", {"command": _FAMILY})), text_response("never"))
    turn = asyncio.create_task(engine.run("hi", options(cwd=str(workspace)), "unrestricted", abort=abort))
    await until((workspace / "begun").exists)
    before = await until(lambda: whole_family(homes))
    abort.abort("cancel")
    result = await asyncio.wait_for(turn, 60)
    assert (result.stop_reason, [status for status, _ in results(result)]) == ("aborted", ["interrupted"])
    assert wait_until_gone(before, 60) == set()


@proves("engine.what-is-known")
async def test_a_call_that_the_program_had_not_begun_is_reported_as_such(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    abort = AbortSignal()
    begins = ("Bash", {"command": "touch begun; sleep 60"})
    server.reply(tool_response(begins, ("Bash", {"command": "touch never"})), text_response("never"))
    turn = asyncio.create_task(engine.run("hi", options(cwd=str(workspace)), "unrestricted", abort=abort))
    await until((workspace / "begun").exists)
    abort.abort("cancel")
    result = await asyncio.wait_for(turn, 60)
    assert [told for _, told in results(result)] == [INTERRUPTED, NOT_BEGUN]
    assert not (workspace / "never").exists()


async def test_background_processes_of_a_shell_end_with_the_turn(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path
) -> None:
    command = "(setsid sleep 310 >/dev/null 2>&1 &); pgrep -f 'sleep 310' > pids"
    server.reply(tool_response(("Bash", {"command": command})), text_response("ok"))
    result = await engine.run("hi", options(cwd=str(workspace)), "unrestricted")
    assert [status for status, _ in results(result)] == ["completed"]
    pids = {int(pid) for pid in (workspace / "pids").read_text().split()}
    assert pids
    assert wait_until_gone(pids, 60) == set()


@proves("child.killed-worker")
async def test_the_program_and_its_processes_end_with_a_killed_worker(
    server: ModelServer, workspace: Path, homes: Path
) -> None:
    server.reply(tool_response(("Bash", {"command": _FAMILY})), text_response("never"))
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WORKER, server.url, str(workspace), env=os.environ | {"TMPDIR": str(homes)}
    )
    await until((workspace / "begun").exists)
    left = await until(lambda: whole_family(homes))
    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    assert await asyncio.to_thread(wait_until_gone, left, 5) == set()


async def test_nothing_but_model_calls_leaves_the_machine(
    make_engine: MakeEngine, server: ModelServer, workspace: Path
) -> None:
    async with model_server() as proxy:
        environment = {"PATH": os.environ["PATH"], "HTTPS_PROXY": proxy.url, "HTTP_PROXY": proxy.url}
        engine = make_engine(environment=environment | {"NO_PROXY": "127.0.0.1"})
        server.reply(tool_response(("Read", {"file_path": str(workspace / "note.txt")})), text_response("ok"))
        result = await engine.run("hi", options(cwd=str(workspace)), "controlled")
        assert (result.text, proxy.connections, len(server.requests)) == ("ok", 0, 2)


async def test_a_turn_leaves_no_file_behind(
    engine: ClaudeAgentEngine, server: ModelServer, workspace: Path, homes: Path
) -> None:
    server.reply(text_response("ok"))
    await engine.run("hi", options(cwd=str(workspace)), "controlled")
    assert os.listdir(homes) == []
    assert sorted(os.listdir(workspace)) == ["link.txt", "note.txt"]


async def test_no_other_process_can_read_a_secret_in_the_command_line(
    engine: ClaudeAgentEngine, server: ModelServer, homes: Path
) -> None:
    seen: list[str] = []

    def on_tool_use(_: ToolCall, __: str) -> None:
        seen.extend(" ".join(psutil.Process(pid).cmdline()) for pid in family(homes))

    child = StdioMcpServer(
        sys.executable, ("-m", "tests.support.servers.mcp_stdio_server"), env={"GREETING": "token-secret "}
    )
    server.reply(tool_response(("mcp__nova__echo", {"text": "hello"})), text_response("ok"))
    given = options(mcp_servers={"child": child}, system_prompt="You are my prompt-secret.")
    result = await engine.run("hi", given, "sandbox", callbacks=EngineCallbacks(on_tool_use=on_tool_use))
    assert results(result) == [("completed", "token-secret hello")]
    assert seen
    assert "secret" not in "".join(seen)
    assert "prompt-secret" in str(server.requests[0]["system"])


async def test_a_tool_of_a_qualified_server_has_the_same_name_as_with_any_engine(
    engine: ClaudeAgentEngine, server: ModelServer
) -> None:
    asked: list[str] = []

    async def authorize(name: str, _: JsonObject) -> ToolAuthorization:
        asked.append(name)
        return ToolAuthorization(allowed=True)

    child = StdioMcpServer(sys.executable, ("-m", "tests.support.servers.mcp_stdio_server"), qualified=True)
    server.reply(tool_response(("mcp__nova__mcp__nova__echo", {"text": "hello"})), text_response("ok"))
    given = options(mcp_servers={"mcp__nova": child})
    result = await engine.run("hi", given, "sandbox", callbacks=EngineCallbacks(authorize_tool=authorize))
    assert results(result) == [("completed", "hello")]
    assert asked == ["mcp__nova__echo"]
    assert [call.tool_name for call in result.tool_calls] == asked


async def test_turns_beyond_the_limit_wait(make_engine: MakeEngine, server: ModelServer) -> None:
    engine = make_engine(max_processes=1)
    most = 0

    def on_token(_: str) -> None:
        nonlocal most
        programs = [one for one in psutil.Process().children(recursive=True) if one.name() == "claude"]
        most = max(most, len(programs))

    server.reply(Stream((Part("text", ["a"]), Part("sleep", 0.1), Part("text", ["b"]))))
    turns = [engine.run("hi", options(), "sandbox", callbacks=EngineCallbacks(on_token=on_token)) for _ in range(2)]
    assert [result.text for result in await asyncio.gather(*turns)] == ["ab", "ab"]
    assert most == 1


async def test_the_home_of_a_killed_worker_is_deleted_days_later(make_engine: MakeEngine, homes: Path) -> None:
    for name, age_s in (("nova-claude-old", 3 * 86_400), ("nova-claude-new", 60), ("another-old", 3 * 86_400)):
        (homes / name).mkdir()
        then_s = time.time() - age_s
        os.utime(homes / name, (then_s, then_s))
    make_engine()
    assert sorted(os.listdir(homes)) == ["another-old", "nova-claude-new"]


async def test_a_missing_directory_is_reported(engine: ClaudeAgentEngine) -> None:
    result = await engine.run("hi", options(cwd="/nowhere/at/all"), "controlled")
    assert result.error is not None
    assert "'/nowhere/at/all'" in result.error.message
    assert result.error.retryable is False


async def test_a_missing_program_fails_the_turn_and_not_the_worker(make_engine: MakeEngine) -> None:
    result = await make_engine(program=Path("/nowhere/claude")).run("hi", options(), "sandbox")
    assert (result.stop_reason, result.text) == ("error", "")
    assert result.error is not None
    assert "/nowhere/claude" in result.error.message
