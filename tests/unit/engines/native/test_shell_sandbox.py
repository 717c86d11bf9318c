"""Bash in a real bubblewrap sandbox: what a command can and cannot do, for any user of the worker."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from nova_workers.confined import PrivateFiles
from nova_workers.contracts.agents import Enclosure
from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.native import NativeTools, ShellSettings
from nova_workers.errors import ConfigurationError
from nova_workers.runs.turns.directories import make_private
from nova_workers.shell_sandbox import SANDBOX_UID, ShellSandbox
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
    caller: NativeToolCaller, monkeypatch: pytest.MonkeyPatch, holder: int
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "hush")
    assert "hush" not in await caller.call("Bash", command=f"env; cat /proc/*/environ /proc/{holder}/environ; true")


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
    monkeypatch.setattr("nova_workers.shell_sandbox._NAME_SERVERS", str(tmp_path / "resolv.conf"))
    caller = _caller(tmp_path, network=True)
    assert await caller.call("Bash", command=f"cat {home}/resolv") == "nameserver 127.0.0.53"
    caller.native.close()


@pytest.fixture
def fleet_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A NOVA_HOME with master keys, outside of what is hidden anyway, with the directories of two tenants."""
    monkeypatch.setenv("HOME", "/")
    home = Path(tempfile.mkdtemp(prefix="nova-test-", dir="/var/tmp"))
    home.chmod(0o755)
    for name in ("ten_1/clerk", "ten_1/builder", "ten_2/clerk"):
        (home / "workspace" / name).mkdir(parents=True)
        (home / "workspace" / name / "note").write_text(f"note of {name}\n")
    (home / "master_keys").write_text("hush\n")
    yield home
    shutil.rmtree(home)


@pytest.fixture
async def holder() -> AsyncIterator[int]:
    """A process of the worker's user with a secret in its environment, as the worker has."""
    process = await asyncio.create_subprocess_exec("sleep", "60", env={"NOVA_SECRETS__KEYS": "hush"})
    # Set at its start: what a process sets later is not there.
    await until(lambda: "hush" in Path(f"/proc/{process.pid}/environ").read_text())
    yield process.pid
    process.kill()
    await process.wait()


def _enclosed(home: Path, *directories: Path, cwd: str = "ten_1/clerk", roots: Sequence[Path] = ()) -> NativeToolCaller:
    """Return the tools of an agent of a tenant with ceilings."""
    workspace = home / "workspace"
    private = PrivateFiles(home, workspace)
    sandbox = ShellSandbox.find(network=True, hidden=(str(home), str(workspace)), private=private)
    native = NativeTools(shell=ShellSettings(enclosing=sandbox), private=private)
    enclosure = Enclosure(tuple(map(str, (workspace / "ten_1", *roots))))
    options = EngineOptions(str(workspace / cwd), tuple(map(str, directories)), enclosure=enclosure)
    caller = NativeToolCaller(native, workspace / cwd)
    make_private(caller.workdir, other_user=True)
    return caller.with_tools(native.for_turn(options, "unrestricted"))


@proves("ceilings.sandbox")
async def test_a_tenant_with_ceilings_reaches_no_key_from_its_shell(
    fleet_home: Path, monkeypatch: pytest.MonkeyPatch, holder: int
) -> None:
    monkeypatch.setenv("NOVA_SECRETS__KEYS", "hush")
    caller = _enclosed(fleet_home)
    (caller.workdir / "link").symlink_to(fleet_home / "master_keys")
    reads = [
        f"cat {fleet_home}/master_keys",
        "cat link",
        "cat ../../../master_keys",
        "cat /proc/self/environ /proc/*/environ",
        f"cat /proc/{holder}/environ /proc/{os.getpid()}/environ",
        f"cat /proc/1/root{fleet_home}/master_keys",
        f"unshare -Urm sh -c 'umount -l {fleet_home}; cat {fleet_home}/master_keys'",
        "env",
        f"cat {fleet_home}/workspace/ten_2/clerk/note {fleet_home}/workspace/ten_1/builder/note",
        "for fd in /proc/self/fd/*; do cat $fd/../../../master_keys; done",
    ]
    if os.geteuid() == 0:
        reads.append("cat /etc/shadow; find / -xdev -user root -perm 600 -exec cat {} + 2>/dev/null | grep -a root:")
    for command in reads:
        shown = (await caller.outcome("Bash", command=f"({command}) 2>/dev/null </dev/null")).content[0]["text"]
        assert "hush" not in shown, command
        assert "note of ten_2" not in shown, command
        assert "root:" not in shown, command
    caller.native.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can become another user")
