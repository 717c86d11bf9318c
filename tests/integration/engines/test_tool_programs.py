"""The processes of tools of users: shared, started when needed, and replaced when they end."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import get_args

import pytest
from mcp.types import CallToolResult, TextContent

from nova_workers.base.confined import PrivateFiles
from nova_workers.base.errors import ConfigurationError, ToolFailure
from nova_workers.contracts.agents import Enclosure
from nova_workers.contracts.tool_programs import ToolSource
from nova_workers.contracts.user_tools import CallContext, ListedTool
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.tool_programs import McpToolPrograms
from nova_workers.shell_sandbox import SandboxKind, find_sandbox, make_private
from tests.requirements import proves
from tests.support.harness.logs import recorded_logs
from tests.support.processes.inspection import is_alive, wait_until_gone
from tests.support.waiting import until

CODE = '''
import os, signal, sys, time
from pathlib import Path
from nova_workers.sdk import tool, ToolContext

HERE = Path(__file__).parent.parent

@tool
def process() -> int:
    """Return the process."""
    return os.getpid()

@tool
def wait(file: str) -> str:
    """Wait until a file is there."""
    (HERE / f"{file}-began").touch()
    while not (HERE / file).exists():
        time.sleep(0.01)
    return file

@tool(timeout_s=0.5)
def block() -> None:
    """Block."""
    time.sleep(3600)

@tool
def show(context: ToolContext) -> str:
    """Print a secret, and say whom this process is."""
    print("shown:", context.secret("KEY"), flush=True)
    return f"{os.getuid()} {sorted(os.environ)} {os.listdir('/proc')}"

@tool
def keep(context: ToolContext) -> str:
    """Count a line more in a file of the agent."""
    file = context.directory / "notes.txt"
    file.write_text((file.read_text() if file.exists() else "") + "kept\\n")
    return file.read_text()
'''


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that is not below /tmp, which a sandbox hides."""
    home = Path(tempfile.mkdtemp(prefix="nova-test-", dir="/var/tmp"))
    home.chmod(0o755)
    (home / "shop" / "tools").mkdir(parents=True)
    (home / "shop" / "tools" / "shop.py").write_text(CODE, encoding="utf-8")
    (home / "nova" / "workspace" / "ten_1").mkdir(parents=True)
    yield home
    shutil.rmtree(home)


@pytest.fixture
async def programs() -> AsyncIterator[McpToolPrograms]:
    programs = McpToolPrograms(ConnectionPool(start_timeout_s=60))
    yield programs
    await programs.close()


async def _call(
    programs: McpToolPrograms,
    home: Path,
    name: str,
    *,
    tenant_id: str = "ten_1",
    idempotent: bool = False,
    enclosure: Enclosure | None = None,
    **arguments: str,
) -> str:
    tool = ListedTool(
        name=name, description="", input_schema={}, idempotent=idempotent, timeout_s=0.5 if name == "block" else 60
    )
    directory = None if enclosure is None else f"{enclosure.roots[0]}/agent"
    context = CallContext(tenant_id=tenant_id, directory=directory, secrets={"KEY": "key-5d1e8a77"})
    source = ToolSource("project:shop", f"{home}/shop/", tenant_id)
    result = await programs.call(source, tool, arguments, context, enclosure=enclosure, report=None)
    assert isinstance(result, CallToolResult)
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def _began(home: Path, *names: str) -> None:
    for name in names:
        await until((home / "shop" / f"{name}-began").exists)


@proves("tools.child")
async def test_a_process_is_shared_by_concurrent_calls_of_a_tenant(programs: McpToolPrograms, home: Path) -> None:
    waiting = [asyncio.create_task(_call(programs, home, "wait", file=name)) for name in ("one", "two")]
    await _began(home, "one", "two")
    ours, again, theirs = await asyncio.gather(
        _call(programs, home, "process"),
        _call(programs, home, "process"),
        _call(programs, home, "process", tenant_id="ten_2"),
    )
    assert ours == again
    assert ours != theirs
    for name in ("one", "two"):
        (home / "shop" / name).touch()
    assert await asyncio.gather(*waiting) == ["one", "two"]
    await programs.close()
    assert not wait_until_gone([int(ours), int(theirs)], 30)


@pytest.mark.usefixtures("forked_user_code")
@proves("tools.crash")
async def test_a_killed_process_interrupts_its_calls_and_makes_idempotent_ones_again(
    programs: McpToolPrograms, home: Path
) -> None:
    process = int(await _call(programs, home, "process"))
    once = asyncio.create_task(_call(programs, home, "wait", file="once"))
    again = asyncio.create_task(_call(programs, home, "wait", file="again", idempotent=True))
    await _began(home, "once", "again")
    (home / "shop" / "again-began").unlink()
    os.kill(process, signal.SIGKILL)
    with pytest.raises(ToolFailure, match=r"wait was interrupted: the process of project:shop ended during the call"):
        await once
    await _began(home, "again")
    (home / "shop" / "again").touch()
    assert await again == "again"


