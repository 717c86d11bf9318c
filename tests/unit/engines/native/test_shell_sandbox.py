"""Bash in a real bubblewrap sandbox: what a command can and cannot do, for any user of the worker."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nova_workers.engines.native import NativeTools, ShellSandbox, ShellSettings
from nova_workers.errors import ConfigurationError
from tests.requirements import proves
from tests.support.servers.model_server import model_server
from tests.support.waiting import until
from tests.unit.engines.native.conftest import NativeToolCaller


def _why_not() -> str | None:
    try:
        ShellSandbox.find(network=True)
    except ConfigurationError as error:
        return error.message
    return None


_REASON = _why_not()

pytestmark = pytest.mark.skipif(_REASON is not None, reason=f"Needs bubblewrap and user namespaces: {_REASON}")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the worker's user, with a secret."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret").write_text("hush\n")
    monkeypatch.setenv("HOME", str(home))
    return home


def _caller(tmp_path: Path, *, network: bool = False) -> NativeToolCaller:
    work = tmp_path / "home" / "workspace" / "agent"
    work.mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "key").write_text("hush\n")
    sandbox = ShellSandbox.find(network=network, hidden=(str(tmp_path / "data"),))
    return NativeToolCaller(NativeTools(shell=ShellSettings(sandbox=sandbox, output_bytes=4_000)), work)


@pytest.fixture
def caller(tmp_path: Path, home: Path) -> Iterator[NativeToolCaller]:
    """Native tools whose working directory lies in the worker's home, as `NOVA_HOME` has it."""
    assert home.is_dir()
    caller = _caller(tmp_path)
    yield caller
    caller.native.close()


async def test_a_command_works_in_its_directory_and_its_files_stay(caller: NativeToolCaller) -> None:
    assert await caller.call("Bash", command="pwd; echo data > file; cat file") == f"{caller.workdir}\ndata"
    assert (caller.workdir / "file").read_text() == "data\n"
    outcome = await caller.outcome("Bash", command="echo oops >&2; exit 3")
    assert outcome.content[0]["text"] == "oops\n[exit code 3]"


async def test_the_agents_directories_are_writable_although_they_are_hidden(
    caller: NativeToolCaller, tmp_path: Path
) -> None:
    given = caller.with_tools(caller.toolset("unrestricted", tmp_path / "data"))
    assert await given.call("Bash", command=f"cat {tmp_path}/data/key; echo new > {tmp_path}/data/new") == "hush"
    assert (tmp_path / "data" / "new").read_text() == "new\n"


async def test_the_workers_home_and_data_look_empty(caller: NativeToolCaller, home: Path, tmp_path: Path) -> None:
    told = await caller.call("Bash", command=f"ls -A {home} {tmp_path}/data")
    assert told == f"{tmp_path}/data:\n\n{home}:\nworkspace"
    for path in (home / "secret", tmp_path / "data" / "key"):
        assert "No such file" in (await caller.outcome("Bash", command=f"cat {path}")).content[0]["text"]


@pytest.mark.parametrize(
    "escape",
    [
        "umount {home}",
        "umount -l {home}",
        "mount -o remount,rw,bind /",
        "mount --bind / {work}",
        "unshare -Urm umount {home}",
        "unshare -Urm mount -o remount,rw,bind /",
        "chroot / true",
        "touch /etc/nova-escaped",
        "touch /usr/nova-escaped",
        "sh -c ': >> /proc/sys/kernel/printk'",
        "sh -c ': >> /proc/sysrq-trigger'",
        "mknod {work}/disk b 8 0",
    ],
)
@proves("engine.sandbox")
async def test_a_command_cannot_undo_its_confinement_even_as_root(
    caller: NativeToolCaller, home: Path, escape: str
) -> None:
    command = escape.format(home=home, work=caller.workdir)
    told = await caller.outcome("Bash", command=f"{command}; code=$?; ls {home}; cat {home}/secret; exit $code")
    assert told.failed, told
    assert "hush" not in told.content[0]["text"]
    assert not any("nova-escaped" in os.listdir(path) for path in ("/etc", "/usr"))


async def test_a_command_has_no_capability_and_sees_no_process_but_its_own(caller: NativeToolCaller) -> None:
    told = await caller.call("Bash", command="grep -h Cap /proc/self/status; ls -d /proc/[0-9]* | wc -l")
    *capabilities, processes = told.splitlines()
    assert {line.split()[1] for line in capabilities} == {"0" * 16}
    assert int(processes) < 10
    assert str(os.getpid()) not in await caller.call("Bash", command="ls /proc")


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.usefixtures("home")
async def test_the_network_is_available_only_if_configured(tmp_path: Path, *, network: bool) -> None:
    caller = _caller(tmp_path, network=network)
    async with model_server() as server:
        port = server.url.rpartition(":")[2]
        outcome = await caller.outcome("Bash", command=f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached")
    names = await caller.outcome("Bash", command="cat /etc/resolv.conf > /dev/null && echo names")
    caller.native.close()
    assert (outcome.content[0]["text"] == "reached") is network
    assert names.content[0]["text"] == "names"


def _sleepers() -> list[psutil.Process]:
    # A time of its own: other tests sleep too.
    return [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "4321"]]


@pytest.mark.parametrize("end", ["exit", "timeout", "cancel"])
async def test_no_process_of_a_confined_command_outlives_it(caller: NativeToolCaller, end: str) -> None:
    command = "setsid sleep 4321 & (trap '' TERM; sleep 4321) & touch born; "
    command += "true" if end == "exit" else "wait"
    timeout_ms = 800 if end == "timeout" else 60_000
    call = asyncio.create_task(caller.outcome("Bash", command=command, timeout_ms=timeout_ms))
    await until((caller.workdir / "born").exists)
    if end == "cancel":
        call.cancel()
    await asyncio.wait((call,))
    await until(lambda: not _sleepers(), timeout_s=5)


async def test_a_confined_command_does_not_see_the_workers_environment(
    caller: NativeToolCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "hush")
    assert "hush" not in await caller.call("Bash", command="env; cat /proc/*/environ")


def test_a_user_whose_home_is_the_root_directory_has_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/")
    command = ShellSandbox.find(network=False).wrap(["/bin/sh", "-c", "ls /usr/bin/env"], "/", ())
    assert subprocess.run(command, capture_output=True, check=False).stdout == b"/usr/bin/env\n"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="Only root can switch the user")
def test_a_worker_that_is_not_root_confines_likewise(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    command = ShellSandbox.find(network=False).wrap(
        ["/bin/sh", "-c", "id -u; umount /tmp; touch /tmp/x; touch /etc/x; unshare -Urm umount /tmp"], "/", ()
    )
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run([*become, *command], capture_output=True, text=True, check=False)
    assert done.stdout == "65534\n"
    assert done.returncode != 0


async def test_names_are_resolved_if_resolv_conf_is_a_link_into_a_hidden_folder(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "resolv").write_text("nameserver 127.0.0.53\n")
    (tmp_path / "resolv.conf").symlink_to(home / "resolv")
    monkeypatch.setattr("nova_workers.engines.native.sandbox._NAME_SERVERS", str(tmp_path / "resolv.conf"))
    caller = _caller(tmp_path, network=True)
    assert await caller.call("Bash", command=f"cat {home}/resolv") == "nameserver 127.0.0.53"
    caller.native.close()