async def test_a_command_of_a_root_worker_is_another_user_and_shares_files_with_the_tools(fleet_home: Path) -> None:
    caller = _enclosed(fleet_home)
    assert await caller.call("Bash", command="id -u; pwd; echo mine > mine; ls -d $PWD") == "\n".join(
        (str(SANDBOX_UID), str(caller.workdir), str(caller.workdir))
    )
    assert await caller.call("Read", file_path="mine") == "mine\n"
    await caller.call("Write", file_path="deep/theirs", content="theirs\n")
    assert await caller.call("Bash", command="echo more >> deep/theirs; cat deep/theirs") == "theirs\nmore"
    caller.native.close()


async def test_an_enclosed_command_writes_where_the_agent_may_and_nowhere_else(
    fleet_home: Path, tmp_path: Path
) -> None:
    acme, other = tmp_path / "acme", tmp_path / "other"
    for path in (acme / "in", other):
        path.mkdir(parents=True)
        path.chmod(0o777)
    caller = _enclosed(fleet_home, acme / "in", roots=[acme])
    command = f"echo new > {acme}/in/new; echo new > {other}/new; echo new > {acme}/new"
    await caller.outcome("Bash", command=command)
    assert (acme / "in" / "new").read_text() == "new\n"
    assert not (other / "new").exists()
    assert not (acme / "new").exists()
    # Another agent of the tenant exchanges the directory for a link.
    (acme / "in").rename(acme / "was")
    (acme / "in").symlink_to(other)
    assert "outside" in await caller.failure("Bash", command="true")
    caller.native.close()


@proves("ceilings.sandbox")
async def test_without_a_sandbox_the_shell_of_a_tenant_with_ceilings_is_refused(tmp_path: Path) -> None:
    native = NativeTools(shell=ShellSettings(why_none="There is no bwrap on PATH."))
    options = EngineOptions(str(tmp_path), enclosure=Enclosure((str(tmp_path),)))
    caller = NativeToolCaller(native, tmp_path).with_tools(native.for_turn(options, "unrestricted"))
    assert "There is no bwrap on PATH." in await caller.failure("Bash", command="touch born")
    assert not (tmp_path / "born").exists()
    off = EngineOptions(str(tmp_path), enclosure=Enclosure((str(tmp_path),), sandbox=False))
    assert await caller.with_tools(native.for_turn(off, "unrestricted")).call("Bash", command="echo ran") == "ran"
    native.close()


@proves("ceilings.home")
async def test_the_operators_own_shell_sees_the_machine_without_the_fleets_files(
    fleet_home: Path, tmp_path: Path, holder: int
) -> None:
    private = PrivateFiles(fleet_home, fleet_home / "workspace")
    native = NativeTools(shell=ShellSettings(enclosing=ShellSandbox.find(network=True, private=private)))
    caller = NativeToolCaller(native, fleet_home / "workspace" / "ten_1" / "clerk")
    shown = await caller.call("Bash", command=f"cat note; echo x > new; echo y > {tmp_path}/new; ls -A {fleet_home}")
    assert shown == "note of ten_1/clerk\nworkspace"
    assert ((caller.workdir / "new").read_text(), (tmp_path / "new").read_text()) == ("x\n", "y\n")
    tried = [
        f"cat {fleet_home}/master_keys",
        f"umount -l {fleet_home}; cat {fleet_home}/master_keys",
        f"unshare -Urm umount -l {fleet_home}; cat {fleet_home}/master_keys",
        f"cat /proc/{os.getpid()}/root{fleet_home}/master_keys",
        f"cat /proc/{holder}/environ",
        "sh -c ': >> /proc/sys/kernel/core_pattern' && echo hush",
        "sh -c ': >> /sys/kernel/uevent_helper' && echo hush",
        f"nsenter -m -t {os.getpid()} cat {fleet_home}/master_keys",
    ]
    for command in tried:
        assert "hush" not in (await caller.outcome("Bash", command=command)).content[0]["text"], command
    native.close()


def test_a_program_that_starts_in_a_hidden_directory_starts_in_the_root(fleet_home: Path) -> None:
    private = PrivateFiles(fleet_home, fleet_home / "workspace")
    command = ShellSandbox.find(network=True, private=private).hide(["pwd"], str(fleet_home))
    assert subprocess.run(command, capture_output=True, check=False).stdout == b"/\n"
