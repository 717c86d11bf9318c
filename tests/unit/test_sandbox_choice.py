"""Which sandbox a worker takes at its start, and what its log says about it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from nova_workers.base.config import Settings
from nova_workers.base.config.sections import ToolSettings
from nova_workers.base.confined import PrivateFiles
from nova_workers.base.errors import ConfigurationError
from nova_workers.bootstrap.shell.commands import find_shell
from nova_workers.cli.operations.sandbox_checks import check_sandbox_here
from nova_workers.shell_sandbox import SANDBOX_UID, CommandBounds, SandboxChoice, find_sandbox, trial
from nova_workers.shell_sandbox.cgroups import CommandCgroups
from tests.requirements import proves

_OPEN = """#!/bin/sh
[ "$1" = --in-front ] && while [ "$1" != -- ]; do shift; done && shift
while [ "$1" != -- ]; do [ "$1" = --chdir ] && cd "$2"; shift; done
shift
exec "$@"
"""

_KILLED = """
import os, signal, sys
from pathlib import Path
from nova_workers.base.confined import PrivateFiles
from nova_workers.shell_sandbox import find_sandbox, trial

def killed(_, stage):
    print(stage.target.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

trial._probe = killed
home = Path(sys.argv[1])
find_sandbox(network=True, private=PrivateFiles(home, home / "workspace"), choice="landlock")
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A NOVA_HOME that any user may pass, as one of a machine's is."""
    folder = Path(tempfile.mkdtemp(prefix="nova-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def no_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which nothing can make a sandbox."""
    for name in ("bwrap", "setpriv", "python"):
        _program(tmp_path / name, "#!/bin/sh\necho 'not here' >&2\nexit 1\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _settings(home: Path, choice: SandboxChoice = "auto", *, every_tenant: bool = False) -> Settings:
    return Settings(home=home, tools=ToolSettings(sandbox=choice, shell_sandbox=every_tenant))


@proves("ceilings.sandbox", "sandbox.tried")
async def test_a_worker_tries_its_sandbox_and_says_what_a_command_reached(home: Path) -> None:
    try:
        with capture_logs() as logs:
            shell = find_shell(_settings(home, every_tenant=True))
    except ConfigurationError as error:
        pytest.skip(error.message)
    assert shell.enclosing is not None
    assert shell.sandbox is not None
    report = shell.enclosing.trial
    assert report is not None
    assert report.reached == []
    assert report.user == (SANDBOX_UID if os.geteuid() == 0 else os.geteuid())
    assert [(line["event"], line["kind"]) for line in logs] == [("sandbox.found", shell.enclosing.kind)]
    assert find_shell(_settings(home)).sandbox is None
    assert os.listdir(home) == [], "nothing of a trial is left"
    (here,) = await check_sandbox_here(_settings(home))
    assert (here.state, "reached nothing of others" in here.detail) == ("ok", True)


@proves("sandbox.tried")
def test_a_killed_trial_leaves_no_process_and_a_later_one_removes_its_files(home: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(home)], check=False, stdout=subprocess.PIPE)
    assert killed.returncode == -signal.SIGKILL
    left = [*home.glob(".sandbox-trial-*"), *(home / "workspace").glob(".sandbox-trial-*")]
    assert len(left) == 2
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(killed.stdout)).wait(10)
    with capture_logs():
        find_shell(_settings(home))
    assert all(path.exists() for path in left), "another trial may be under way"
    for path in left:
        os.utime(path, (0, 0))
    with capture_logs():
        find_shell(_settings(home))
    assert not any(path.exists() for path in left)


@proves("sandbox.tried")
def test_a_program_that_confines_nothing_is_no_sandbox(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _program(tmp_path / "bwrap", _OPEN)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ConfigurationError) as caught:
        find_shell(_settings(home, "bubblewrap", every_tenant=True))
    # Processes and the network are not among them: what stands in front of bubblewrap holds these.
    reached = "files of another tenant", "files of NOVA_HOME", "for writing"
    assert [words for words in reached if words not in caught.value.message] == []
    assert os.listdir(home) == []


@proves("ceilings.sandbox")
@pytest.mark.usefixtures("no_sandbox")
@pytest.mark.parametrize(("choice", "kinds"), [("auto", 3), ("landlock", 1)])
def test_a_worker_without_a_sandbox_says_why_and_refuses_to_start_where_all_commands_need_one(
    home: Path, choice: SandboxChoice, kinds: int
) -> None:
    with capture_logs() as logs:
        shell = find_shell(_settings(home, choice))
    assert shell.enclosing is None
    assert shell.why_none.count("not here") == kinds
    assert [(line["event"], line["log_level"]) for line in logs] == [("sandbox.none", "warning")]
    with pytest.raises(ConfigurationError, match="NOVA_TOOLS__SHELL_SANDBOX is on"):
        find_shell(_settings(home, choice, every_tenant=True))


@proves("sandbox.bounds")
def test_a_cgroup_that_cannot_bound_commands_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu pids\n")
    with pytest.raises(ConfigurationError, match=r"NOVA_TOOLS__COMMAND_CGROUP is .*: cgroup v2 with memory"):
        find_sandbox(network=True, cgroup=tmp_path)
    with pytest.raises(ConfigurationError, match=r"no-such.*No such file"):
        find_sandbox(network=True, cgroup=tmp_path / "no-such")


@proves("sandbox.bounds")
def test_a_cgroup_that_takes_no_bound_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cgroup.controllers", "cgroup.subtree_control"):
        (tmp_path / name).write_text("memory pids\n")
    cgroups = CommandCgroups.find(tmp_path, CommandBounds())

    def refuse(*_: object, **__: object) -> int:
        raise OSError("no such bound")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(OSError, match="no such bound"):
        cgroups.make()
    assert list(tmp_path.glob("nova-command-*")) == []


@proves("sandbox.tried")
async def test_a_sandbox_that_cannot_be_tried_is_none_and_no_crash(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nova_workers.shell_sandbox.trial.make_private", full)
    with capture_logs():
        shell = find_shell(_settings(home))
    assert shell.enclosing is None
    assert shell.why_none.count("it cannot be tried: [Errno 28] No space left on device") >= 1
    assert os.listdir(home) == []
    (here,) = await check_sandbox_here(_settings(home))
    assert here.state == "warn"


@proves("sandbox.tried")
async def test_a_sandbox_is_tried_where_the_system_is_read_only(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the containers of compose and Kubernetes are: there even the removal of what is not there fails."""
    if find_shell(_settings(home)).enclosing is None:
        pytest.skip("nothing can make a sandbox here")
    unlink = os.unlink

    def unlink_what_is_there(path: Path | str, **given: Any) -> None:
        if not os.path.lexists(path):
            raise OSError(errno.EROFS, "Read-only file system")
        unlink(path, **given)

    monkeypatch.setattr(os, "unlink", unlink_what_is_there)
    assert find_shell(_settings(home)).enclosing is not None


@proves("sandbox.tried")
@pytest.mark.parametrize(("cut", "usable"), [("kill -9 $$", False), ("break", True)])
def test_what_a_trial_did_not_try_is_not_taken_as_unreached(
    home: Path, monkeypatch: pytest.MonkeyPatch, cut: str, *, usable: bool
) -> None:
    """A command that ends early tells nothing; without a Python inside, abstract sockets are not tried."""
    probe = trial._PROBE  # pyright: ignore[reportPrivateUsage] - what the command does
    monkeypatch.setattr(trial, "_PROBE", probe.replace('  "$python" -I', f'{cut}; "$python" -I'))
    try:
        found = find_sandbox(network=True, private=PrivateFiles(home, home / "workspace"))
    except ConfigurationError:
        assert not usable
        return
    assert usable
    assert found.trial is not None
    assert [words for words in found.trial.missing if "abstract sockets" in words] != []


@proves("ceilings.sandbox")
@pytest.mark.usefixtures("no_sandbox")
def test_the_features_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nova_workers.shell_sandbox.features.landlock_version", lambda: 4)
    monkeypatch.setattr("nova_workers.shell_sandbox.features.call_filter", lambda: None)
    with pytest.raises(ConfigurationError) as caught:
        find_sandbox(network=True)
    for words in ("Landlock 6 (Linux 6.12", "this kernel has Landlock 4", "seccomp"):
        assert words in caught.value.message
