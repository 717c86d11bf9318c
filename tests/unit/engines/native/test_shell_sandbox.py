"""Bash in a real sandbox of each kind: what a command can and cannot do, for any user of the worker."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import psutil
import pytest

from nova_workers.base.confined import PrivateFiles
from nova_workers.base.errors import ConfigurationError
from nova_workers.contracts.agents import Enclosure
from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.native import NativeTools, ShellSettings
from nova_workers.shell_sandbox import SANDBOX_UID, CommandBounds, SandboxKind, ShellSandbox, find_sandbox, make_private
from nova_workers.shell_sandbox.cgroups import CommandCgroups
from tests.requirements import proves
from tests.support.processes import hostile_command
from tests.support.processes.key_holder import key_holder
from tests.support.servers.model_server import model_server
from tests.support.waiting import pass_time, until
from tests.unit.engines.native.conftest import NativeToolCaller

_PYTHON = shutil.which("python3", path="/usr/bin:/bin")


@functools.cache
def _found(kind: SandboxKind) -> ShellSandbox | str:
    try:
        return find_sandbox(network=True, choice=kind)
    except ConfigurationError as error:
        return error.message


@pytest.fixture(params=get_args(SandboxKind))
def sandbox(request: pytest.FixtureRequest) -> ShellSandbox:
    """The sandbox of each kind that this machine can make."""
    found = _found(request.param)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the worker's user, with a secret."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret").write_text("hush\n")
    monkeypatch.setenv("HOME", str(home))
    return home


def _caller(sandbox: ShellSandbox, tmp_path: Path, *, network: bool = False) -> NativeToolCaller:
    work = tmp_path / "home" / "workspace" / "agent"
    work.mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "key").write_text("hush\n")
    sandbox = replace(sandbox, network=network, hidden=(str(tmp_path / "data"),))
    return NativeToolCaller(NativeTools(shell=ShellSettings(sandbox=sandbox, output_bytes=4_000)), work)


@pytest.fixture
def caller(sandbox: ShellSandbox, tmp_path: Path, home: Path) -> Iterator[NativeToolCaller]:
    """Native tools whose working directory lies in the worker's home, as `NOVA_HOME` has it."""
    assert home.is_dir()
    caller = _caller(sandbox, tmp_path)
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


async def test_the_workers_home_and_data_look_empty_or_are_closed(
    caller: NativeToolCaller, sandbox: ShellSandbox, home: Path, tmp_path: Path
) -> None:
    told = (await caller.outcome("Bash", command=f"ls -A {home} {tmp_path}/data")).content[0]["text"]
    if sandbox.kind == "landlock":
        assert told.count("Permission denied") == 2
    else:
        assert told == f"{tmp_path}/data:\n\n{home}:\nworkspace"
    expected = "Permission denied" if sandbox.kind == "landlock" else "No such file"
    for path in (home / "secret", tmp_path / "data" / "key"):
        assert expected in (await caller.outcome("Bash", command=f"cat {path}")).content[0]["text"]


@proves("engine.sandbox")
async def test_a_command_cannot_undo_its_confinement_even_as_root(
    caller: NativeToolCaller, home: Path, tmp_path: Path
) -> None:
    escapes = [
        f"umount {home}",
        f"umount -l {home}",
        "mount -o remount,rw,bind /",
        f"mount --bind / {caller.workdir}",
        f"unshare -Urm umount {home}",
        "unshare -Urm mount -o remount,rw,bind /",
        "chroot / true",
        "touch /etc/nova-escaped",
        "touch /usr/nova-escaped",
        f"touch {tmp_path}/nova-escaped && test -e {tmp_path}/nova-escaped && false",
        "sh -c ': >> /proc/sys/kernel/printk'",
        "sh -c ': >> /proc/sysrq-trigger'",
        f"mknod {caller.workdir}/disk b 8 0",
    ]
    tried = "\n".join(f"({escape}) && echo 'undone: {escape}'" for escape in escapes)
    told = (await caller.outcome("Bash", command=f"{tried}\nls {home}; cat {home}/secret")).content[0]["text"]
    assert "undone" not in [line.split(":")[0] for line in told.splitlines()]
    assert "hush" not in told
    assert not any("nova-escaped" in os.listdir(path) for path in ("/etc", "/usr", tmp_path))


