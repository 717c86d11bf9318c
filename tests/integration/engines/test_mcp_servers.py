"""MCP servers of other processes: shared, checked, replaced; and their death does not end a turn."""

import asyncio
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from mcp.server.mcpserver import Context, MCPServer
from structlog.testing import capture_logs

from nova_workers.base.confined import PrivateFiles
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.outbound.egress import EgressProxy
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.agents import Enclosure
from nova_workers.contracts.content import text_of
from nova_workers.contracts.engine import (
    EngineCallbacks,
    EngineOptions,
    EngineResult,
    HttpMcpServer,
    McpServer,
    StdioMcpServer,
)
from nova_workers.engines.anthropic import AnthropicEngine
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.stdio import stdio_transport
from nova_workers.engines.scripted import ScriptedEngine
from nova_workers.shell_sandbox import NoSandbox, SandboxKind, ShellSandbox, find_sandbox
from tests.requirements import proves
from tests.support.processes.inspection import is_alive, wait_until_gone
from tests.support.processes.key_holder import key_holder
from tests.support.servers.asgi import serving
from tests.support.servers.model_server import ModelServer, Part, Stream
from tests.support.waiting import pass_time, until

Json = dict[str, Any]

CHILD = StdioMcpServer(
    command=sys.executable,
    args=("-m", "tests.support.servers.mcp_stdio_server"),
    env={"GREETING": "Hello "},
    cwd=os.getcwd(),
)
MISBEHAVING = StdioMcpServer(sys.executable, ("-m", "tests.support.servers.mcp_misbehaving_server"), cwd=os.getcwd())
PID: Json = {"name": "pid"}
_BY_THE_LIBRARY = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("library")
server.tool(name="greet", description="Greet.")(lambda name: f"Hello {name}")
server.run("stdio")
"""

_NONSENSE = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    version = asked.get("params", {}).get("protocolVersion")
    about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "nonsense", "version": "1"}}
    answers = {
        "initialize": {"protocolVersion": version, **about},
        "tools/list": {"tools": "many"},
    }
    if asked.get("method") in answers:
        answer = {"result": answers[asked["method"]]}
    else:
        answer = {"error": {"code": -32601, "message": "no"}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


class Player:
    """Runs scripts on one engine, as a worker process does."""

    def __init__(self, **seconds: float) -> None:
        pool = ConnectionPool(**seconds)  # pyright: ignore[reportArgumentType] - its times only, by name
        self.engine = ScriptedEngine(environment="development", connections=pool)

    async def __call__(
        self,
        servers: Mapping[str, McpServer],
        *tools: Json | list[Json],
        abort: AbortSignal | None = None,
        callbacks: EngineCallbacks | None = None,
    ) -> EngineResult:
        script: list[Json] = [{"tool": tool} for tool in tools] + [{"say": "End"}]
        options = EngineOptions(mcp_servers=servers, engine_config={"script": script})
        playing = self.engine.run("go", options, "sandbox", abort=abort, callbacks=callbacks)
        return await asyncio.wait_for(playing, 60)

    async def pid(self, server: McpServer) -> int:
        """Return the process that serves a turn."""
        return int(_said(await self({"child": server}, PID)))


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give servers that are stuck less time to exit. `test_hostile_mcp_servers` has them with all of it."""
    monkeypatch.setattr("nova_workers.engines.mcp.stdio._EXIT_S", 0.5)
    monkeypatch.setattr("nova_workers.engines.mcp.stdio._GRACE_S", 0.3)


@pytest.fixture
async def play() -> AsyncIterator[Player]:
    player = Player()
    yield player
    await player.engine.close()


def _said(result: EngineResult, call: int = 0) -> str:
    return text_of(result.tool_calls[call].result or ())


async def test_turns_share_a_child_process_that_ends_with_the_engine() -> None:
    play = Player()
    result = await play({"child": CHILD}, {"name": "echo", "input": {"text": "world"}}, PID)
    pid = int(_said(result, 1))
    assert (_said(result), result.text) == ("Hello world", "End")
    assert await play.pid(CHILD) == pid
    assert await asyncio.gather(*(play.pid(CHILD) for _ in range(5))) == [pid] * 5
    await play.engine.close()
    assert not is_alive(pid)


