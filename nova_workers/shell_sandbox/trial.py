"""Tries the sandbox where it runs: what a real command reaches, as the user that tenants' commands have.

The command runs as a tenant's does: in a fresh directory that only its user may enter, below the folder of agents'
directories, and for a tenant with ceilings. Around it is what it must not reach, owned by its own user wherever that is
possible, so that nothing but the sandbox stands between. A trial removes what earlier ones left that were killed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from nova_workers.base.confined import PrivateFiles
from nova_workers.base.errors import ConfigurationError
from nova_workers.contracts.agents import Egress, Enclosure
from nova_workers.contracts.http.fleet import SandboxTrial
from nova_workers.shell_sandbox.owners import SANDBOX_UID, make_private
from nova_workers.shell_sandbox.programs import WHY_NOT
from nova_workers.shell_sandbox.sandbox import Enclosed, ShellSandbox

_TRIAL_S = 20.0
_LEFT_AFTER_S = 600.0
"""No trial lasts as long: what is older was left by one that was killed. Others, of other workers, may be under way."""
_PREFIX = ".sandbox-trial-"
_WORKS = "works"
_SHELL = ("/bin/bash", "--noprofile", "--norc", "-c")
_TOKEN = "NOVA_SANDBOX_TRIAL"  # noqa: S105 - a name
_PROBE = r"""
: > mine && [[ -e mine ]] && wrote=1
echo "user $EUID"
echo "limits $(ulimit -d) $(ulimit -u) $(ulimit -n) $(ulimit -f) $(< /proc/self/oom_score_adj)"
reached() { (eval "${2}") > /dev/null 2>&1 < /dev/null && echo "reached ${1}"; }
reached other-file "read -r x < $OTHER/note"
reached fleet-file "read -r x < $FLEET_FILE"
reached environment "IFS= read -r -d '' x < /proc/$TARGET/environ; [[ \$x == *$TOKEN* ]]"
: <> /dev/tcp/127.0.0.1/3128 && echo proxied
reached network ": <> /dev/tcp/127.0.0.1/$PORT"
for python in "$PYTHON" /usr/bin/python3 /usr/local/bin/python3; do
  "$python" -I -S -c "$CONNECT" "$NAME" 2> /dev/null && break
done
for path in $WRITES; do (: > "$path") 2> /dev/null; done
kill -9 "$TARGET" 2> /dev/null
# Last: of a command that ended early, nothing is known.
[[ $wrote ]] && echo works
"""
_CONNECT = r"""
import _socket, sys
try:
    _socket.socket(_socket.AF_UNIX).connect(chr(0) + sys.argv[1])
except OSError:
    print("tried")
else:
    print("reached abstract-socket")