async def test_a_command_has_no_capability_and_sees_no_process_but_its_own(
    caller: NativeToolCaller, sandbox: ShellSandbox
) -> None:
    if sandbox.kind == "landlock":
        shown = (await caller.outcome("Bash", command="ls /proc; cat /proc/self/status /proc/1/stat")).content[0][
            "text"
        ]
        assert shown.count("Permission denied") == 3
        return
    told = await caller.call("Bash", command="grep -h Cap /proc/self/status; ls -d /proc/[0-9]* | wc -l")
    *capabilities, processes = told.splitlines()
    assert {line.split()[1] for line in capabilities} == {"0" * 16}
    assert int(processes) < 10
    assert str(os.getpid()) not in await caller.call("Bash", command="ls /proc")


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.usefixtures("home")
async def test_the_network_is_available_only_if_configured(
    sandbox: ShellSandbox, tmp_path: Path, *, network: bool
) -> None:
    caller = _caller(sandbox, tmp_path, network=network)
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
    call = asyncio.create_task(caller.outcome("Bash", command=command, timeout_ms=60_000))
    await until((caller.workdir / "born").exists)
    if end == "timeout":
        await pass_time(61)
    if end == "cancel":
        call.cancel()
    await asyncio.wait((call,))
    await until(lambda: not _sleepers())


async def test_a_confined_command_does_not_see_the_workers_environment(
    caller: NativeToolCaller, monkeypatch: pytest.MonkeyPatch, holder: int
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "hush")
    assert "hush" not in await caller.call("Bash", command=f"env; cat /proc/*/environ /proc/{holder}/environ; true")