async def test_a_server_of_the_official_library_is_called(play: Player) -> None:
    server = StdioMcpServer(sys.executable, ("-c", _BY_THE_LIBRARY))
    result = await play({"library": server}, {"name": "greet", "input": {"name": "world"}})
    assert _said(result) == "Hello world"


@pytest.mark.parametrize(
    "other",
    [
        replace(CHILD, scope="ten_2"),
        replace(CHILD, env={"GREETING": "Hi "}),
        replace(CHILD, args=("-B", *CHILD.args)),
        replace(CHILD, reuse=False),
    ],
    ids=["another tenant", "another secret", "other arguments", "told not to"],
)
async def test_turns_with_different_configurations_share_no_process(play: Player, other: StdioMcpServer) -> None:
    assert await play.pid(CHILD) != await play.pid(other)


async def test_turns_with_different_allow_lists_share_a_process(play: Player) -> None:
    assert await play.pid(CHILD) == await play.pid(replace(CHILD, tools=("pid",), timeout_s=30.0))


@proves("security.tool-names")
async def test_the_tools_of_a_qualified_server_never_go_by_their_own_names(play: Player) -> None:
    calls: list[Json] = [{"name": name, "input": {"text": "x"}} for name in ("mcp__one__echo", "echo")]
    result = await play({"mcp__one": replace(CHILD, qualified=True)}, calls)
    # A tool that no server has is played.
    assert _said(result) == "Hello x"
    assert "Hello" not in _said(result, 1)


async def test_a_child_of_one_turn_ends_with_it(play: Player) -> None:
    pid = await play.pid(replace(CHILD, reuse=False))
    await until(lambda: not is_alive(pid))


async def test_an_unused_child_process_is_closed() -> None:
    play = Player(idle_s=0.05)
    pid = await play.pid(CHILD)
    await until(lambda: not is_alive(pid))
    assert await play.pid(CHILD) != pid
    await play.engine.close()


@proves("engine.mcp-away")
async def test_a_child_that_dies_is_a_tool_error_and_the_next_call_gets_a_new_one(play: Player) -> None:
    result = await play({"child": CHILD}, {"name": "die"}, {"name": "echo", "input": {"text": "x"}})
    assert [call.status for call in result.tool_calls] == ["failed", "completed"]
    assert (result.stop_reason, result.text) == ("end_turn", "End")


async def test_a_child_that_died_between_turns_is_replaced(play: Player) -> None:
    pid = await play.pid(CHILD)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_alive(pid))
    assert await play.pid(CHILD) != pid


