"""Bash."""

import asyncio
import json
import os
from pathlib import Path

import psutil
import pytest
import uvloop

from nova_workers.base.errors import ConfigurationError
from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.native import NativeTools, ShellSettings
from nova_workers.shell_sandbox import ShellSandbox, find_sandbox
from tests.requirements import proves
from tests.support.waiting import pass_time, until
from tests.unit.engines.native.conftest import NativeToolCaller


async def test_a_command_runs_in_the_working_directory_and_shows_its_errors(caller: NativeToolCaller) -> None:
    outcome = await caller.outcome("Bash", command="pwd; echo oops >&2; exit 3")
    assert outcome.content[0]["text"] == f"{caller.workdir}\noops\n[exit code 3]"
    assert outcome.failed
    assert await caller.call("Bash", command="true") == "(no output)"
    assert await caller.call("Bash", command="cat; echo end") == "end"


async def test_each_call_is_a_new_shell(caller: NativeToolCaller) -> None:
    await caller.call("Bash", command="cd /; export X=1")
    assert await caller.call("Bash", command="echo $PWD $X") == str(caller.workdir)


async def test_long_output_is_cut_in_the_middle(caller: NativeToolCaller) -> None:
    output = await caller.call("Bash", command="echo begin; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert output.startswith("begin\nxxx")
    assert output.endswith("xxx\nend")
    assert "bytes omitted" in output
    assert len(output) < 2_200


@proves("security.environment")
async def test_the_workers_environment_does_not_leak(caller: NativeToolCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "NOVA_DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SOME_NEW_SECRET"):
        monkeypatch.setenv(name, "hush")
    monkeypatch.setenv("HOME", "/home/operator")
    env = dict(
        line.split("=", 1) for line in (await caller.call("Bash", command="env -0 | tr '\\0' '\\n'")).splitlines()
    )
    assert "hush" not in env.values()
    assert env["HOME"] == str(caller.workdir)
    assert not any(name.startswith(("NOVA", "ANTHROPIC")) for name in env)


async def test_variables_that_the_operator_names_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_PATH", "/node")
    native = NativeTools(shell=ShellSettings(passed_on=("NODE_PATH",)))
    assert await NativeToolCaller(native, tmp_path).call("Bash", command="echo $NODE_PATH") == "/node"
    native.close()


async def test_a_command_over_its_time_limit_is_stopped_and_its_output_kept(caller: NativeToolCaller) -> None:
    command = "echo so far; touch born; sleep 600"
    call = asyncio.create_task(caller.outcome("Bash", command=command, timeout_ms=60_000))
    await _born(caller.workdir)
    await pass_time(61)
    outcome = await call
    assert outcome.content[0]["text"] == "so far\n[stopped: it took longer than 60 s]"
    assert outcome.failed


async def test_no_command_may_take_longer_than_the_turns_tools(caller: NativeToolCaller) -> None:
    options = EngineOptions(cwd=str(caller.workdir), tool_timeout_s=0.2)
    caller = caller.with_tools(caller.native.for_turn(options, "unrestricted"))
    assert "0.2 s" in await caller.call("Bash", command="sleep 60", timeout_ms=500_000)


FAMILY = """
(trap '' TERM HUP; sleep 1234) &
setsid sleep 1234 &
setsid bash -c 'sleep 1234 & disown; sleep 1234' &
nohup bash -c 'setsid sleep 1234 & sleep 1234' >/dev/null 2>&1 &
"""


def _family(workdir: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(workdir)]


async def _gone(workdir: Path) -> bool:
    return await until(lambda: not _family(workdir))


async def _born(workdir: Path) -> None:
    await until((workdir / "born").exists)


@pytest.mark.parametrize("end", ["exit", "timeout", "cancel"])
async def test_no_process_of_a_command_outlives_it(caller: NativeToolCaller, end: str) -> None:
    command = FAMILY + "sleep 0.2; touch born; " + ("true" if end == "exit" else "wait")
    call = asyncio.create_task(caller.outcome("Bash", command=command, timeout_ms=60_000))
    await _born(caller.workdir)
    if end == "timeout":
        await pass_time(61)
    if end == "cancel":
        assert len(_family(caller.workdir)) > 3
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    else:
        await call
    assert await _gone(caller.workdir)


def test_no_process_outlives_a_command_on_the_workers_loop(caller: NativeToolCaller) -> None:
    async def attempt() -> None:
        assert await caller.call("Bash", command="echo hi; setsid sleep 1234 & sleep 0.1") == "hi"
        assert await _gone(caller.workdir)
        assert "0.2 s" in await caller.call("Bash", command="sleep 1234", timeout_ms=200)
        assert await _gone(caller.workdir)

    uvloop.run(attempt())


async def test_no_zombie_and_no_open_pipe_is_left(caller: NativeToolCaller) -> None:
    await caller.call("Bash", command="true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await caller.call("Bash", command="sleep 5", timeout_ms=50)
        await caller.call("Bash", command="true")
    assert len(os.listdir("/proc/self/fd")) <= before
    assert not [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE]


async def test_commands_run_concurrently(caller: NativeToolCaller) -> None:
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.01; done; echo met"
    both = await asyncio.gather(
        caller.call("Bash", command=meet.format("a", "b"), timeout_ms=20_000),
        caller.call("Bash", command=meet.format("b", "a"), timeout_ms=20_000),
    )
    assert both == ["met", "met"]


async def test_a_command_that_cannot_be_executed_is_refused(caller: NativeToolCaller) -> None:
    assert "NUL" in await caller.failure("Bash", command="echo \x00")
    assert "unicode" in await caller.failure("Bash", command="echo \ud800")
    caller.workdir.rmdir()
    assert "cannot be started" in await caller.failure("Bash", command="true")


BWRAP = """#!/bin/bash
printf '%s\\n' "$@" > "$(dirname "$0")/seen"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


async def test_the_sandbox_wraps_every_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, work, data = tmp_path / "bin" / "bwrap", tmp_path / "work", tmp_path / "data"
    for directory in (program.parent, work, data):
        directory.mkdir()
    program.write_text(BWRAP)
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    sandbox = ShellSandbox((str(program),), network=False, hidden=(str(tmp_path / "data"),))
    native = NativeTools(shell=ShellSettings(sandbox=sandbox))
    caller = NativeToolCaller(native, work)
    assert await caller.with_tools(caller.toolset("unrestricted", data)).call("Bash", command="echo inside") == "inside"
    native.close()
    seen = (program.parent / "seen").read_text().splitlines()
    assert {"--unshare-all", "--die-with-parent", "--new-session"} <= set(seen)
    assert "--share-net" not in seen
    text = json.dumps(seen)
    assert json.dumps(["--ro-bind", "/", "/"])[1:-1] in text
    # What is hidden is hidden before what is granted is bound, or the grant would be hidden too.
    hidden, bound = seen.index(str(data)), len(seen) - 1 - seen[::-1].index(str(data))
    assert (seen[hidden - 1], seen[bound - 2]) == ("--tmpfs", "--bind-try")
    assert hidden < bound
    assert json.dumps(["--bind-try", str(work), str(work)])[1:-1] in text


def test_where_no_kind_works_the_reason_of_each_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refused = tmp_path / "refused"
    refused.write_text("#!/bin/sh\necho 'not here' >&2; exit 1\n")
    refused.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(refused))
    with pytest.raises(ConfigurationError) as caught:
        find_sandbox(network=True)
    for part in ("There is no bwrap", "with namespaces: not here", "Landlock alone: not here"):
        assert part in caught.value.message


def test_a_configured_sandbox_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="bubblewrap"):
        find_sandbox(network=True, choice="bubblewrap")


def test_a_sandbox_that_the_machine_does_not_allow_stops_the_worker_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ConfigurationError, match=r"No permissions to create a new namespace.*user namespaces"):
        find_sandbox(network=True, choice="bubblewrap")