def test_a_user_whose_home_is_the_root_directory_has_a_sandbox(
    sandbox: ShellSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/")
    with replace(sandbox, network=False).wrap(["/bin/sh", "-c", "ls /usr/bin/env"], "/", ()) as line:
        done = subprocess.run(line.command, capture_output=True, check=False, pass_fds=line.descriptors)
    assert done.stdout == b"/usr/bin/env\n"


@pytest.fixture
def public() -> Iterator[Path]:
    """A package's folder that every user may read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        package = Path(folder) / "nova_workers"
        package.mkdir(mode=0o755)
        yield package


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="Only root can switch the user")
def test_a_worker_that_is_not_root_confines_likewise(sandbox: ShellSandbox, public: Path) -> None:
    if _PYTHON is None:
        pytest.skip("Needs a Python that other users may run")
    _, *options, folder = sandbox.launcher
    # The folder of the tests may be one that only root enters.
    (public / "base").mkdir(mode=0o755)
    for copied in ("__init__.py", "base/__init__.py", "base/child_supervisor.py", "sandbox_launcher"):
        subprocess.run(["cp", "-r", f"{folder}/nova_workers/{copied}", public / copied], check=True)
    launcher = (_PYTHON, *options, str(public.parent))
    program = sandbox.program if sandbox.kind == "bubblewrap" else launcher
    sandbox = replace(sandbox, program=program, launcher=launcher)
    script = "id -u; umount /tmp; touch /etc/x; unshare -Urm umount /tmp"
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    with replace(sandbox, network=False).wrap(["/bin/sh", "-c", script], "/", ()) as line:
        done = subprocess.run(
            [*become, *line.command],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            pass_fds=line.descriptors,
        )
    assert done.stdout == "65534\n", done.stderr
    assert done.returncode != 0


async def test_names_are_resolved_if_resolv_conf_is_a_link_into_a_hidden_folder(
    sandbox: ShellSandbox, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "resolv").write_text("nameserver 127.0.0.53\n")
    (tmp_path / "resolv.conf").symlink_to(home / "resolv")
    monkeypatch.setattr("nova_workers.shell_sandbox.sandbox._NAME_SERVERS", str(tmp_path / "resolv.conf"))
    caller = _caller(sandbox, tmp_path, network=True)
    assert await caller.call("Bash", command=f"cat {home}/resolv") == "nameserver 127.0.0.53"
    caller.native.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder outside of what is hidden anyway, which any user may pass."""
    folder = Path(tempfile.mkdtemp(prefix="nova-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def fleet_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A NOVA_HOME with master keys, and with the directories of two tenants."""
    monkeypatch.setenv("HOME", "/")
    home = folder / "nova"
    for name in ("ten_1/clerk", "ten_1/builder", "ten_2/clerk"):
        (home / "workspace" / name).mkdir(parents=True)
        (home / "workspace" / name / "note").write_text(f"note of {name}\n")
    (home / "master_keys").write_text("hush\n")
    return home


@pytest.fixture
async def holder() -> AsyncIterator[int]:
    """A process of the worker's user with a secret in its environment, as the worker has."""
    async with key_holder() as pid:
        yield pid


def _enclosed(
    sandbox: ShellSandbox, home: Path, *directories: Path, cwd: str = "ten_1/clerk", roots: Sequence[Path] = ()
) -> NativeToolCaller:
    """Return the tools of an agent of a tenant with ceilings."""
    workspace = home / "workspace"
    private = PrivateFiles(home, workspace)
    sandbox = replace(sandbox, hidden=(str(home), str(workspace)), private=private)
    native = NativeTools(shell=ShellSettings(enclosing=sandbox), private=private)
    enclosure = Enclosure(tuple(map(str, (workspace / "ten_1", *roots))))
    options = EngineOptions(str(workspace / cwd), tuple(map(str, directories)), enclosure=enclosure)
    caller = NativeToolCaller(native, workspace / cwd)
    make_private(caller.workdir, other_user=True)
    # As the worker makes it.
    caller.workdir.chmod(0o700)
    return caller.with_tools(native.for_turn(options, "unrestricted"))


@proves("ceilings.sandbox")
async def test_a_tenant_with_ceilings_reaches_no_key_from_its_shell(
    sandbox: ShellSandbox, fleet_home: Path, monkeypatch: pytest.MonkeyPatch, holder: int
) -> None:
    monkeypatch.setenv("NOVA_SECRETS__KEYS", "hush")
    caller = _enclosed(sandbox, fleet_home)
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
        (fleet_home.parent / "of-root").write_text("root:hush\n")
        (fleet_home.parent / "of-root").chmod(0o600)
        reads.append(f"cat /etc/shadow {fleet_home.parent}/of-root")
    tried = "\n".join(f"({command}) 2>/dev/null </dev/null" for command in reads)
    shown = await caller.call("Bash", command=f"{tried}\necho tried all")
    assert shown.endswith("tried all")
    assert not [text for text in ("hush", "note of ten_2", "root:") if text in shown], shown
    caller.native.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can become another user")
async def test_a_command_of_a_root_worker_is_another_user_and_shares_files_with_the_tools(
    sandbox: ShellSandbox, fleet_home: Path
) -> None:
    caller = _enclosed(sandbox, fleet_home)
    assert await caller.call("Bash", command="id -u; pwd; echo mine > mine; ls -d $PWD") == "\n".join(
        (str(SANDBOX_UID), str(caller.workdir), str(caller.workdir))
    )
    assert await caller.call("Read", file_path="mine") == "mine\n"
    await caller.call("Write", file_path="deep/theirs", content="theirs\n")
    assert await caller.call("Bash", command="echo more >> deep/theirs; cat deep/theirs") == "theirs\nmore"
    caller.native.close()


async def test_an_enclosed_command_writes_where_the_agent_may_and_nowhere_else(
    sandbox: ShellSandbox, fleet_home: Path, folder: Path
) -> None:
    acme, other = folder / "acme", folder / "other"
    for path in (acme / "in", other):
        path.mkdir(parents=True)
        path.chmod(0o777)
    caller = _enclosed(sandbox, fleet_home, acme / "in", roots=[acme])
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


@proves("engine.sandbox")
@pytest.mark.skipif(_PYTHON is None, reason="Needs a Python of the system")
async def test_a_command_reaches_no_process_and_no_socket_of_the_workers_user(
    sandbox: ShellSandbox, tmp_path: Path, home: Path, holder: int
) -> None:
    """The command has the user of the worker here, so that nothing but the sandbox refuses."""
    caller = _caller(sandbox, tmp_path, network=True)
    shutil.copy(hostile_command.__file__, caller.workdir / "hostile.py")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as abstract:
        path = str(home / "server")
        for one, name in ((server, path), (abstract, f"\0{path}")):
            one.bind(name)
            one.listen()
        told = await caller.call("Bash", command=f"{_PYTHON} hostile.py {holder} {path}")
    caller.native.close()
    succeeded = {name for name, error in json.loads(told).items() if error is None}
    assert succeeded == set()
    assert psutil.pid_exists(holder)


@proves("sandbox.bounds")
async def test_a_command_is_bounded_in_what_it_uses_up(sandbox: ShellSandbox, fleet_home: Path) -> None:
    bounds = CommandBounds(memory_bytes=48 << 20, open_files=64, file_bytes=2 << 20, tmpfs_bytes=1 << 20)
    caller = _enclosed(replace(sandbox, bounds=bounds), fleet_home)
    tries = {
        "memory": "x=$(head -c 64000000 /dev/zero | tr '\\0' x); [ ${#x} = 64000000 ]",
        "file": "head -c 3000000 /dev/zero > long",
        "files": 'for fd in {11..80}; do eval "exec $fd< /dev/null" || exit 1; done',
        "limits": "ulimit -d unlimited || ulimit -f unlimited || ulimit -n 4096 || ulimit -c unlimited",
    }
    if sandbox.kind != "landlock":
        tries |= {
            "tmp": "head -c 1500000 /dev/zero > /tmp/x",
            "shm": "head -c 1500000 /dev/zero > /dev/shm/x",
            "dev": "echo > /dev/x",
            "order": "[ $(< /proc/self/oom_score_adj) != 1000 ]",
        }
    line = "; ".join(f"({command}) && echo undone {name}" for name, command in tries.items())
    assert await caller.call("Bash", command=f"exec 2> /dev/null; {line}; echo tried all") == "tried all"
    assert (caller.workdir / "long").stat().st_size == 2 << 20
    caller.native.close()


@proves("sandbox.bounds")
async def test_a_command_is_in_a_cgroup_of_its_own_where_there_can_be_one(
    sandbox: ShellSandbox, fleet_home: Path, tmp_path: Path
) -> None:
    """The files are a stand-in: a kernel whose controllers belong to cgroups of version 1 has none to give."""
    parent = tmp_path / "delegated"
    parent.mkdir()
    (parent / "cgroup.controllers").write_text("cpu memory pids\n")
    (parent / "cgroup.subtree_control").write_text("memory pids\n")
    cgroups = CommandCgroups.find(parent, CommandBounds(memory_bytes=1_000_000, processes=20))
    made: list[dict[str, str]] = []

    class Watched(CommandCgroups):
        def remove(self, path: Path) -> None:
            made.append({file.name: file.read_text() for file in path.iterdir()})
            shutil.rmtree(path)

    cgroups.__class__ = Watched
    caller = _enclosed(replace(sandbox, cgroups=cgroups), fleet_home)
    assert await caller.call("Bash", command="echo ran") == "ran"
    assert made == [{"memory.max": "1000000", "memory.oom.group": "1", "pids.max": "20", "cgroup.procs": "0"}]
    caller.native.close()
    (parent / "cgroup.controllers").write_text("hugetlb\n")
    with pytest.raises(ConfigurationError, match="cgroup v2 with memory and pids"):
        CommandCgroups.find(parent, CommandBounds())


@proves("ceilings.sandbox")
async def test_a_command_changes_nothing_of_another_tenant_that_its_user_owns(
    sandbox: ShellSandbox, fleet_home: Path
) -> None:
    caller = _enclosed(sandbox, fleet_home)
    other = fleet_home / "workspace" / "ten_2" / "clerk"
    for path in (other, other / "note"):
        os.chmod(path, 0o700)
        if os.geteuid() == 0:
            os.chown(path, SANDBOX_UID, SANDBOX_UID)
    before = os.stat(other / "note")
    tries = [
        *(f"{verb} {other}/note" for verb in ("cat", "chmod 777", "touch -d 2001-01-01", "truncate -s 0", "rm -f")),
        *(f"setfattr -n user.x -v y {other}/note", f"mv {other}/note .", f"ln {other}/note here", f"mkdir {other}/x"),
        f"ls {other}",
    ]
    told = (await caller.outcome("Bash", command="; ".join(tries))).content[0]["text"]
    after = os.stat(other / "note")
    assert (after.st_mode, after.st_mtime, after.st_size, after.st_nlink) == (
        before.st_mode,
        before.st_mtime,
        before.st_size,
        1,
    )
    assert os.listdir(other) == ["note"]
    assert "note of ten_2" not in told
    caller.native.close()


@proves("ceilings.sandbox")
async def test_a_command_has_no_descriptor_but_its_own(sandbox: ShellSandbox, fleet_home: Path) -> None:
    """Through one of a directory, or of the filter, it could reach what is around it."""
    caller = _enclosed(sandbox, fleet_home)
    # The shell itself keeps 10 while it redirects.
    command = "for fd in {3..9} {11..99}; do : 2>/dev/null <&$fd && echo open $fd; done; echo looked"
    assert await caller.call("Bash", command=f"exec 2>/dev/null; {command}") == "looked"
    caller.native.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can become another user")
async def test_a_directory_that_the_other_user_cannot_reach_is_named(
    sandbox: ShellSandbox, fleet_home: Path, folder: Path
) -> None:
    caller = _enclosed(sandbox, fleet_home)
    os.chmod(folder, 0o700)
    outcome = await caller.outcome("Bash", command="echo ran")
    if sandbox.kind == "landlock":
        assert f"cannot reach '{caller.workdir}': let others pass" in outcome.content[0]["text"]
    else:
        assert outcome.content[0]["text"] == "ran"
    caller.native.close()


@proves("ceilings.sandbox")
async def test_a_command_does_not_become_root_again(sandbox: ShellSandbox, fleet_home: Path) -> None:
    caller = _enclosed(sandbox, fleet_home)
    tries = ("setpriv --reuid 0 id -u", "sudo -n id -u", "unshare -r id -u", "chroot / id -u")
    told = (await caller.outcome("Bash", command="; ".join(f"{one} </dev/null" for one in tries))).content[0]["text"]
    assert "0" not in told.splitlines()
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
async def test_the_operators_own_shell_reads_no_other_process_where_there_is_no_home_to_hide(
    sandbox: ShellSandbox, folder: Path, holder: int
) -> None:
    """As in a container, whose keys are in the environment of its worker."""
    private = PrivateFiles(folder / "nova", folder / "nova" / "workspace")
    native = NativeTools(shell=ShellSettings(enclosing=replace(sandbox, private=private)))
    caller = NativeToolCaller(native, folder)
    closed = " ".join(f"/proc/{holder}/{name}" for name in ("environ", "maps", "mem", "root/etc/passwd"))
    shown = await caller.outcome("Bash", command=f"cat {closed}; cat /proc/{holder}/comm; echo x > new; cat new")
    told = shown.content[0]["text"]
    assert told.count("Permission denied") == 4, told
    assert told.endswith("sleep\nx"), "it is visible, and the command works"
    assert "hush" not in told
    native.close()


@proves("ceilings.home")
async def test_the_operators_own_shell_sees_the_machine_without_the_fleets_files(
    sandbox: ShellSandbox, fleet_home: Path, tmp_path: Path, holder: int
) -> None:
    if sandbox.kind == "landlock":
        pytest.skip("Without namespaces NOVA_HOME is not hidden from the operator's own commands")
    private = PrivateFiles(fleet_home, fleet_home / "workspace")
    native = NativeTools(shell=ShellSettings(enclosing=replace(sandbox, private=private)))
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
    assert "hush" not in (await caller.outcome("Bash", command="\n".join(tried))).content[0]["text"]
    native.close()


def test_a_program_that_starts_in_a_hidden_directory_starts_in_the_root(
    sandbox: ShellSandbox, fleet_home: Path
) -> None:
    if sandbox.kind == "landlock":
        pytest.skip("Without namespaces no directory is hidden")
    private = PrivateFiles(fleet_home, fleet_home / "workspace")
    command = replace(sandbox, private=private).hide(["pwd"], str(fleet_home))
    assert subprocess.run(command, capture_output=True, check=False).stdout == b"/\n"


@pytest.mark.parametrize("enclosed", [False, True])
async def test_a_command_of_an_agent_with_a_directory_of_its_own_writes_there_alone(
    sandbox: ShellSandbox, fleet_home: Path, enclosed: bool
) -> None:
    workspace = fleet_home / "workspace"
    clerk = workspace / "ten_1" / "clerk"
    sandbox = replace(sandbox, hidden=(str(fleet_home), str(workspace)), private=PrivateFiles(fleet_home, workspace))
    native = NativeTools(shell=ShellSettings(enclosing=sandbox))
    # As a worker makes them: the other user's alone.
    clerk.chmod(0o700)
    for directory in (clerk, clerk / "part", clerk / "other"):
        make_private(directory, other_user=enclosed)
    (clerk / "other" / "note").write_text("of other\n")
    (clerk / "out").symlink_to(fleet_home)
    enclosure = Enclosure((str(workspace / "ten_1"),)) if enclosed else None

    def caller(cwd: Path) -> NativeToolCaller:
        options = EngineOptions(str(cwd), readable=(str(clerk),), enclosure=enclosure)
        return NativeToolCaller(native, cwd).with_tools(native.for_turn(options, "unrestricted"))

    part = caller(clerk / "part")
    shown = await part.call(
        "Bash",
        command="pwd; echo mine > mine; cat ../other/note; for to in ../new ../other/note ../other/new; do "
        f"(echo x > $to) 2>/dev/null && echo wrote $to; done; cat {fleet_home}/master_keys 2>/dev/null; true",
    )
    assert shown.splitlines() == [str(clerk / "part"), "of other"]
    assert (clerk / "part" / "mine").read_text() == "mine\n"
    assert "outside" in await caller(clerk / "out").failure("Bash", command="cat master_keys")
    without = NativeTools(shell=ShellSettings(why_none="There is none here."))
    options = EngineOptions(str(clerk / "part"), readable=(str(clerk),), enclosure=enclosure)
    refused = NativeToolCaller(without, clerk).with_tools(without.for_turn(options, "unrestricted"))
    assert "run in the sandbox, and this worker has none. There is none here." in await refused.failure(
        "Bash", command="true"
    )
    native.close()
    without.close()