"""
_NOT_TRIED = "a Python that commands can run, by which the trial reaches for abstract sockets"
_LIMITS = (("memory_bytes", 1024), ("processes", 1), ("open_files", 1), ("file_bytes", 1024))
"""The limits in the order in which the probe reports them, with their units."""
_WORDS = {
    "other-file": "files of another tenant",
    "fleet-file": "files of NOVA_HOME",
    "environment": "the environment of other processes",
    "network": "the network of the machine",
    "abstract-socket": "abstract sockets of other processes",
    "written": "files outside of its directories, for writing",
    "killed": "signals to other processes",
}


@dataclass(frozen=True, slots=True)
class _Stage:
    """What stands around the command.

    Attributes:
        own: The command's directory.
        environment: Where the probe finds the rest.
        writes: Files that it tries to make.
        target: A process outside, of the command's user.
    """

    own: Path
    environment: dict[str, str]
    writes: tuple[Path, ...]
    target: subprocess.Popen[bytes]


def try_out(sandbox: ShellSandbox, missing: Sequence[str], *, every_tenant: bool = False) -> SandboxTrial:
    """Run commands in the sandbox, and return what they reached. Blocks for some 100 ms.

    Raises:
        ConfigurationError: A command does not run, or reaches what it must not.
    """
    try:
        with _stage(sandbox) as stage:
            proxied, report = _probe(sandbox, stage)
            reached = {words[1] for words in report if words[:1] == ["reached"]}
            if any(path.exists() for path in stage.writes):
                reached.add("written")
            with suppress(subprocess.TimeoutExpired):
                # A signal that was sent arrives within moments.
                stage.target.wait(0.02)
                reached.add("killed")
    except OSError as error:
        # Such as a full disk, or a NOVA_HOME that this user may not write.
        raise _unusable(sandbox, f"it cannot be tried: {error}") from error
    if reached:
        shown = ", ".join(_WORDS[name] for name in sorted(reached))
        raise _unusable(sandbox, f"a command reaches {shown}")
    if every_tenant:
        _run(sandbox, lambda: sandbox.wrap([*_SHELL, f"echo {_WORKS}"], "/", ()), {})
    _run(sandbox, lambda: _hidden(sandbox), {})
    facts = {words[0]: words[1:] for words in report if words}
    untried = () if "tried" in facts else (_NOT_TRIED,)
    return SandboxTrial(
        user=int(facts["user"][0]),
        landlock=sandbox.landlock,
        limits=_limits(sandbox, facts["limits"]),
        cgroup=sandbox.cgroups is not None,
        egress=["none", "proxy", "all"] if proxied else ["none", "all"],
        missing=[*missing, *untried],
    )


def _probe(sandbox: ShellSandbox, stage: _Stage) -> tuple[bool, list[list[str]]]:
    """Return whether the command reached a proxy's port, and what it said. Raises ConfigurationError."""
    with suppress(ConfigurationError):
        if sandbox.kind != "landlock":
            report = _run(sandbox, lambda: _enclosed(replace(sandbox, gate=_Gate()), stage, "proxy"), stage.environment)
            if ["proxied"] in report:
                return True, report
    return False, _run(sandbox, lambda: _enclosed(sandbox, stage, "none"), stage.environment)


class _Gate:
    """Keeps the socket that listens in the sandbox open, where the kernel accepts connections. It answers none."""

    refusals = ()

    def __init__(self) -> None:
        self._channel: socket.socket | None = None

    def open(self, channel: socket.socket) -> _Gate:
        self._channel = channel
        return self

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()


def _limits(sandbox: ShellSandbox, report: list[str]) -> dict[str, int]:
    """Return the limits that the command had, of what it said. Raises ConfigurationError if one is missing."""
    if "unlimited" in report[: len(_LIMITS)]:
        raise _unusable(sandbox, "a command has no limit of memory, processes, open files or the length of a file")
    limits = {name: int(value) * unit for (name, unit), value in zip(_LIMITS, report, strict=False)}
    # Where the command may not read it, it is what the launcher wrote all the same.
    return limits | ({"oom_score_adj": int(report[-1])} if len(report) > len(_LIMITS) else {})


@contextmanager
def _stage(sandbox: ShellSandbox) -> Generator[_Stage]:
    private = sandbox.private
    name = f"{_PREFIX}{secrets.token_hex(6)}"
    _sweep(Path(tempfile.gettempdir()), *((private.home, private.workspace) if private is not None else ()))
    with ExitStack() as stack:
        folder = _folder(private, name, stack)
        own, other = folder / "own" / "agent", folder / "other" / "agent"
        for path in (own, other):
            make_private(path, other_user=True)
        note = other / "note"
        note.write_text("of another tenant\n")
        fleet_file = folder / "fleet"
        if private is not None and private.home.is_dir():
            fleet_file = private.home / name
            stack.callback(fleet_file.unlink, missing_ok=True)
        fleet_file.write_text("of the fleet\n")
        for path in (note, fleet_file):
            if os.geteuid() == 0:
                os.chown(path, SANDBOX_UID, SANDBOX_UID)
        target = stack.enter_context(_target())
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0{name}")
        abstract.listen()
        writes = (other / "new", Path("/usr") / name, Path("/var/tmp") / name)  # noqa: S108 - it must not be written
        environment = {
            "PATH": os.defpath,
            "OTHER": str(other),
            "FLEET_FILE": str(fleet_file),
            "TARGET": str(target.pid),
            "TOKEN": _TOKEN,
            "PORT": str(listener.getsockname()[1]),
            "NAME": name,
            "CONNECT": _CONNECT,
            "PYTHON": os.path.realpath(sys.executable),
            "WRITES": " ".join(map(str, writes)),
        }
        try:
            yield _Stage(own, environment, writes, target)
        finally:
            for path in writes[1:]:
                # On a file system that is read-only, the removal of what is not there is an error too.
                if path.exists():
                    path.unlink(missing_ok=True)