async def test_a_child_that_hangs_between_turns_is_replaced(play: Player, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_workers.engines.mcp.pool._CHECK_TIMEOUT_S", 0.3)
    pid = await play.pid(CHILD)
    os.kill(pid, signal.SIGSTOP)
    assert await play.pid(CHILD) != pid


@pytest.mark.parametrize(
    "server",
    [
        StdioMcpServer(command="/does/not/exist"),
        StdioMcpServer(command="sleep", args=("60",), timeout_s=0.5),
        StdioMcpServer(command="false"),
        HttpMcpServer("http://127.0.0.1:1/mcp", timeout_s=5.0),
        StdioMcpServer(sys.executable, ("-c", _NONSENSE)),
    ],
    ids=["no such command", "says nothing", "ends at once", "nobody listens", "says nonsense"],
)
@proves("engine.mcp-away")
async def test_a_server_that_does_not_answer_costs_the_turn_its_tools_only(play: Player, server: McpServer) -> None:
    with capture_logs() as logs:
        result = await play({"away": server, "child": CHILD}, {"name": "echo", "input": {"text": "x"}})
    assert (_said(result), result.stop_reason) == ("Hello x", "end_turn")
    (warned,) = (entry for entry in logs if entry["event"] == "mcp_server_unreachable")
    assert warned["server"] == "away"
    assert warned["cause"]


async def test_the_model_gets_the_names_of_silent_servers(server: ModelServer, engine: AnthropicEngine) -> None:
    server.reply(Stream((Part("tool", ("toolu_1", "read_issue", {})),)), Stream((Part("text", ["Sorry"]),)))
    options = EngineOptions(system_prompt="Be kind", mcp_servers={"tracker": StdioMcpServer(command="/no/such")})
    result = await engine.run("hi", options, "sandbox")
    stable, note = server.requests[0]["system"]
    assert "cache_control" in stable
    assert "tools are missing: tracker" in note["text"]
    assert "cache_control" not in note
    assert "These servers do not answer: tracker." in (result.tool_calls[0].error or "")


async def test_an_abort_while_connecting_stops_the_child(play: Player) -> None:
    abort = AbortSignal()
    asyncio.get_running_loop().call_later(0.3, abort.abort, "cancel")
    mute = StdioMcpServer(command="sleep", args=("600",), timeout_s=600.0)
    result = await play({"mute": mute}, {"name": "echo"}, abort=abort)
    assert result.stop_reason == "aborted"


async def test_an_abort_cancels_the_call_at_the_server(play: Player) -> None:
    abort = AbortSignal()

    def on_tool_use(*_: object) -> None:
        asyncio.get_running_loop().call_later(0.3, abort.abort, "cancel")

    result = await play(
        {"child": CHILD}, {"name": "hang"}, abort=abort, callbacks=EngineCallbacks(on_tool_use=on_tool_use)
    )
    assert result.stop_reason == "aborted"
    assert _said(await play({"child": CHILD}, {"name": "canceled"})) == "hang"


def _is_full(pid: int) -> bool:
    """Return whether the pipe to a process's standard input takes no more.

    Its unread bytes do not say so: a page that is partly read counts as a whole one.
    """
    pipe = os.open(f"/proc/{pid}/fd/0", os.O_WRONLY | os.O_NONBLOCK)
    try:
        return not select.select([], [pipe], [], 0)[1]
    finally:
        os.close(pipe)


async def test_a_blocked_server_delays_neither_an_abort_nor_later_turns(
    play: Player, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nova_workers.engines.mcp.pool._CHECK_TIMEOUT_S", 0.3)
    pids = tmp_path / "pids"
    rude = replace(MISBEHAVING, args=(*MISBEHAVING.args, str(pids)), timeout_s=600.0)
    abort = AbortSignal()
    # After the first it reads no more, and the pipe is full: to tell it of a canceled call takes for ever.
    calls = [{"name": "sulk"}, {"name": "sulk", "input": {"text": "x" * 500_000}}, {"name": "sulk"}]
    running = asyncio.create_task(play({"rude": rude}, calls, abort=abort))
    await until(lambda: pids.exists() and (pid := pids.read_text()) and _is_full(int(pid)))
    abort.abort("cancel")
    assert (await running).stop_reason == "aborted"
    await play({"rude": rude, "child": CHILD}, PID)
    first, second = (int(pid) for pid in pids.read_text().split())
    assert first != second
    await play.engine.close()
    await until(lambda: not is_alive(first) and not is_alive(second))


async def test_a_servers_error_with_the_code_of_a_closed_connection_is_a_tool_error(play: Player) -> None:
    result = await play({"rude": MISBEHAVING}, PID, {"name": "refuse"}, PID)
    assert [call.status for call in result.tool_calls] == ["completed", "failed", "completed"]
    assert result.tool_calls[1].error == "refuse failed: no such customer"
    assert _said(result, 0) == _said(result, 2)


@pytest.mark.parametrize("blocked_by", [{}, {"text": "x" * 500_000}], ids=["silent", "reads no more"])
@proves("engine.mcp-away")
async def test_a_server_that_blocks_costs_a_turn_one_timeout_and_the_next_turn_a_new_process(
    play: Player, blocked_by: Json
) -> None:
    rude = replace(MISBEHAVING, timeout_s=20)
    pid = await play.pid(rude)
    at_once: list[Json] = [{"name": "sulk"}, {"name": "sulk", "input": blocked_by}, PID]
    begun = asyncio.Event()

    def on_tool_use(*_: object) -> None:
        begun.set()

    with capture_logs() as logs:
        running = asyncio.create_task(
            play(
                {"rude": rude, "child": CHILD},
                at_once,
                {"name": "sulk"},
                PID,
                {"name": "count"},
                callbacks=EngineCallbacks(on_tool_use=on_tool_use),
            )
        )
        await begun.wait()
        await pass_time(21)
        result = await running
    assert 1 <= len([line for line in logs if line["event"] == "mcp_server_blocked"]) <= len(at_once)
    assert [call.status for call in result.tool_calls] == ["failed"] * 5 + ["completed"]
    assert all("does not answer" in (call.error or "") for call in result.tool_calls[:5])
    assert await play.pid(rude) != pid
    await until(lambda: not is_alive(pid))


async def test_progress_is_reported_while_the_call_runs(play: Player) -> None:
    told: list[tuple[str, str]] = []
    callbacks = EngineCallbacks(on_tool_progress=lambda call, summary: told.append((call.tool_name, summary)))
    result = await play({"child": CHILD}, {"name": "count"}, callbacks=callbacks)
    assert _said(result) == "counted"
    # What comes faster than a person reads is left out, but not the end.
    assert told == [("count", "count: 1 of 3 at 1"), ("count", "count: 3 of 3 at 3")]


def _with_escapee(server: StdioMcpServer, pids: Path) -> StdioMcpServer:
    """Return a server that first starts a process in a session of its own, without an environment or a parent."""
    escape = f'(setsid env -i /bin/sh -c "echo \\$\\$ >> {pids}; exec /bin/sleep 60" &); exec "$@"'
    return replace(server, command="/bin/sh", args=("-c", escape, "sh", server.command, *server.args))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux is asked")
@proves("child.descendants")
async def test_processes_of_a_server_end_with_its_connection(play: Player, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    served_by = await play.pid(replace(_with_escapee(CHILD, pids), reuse=False))
    await until(lambda: pids.exists() and pids.read_text().endswith("\n"))
    await until(lambda: not any(is_alive(pid) for pid in (served_by, int(pids.read_text()))))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux is asked")
@proves("child.killed-worker")
def test_children_die_with_a_process_that_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    rude = _with_escapee(replace(MISBEHAVING, args=(*MISBEHAVING.args, str(pids))), pids)
    program = f"""
import asyncio, os, signal, sys
from nova_workers.contracts.engine import EngineOptions, StdioMcpServer
from nova_workers.engines.scripted import ScriptedEngine

async def main():
    rude = StdioMcpServer({rude.command!r}, {rude.args!r}, cwd=os.getcwd())
    options = EngineOptions(mcp_servers={{"rude": rude}}, engine_config={{"script": [{{"tool": {{"name": "sulk"}}}}]}})
    turn = asyncio.ensure_future(ScriptedEngine(environment="development").run("go", options, "sandbox"))
    while not os.path.exists({str(pids)!r}) or len(open({str(pids)!r}).read().split()) < 2:
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    server, escaped = (int(pid) for pid in pids.read_text().split())
    assert wait_until_gone({server, escaped}, 60) == set()


class Web:
    """An MCP server behind HTTP."""

    def __init__(self) -> None:
        self.hung = asyncio.Event()
        self.canceled = asyncio.Event()
        self._port = 0
        self._serving: AbstractAsyncContextManager[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/mcp"

    async def start(self) -> None:
        """Listen again, at the same port."""
        self._serving = serving(self._tools().streamable_http_app(), port=self._port)
        self._port = int((await self._serving.__aenter__()).rpartition(":")[2])

    async def stop(self) -> None:
        """Stop listening."""
        await self._serving.__aexit__(None, None, None)

    def _tools(self) -> MCPServer:
        server = MCPServer("http")

        @server.tool()
        async def secret(ctx: Context[Any]) -> str:
            """Show the header."""
            return str((ctx.headers or {}).get("x-secret"))

        @server.tool()
        async def hang() -> str:
            """Never answer."""
            self.hung.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.canceled.set()
                raise
            return "late"

        return server


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    server = Web()
    await server.start()
    yield server
    await server.stop()


async def test_an_http_server_gets_its_headers_and_no_other_turns(play: Player, web: Web) -> None:
    for secret in ("s3", "s4"):
        result = await play({"web": HttpMcpServer(web.url, headers={"x-secret": secret})}, {"name": "secret"})
        assert _said(result) == secret


async def test_an_http_server_that_hangs_is_a_tool_error(play: Player, web: Web) -> None:
    server = HttpMcpServer(web.url, timeout_s=20)
    running = asyncio.create_task(play({"web": server}, {"name": "hang"}, {"name": "secret"}))
    await until(web.hung.is_set)
    await pass_time(21)
    result = await running
    assert [call.status for call in result.tool_calls] == ["failed", "completed"]
    assert "timed out" in (result.tool_calls[0].error or "")
    assert result.text == "End"


async def test_an_abort_reaches_an_http_server(play: Player, web: Web) -> None:
    abort = AbortSignal()
    server = HttpMcpServer(web.url, timeout_s=600.0)
    running = asyncio.create_task(play({"web": server}, {"name": "hang"}, abort=abort))
    await asyncio.wait_for(web.hung.wait(), 60)
    abort.abort("cancel")
    assert (await running).stop_reason == "aborted"
    await asyncio.wait_for(web.canceled.wait(), 60)


async def test_an_http_server_is_reached_again_after_a_restart(web: Web) -> None:
    play = Player(rest_s=0.0)
    server = HttpMcpServer(web.url, headers={"x-secret": "s"}, timeout_s=60)
    assert _said(await play({"web": server}, {"name": "secret"})) == "s"
    await web.stop()
    # A missing tool cannot be called: the script's own tool is called instead.
    assert _said(await play({"web": server}, {"name": "secret", "result": "away"})) == "away"
    await web.start()
    assert _said(await play({"web": server}, {"name": "secret"})) == "s"
    await play.engine.close()


async def _written(tmp_path: Path, server: StdioMcpServer, sandbox: ShellSandbox | NoSandbox) -> str:
    """Return what a server writes to stderr until it ends."""
    with (tmp_path / "errors").open("w+") as errors:
        async with stdio_transport(server, errors, sandbox) as (received, _):
            async for _ in received:
                pass
        return (tmp_path / "errors").read_text()


@pytest.fixture
def fleet_home() -> Iterator[Path]:
    """A NOVA_HOME that is not below /tmp, which a sandbox hides anyway."""
    home = Path(tempfile.mkdtemp(prefix="nova-test-", dir="/var/tmp"))
    home.chmod(0o755)
    (home / "workspace" / "ten_1").mkdir(parents=True)
    (home / "master_keys").write_text("hush\n")
    yield home
    shutil.rmtree(home)


@pytest.mark.parametrize("kind", get_args(SandboxKind))
@proves("ceilings.sandbox")
async def test_a_program_of_a_tenant_with_ceilings_reaches_no_key(
    tmp_path: Path, fleet_home: Path, kind: SandboxKind
) -> None:
    home = fleet_home
    private = PrivateFiles(home, home / "workspace")
    hidden = (str(home), str(private.workspace))
    try:
        sandbox = find_sandbox(network=False, hidden=hidden, private=private, choice=kind)
    except ConfigurationError as error:
        pytest.skip(error.message)
    async with key_holder() as holder:
        reads = f"cat {home}/master_keys /proc/*/environ /proc/{holder}/environ; ls -d /proc/{holder}; echo done"
        enclosure = Enclosure((str(private.workspace / "ten_1"),))
        ask = "exec 3<> /dev/tcp/127.0.0.1/3128; printf 'CONNECT 127.0.0.1:443 HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3"
        script = f"exec >&2; ({reads}) 2>&1 | tr '\\0' '\\n'; echo $HOME; ({ask})"
        server = StdioMcpServer("bash", ("-c", script), enclosure=enclosure)
        rules = OutboundRules()
        told = await _written(tmp_path, server, replace(sandbox, gate=EgressProxy(rules)))
        assert "done\n/tmp\n" in told
        # A program reaches the network of the machine through the proxy only, as long as it runs.
        assert ("403 Forbidden" in told) == (kind != "landlock")
        assert "hush" not in told
        assert told.count("Permission denied" if kind == "landlock" else "No such file") >= 2
        own = await _written(tmp_path, replace(server, enclosure=None), sandbox)
        assert "done" in own
        # Without namespaces NOVA_HOME is not hidden from the operator's own programs.
        assert own.count("hush") == (kind == "landlock")
    with pytest.raises(ConnectionError, match=r"this worker has none\. Missing here: Landlock"):
        await _written(tmp_path, server, NoSandbox("Missing here: Landlock 6."))
    with pytest.raises(ValueError, match="outside the directories"):
        await _written(tmp_path, replace(server, cwd=str(home)), sandbox)