@pytest.mark.usefixtures("forked_user_code")
@proves("tools.crash")
async def test_a_process_that_ended_between_calls_interrupts_none(programs: McpToolPrograms, home: Path) -> None:
    process = int(await _call(programs, home, "process"))
    os.kill(process, signal.SIGKILL)
    assert not wait_until_gone([process], 30)
    # The end of its output arrives a little later than its end.
    await asyncio.sleep(0)
    await until(lambda: _is_noticed(programs))
    assert int(await _call(programs, home, "process")) != process


def _is_noticed(programs: McpToolPrograms) -> bool:
    shared = programs._pool._shared  # pyright: ignore[reportPrivateUsage] - nothing else shows it before a call
    return all(held.connection.lost for held in shared.values())


@pytest.mark.usefixtures("forked_user_code")
@proves("tools.child")
async def test_a_process_ends_after_a_time_without_calls(home: Path) -> None:
    programs = McpToolPrograms(ConnectionPool(start_timeout_s=60, idle_s=0.01))
    process = int(await _call(programs, home, "process"))
    await until(lambda: not is_alive(process))
    await programs.close()


@pytest.mark.usefixtures("forked_user_code")
@proves("tools.crash")
async def test_a_call_that_python_cannot_end_takes_its_process_out_of_use(
    programs: McpToolPrograms, home: Path
) -> None:
    process = int(await _call(programs, home, "process"))
    waiting = asyncio.create_task(_call(programs, home, "wait", file="one"))
    await _began(home, "one")
    place = f"{home}/shop/tools/shop.py:24 in block()"
    assert f"time limit of 0.5 s, so it was stopped. It was at {place}." in await _call(programs, home, "block")
    assert int(await _call(programs, home, "process")) != process
    # What was called before goes on, and then the process ends.
    assert is_alive(process)
    (home / "shop" / "one").touch()
    assert await waiting == "one"
    await until(lambda: not is_alive(process))


@proves("tools.refused")
async def test_a_process_that_does_not_start_is_reported_with_the_place(programs: McpToolPrograms, home: Path) -> None:
    (home / "shop" / "tools" / "broken.py").write_text("import no_such_module\n")
    for _ in range(2):
        with pytest.raises(
            ToolFailure, match=rf"process was not called: .* {home}/shop/tools/broken\.py:1: the module"
        ):
            await _call(programs, home, "process")


@pytest.mark.usefixtures("forked_user_code")
@proves("tools.child")
async def test_what_a_process_prints_is_logged_without_the_secrets_of_its_calls(
    programs: McpToolPrograms, home: Path
) -> None:
    with recorded_logs() as logs:
        await _call(programs, home, "show")
        await until(lambda: "shown:" in logs.getvalue())
    assert "key-5d1e8a77" not in logs.getvalue()


@pytest.mark.parametrize("kind", get_args(SandboxKind))
@proves("tools.child")
async def test_a_process_of_a_tenant_with_ceilings_runs_in_the_sandbox(home: Path, kind: SandboxKind) -> None:
    private = PrivateFiles(home / "nova", home / "nova" / "workspace")
    hidden = (str(private.home), str(private.workspace), str(home))
    try:
        sandbox = find_sandbox(network=False, hidden=hidden, private=private, choice=kind)
    except ConfigurationError as error:
        pytest.skip(error.message)
    if kind == "landlock" and os.geteuid() == 0 and not Path(sys.prefix).is_relative_to("/usr"):
        pytest.skip("Landlock alone opens no directory that is the user's own, such as one with Python.")
    programs = McpToolPrograms(ConnectionPool(start_timeout_s=60, sandbox=sandbox))
    root = home / "nova" / "workspace" / "ten_1"
    make_private(root / "agent", other_user=True)
    enclosure = Enclosure((str(root), str(home / "nova" / "workspace" / "missing")))
    told = await _call(programs, home, "show", enclosure=enclosure)
    for lines in (1, 2):
        assert await _call(programs, home, "keep", enclosure=enclosure) == "kept\n" * lines
    assert "works with files, which the agent's trust does not give it" in await _call(programs, home, "keep")
    await programs.close()
    assert "NOVA_" not in told
    if os.geteuid() == 0:
        assert told.startswith("65534 ")
    if kind != "landlock":
        assert str(os.getpid()) not in told