def _folder(private: PrivateFiles | None, name: str, stack: ExitStack) -> Path:
    """Make the trial's folder among those of the tenants, or where these cannot be, among temporary files."""
    if private is not None and (private.home.is_dir() or private.workspace.is_dir()):
        folder = private.workspace / name
        if not private.workspace.exists():
            stack.callback(_remove_empty, private.workspace)
        with suppress(OSError):
            folder.mkdir(mode=0o711, parents=True)
            folder.chmod(0o711)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=name, ignore_cleanup_errors=True)))
    folder.chmod(0o711)
    return folder


def _sweep(*folders: Path) -> None:
    """Remove what trials left in these folders that were killed."""
    before_s = time.time() - _LEFT_AFTER_S
    for folder in folders:
        with suppress(OSError):
            for left in folder.glob(f"{_PREFIX}*"):
                _remove_old(left, before_s)


def _remove_old(left: Path, before_s: float) -> None:
    # Another trial, or another user, may have it.
    with suppress(OSError):
        if left.lstat().st_mtime > before_s:
            return
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink()


def _remove_empty(folder: Path) -> None:
    """Remove a folder that only the trial needed: where it is, agents have files."""
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def _target() -> Generator[subprocess.Popen[bytes]]:
    """Yield a process of the user of the commands, which ends with this one."""
    user = SANDBOX_UID if os.geteuid() == 0 else None
    process = subprocess.Popen(
        # It reads to the end of its input, which comes when the other end of the pipe is closed, by a crash too.
        ["cat"],  # noqa: S607 - of the system
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={_TOKEN: _TOKEN, "PATH": os.defpath},
        user=user,
        group=user,
        extra_groups=None if user is None else (),
        cwd="/",
    )
    try:
        yield process
    finally:
        process.kill()
        # Its input too.
        process.communicate()


@contextmanager
def _enclosed(sandbox: ShellSandbox, stage: _Stage, egress: Egress) -> Generator[Enclosed]:
    own = str(stage.own)
    with sandbox.enclosed(
        [*_SHELL, _PROBE],
        Enclosure((str(stage.own.parent),)),
        cwd=own,
        writable=(own,),
        egress=egress,
    ) as line:
        yield line


@contextmanager
def _hidden(sandbox: ShellSandbox) -> Generator[Enclosed]:
    yield Enclosed(sandbox.hide([*_SHELL, f"echo {_WORKS}"], "/"), ())


def _run(
    sandbox: ShellSandbox, confined: Callable[[], AbstractContextManager[Enclosed]], environment: dict[str, str]
) -> list[list[str]]:
    """Return the words of each line that a command prints."""
    try:
        with confined() as line:
            trial = subprocess.run(  # noqa: S603 - the operator's own program, without a shell
                line.command,
                capture_output=True,
                timeout=_TRIAL_S,
                check=False,
                pass_fds=line.descriptors,
                env=environment or None,
                cwd="/",
            )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise _unusable(sandbox, str(error)) from error
    report = [line.split() for line in trial.stdout.decode(errors="replace").splitlines()]
    if [_WORKS] not in report:
        complaint = trial.stderr.decode(errors="replace").strip() or f"exit code {trial.returncode}"
        raise _unusable(sandbox, complaint)
    return report


def _unusable(sandbox: ShellSandbox, complaint: str) -> ConfigurationError:
    return ConfigurationError(WHY_NOT[sandbox.kind].format(program=sandbox.program[0], complaint=complaint))
