"""Cgroups of commands: bounds on the memory and the number of all processes of a command together (cgroup v2).

A cgroup can be made below one that is the worker's to divide: the directory that the operator names, the worker's own
cgroup where systemd delegated it (``Delegate=yes``) or where it is the whole of a container, and that of the machine if
the worker is root in it. The kernel allows no processes beside cgroups with controllers, so those of the fleet itself
move into one of their own.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nova_workers.base.errors import ConfigurationError
from nova_workers.shell_sandbox.bounds import CommandBounds

_FLEET, _COMMANDS, _COMMAND = "nova-fleet", "nova-commands", "nova-command-"
_NEEDED = ("memory", "pids")
_STALE_S = 60.0
_TRIES = 5
"""While processes of the fleet start others, some may have to be moved again."""


class CommandCgroups:
    """Makes a cgroup for each command, and removes it."""

    def __init__(self, parent: Path, bounds: CommandBounds) -> None:
        """Take a directory below which this process can make cgroups with the controllers that are needed."""
        self._parent = parent
        self._bounds = bounds
        self._left: set[Path] = set()

    @classmethod
    def find(cls, configured: Path | None, bounds: CommandBounds) -> CommandCgroups:
        """Return the maker of cgroups on this machine.

        Args:
            configured: The directory that the operator names; it has no processes.
            bounds: Of each command.

        Raises:
            ConfigurationError: No cgroup can be made; the message says why.
        """
        try:
            parent = configured or _own()
            _divide(parent, has_processes=configured is None)
        except OSError as error:
            raise ConfigurationError(f"cgroup v2 ({error.filename}: {error.strerror})") from error
        for left in parent.glob(f"{_COMMAND}*"):
            # Of a worker that was killed. One without processes may also be for a command that starts now.
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_ctime > _STALE_S:
                    _remove(left)
        return cls(parent, bounds)

    def make(self) -> Path:
        """Return a new cgroup with the bounds.

        Raises:
            OSError: It cannot be made.
        """
        self._left = {path for path in self._left if not _remove(path)}
        path = self._parent / f"{_COMMAND}{secrets.token_hex(8)}"
        path.mkdir()
        try:
            self._bound(path)
        except OSError:
            self.remove(path)
            raise
        return path

    def _bound(self, path: Path) -> None:
        for name, value in (
            ("memory.max", self._bounds.memory_bytes),
            ("memory.oom.group", 1),
            ("pids.max", self._bounds.processes),
        ):
            (path / name).write_text(str(value), encoding="ascii")
        swap = path / "memory.swap.max"
        if swap.exists():
            # Else what exceeds the bound goes to the disk.
            swap.write_text("0", encoding="ascii")

    def remove(self, path: Path) -> None:
        """Remove a cgroup; one with processes goes with the next that is made after they ended."""
        if not _remove(path):
            self._left.add(path)


def _own() -> Path:
    """Return the cgroup of this process, or the one that it was moved out of."""
    mounted = next(_mounts(), None)
    if mounted is None:
        raise ConfigurationError("cgroup v2 (it is not mounted)")
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    inner = next((line[3:] for line in lines if line.startswith("0::")), "/")
    path = mounted / inner.lstrip("/")
    path = path.parent if path.name == _FLEET else path
    is_root = not (path / "cgroup.type").exists()
    if is_root:
        commands = path / _COMMANDS
        _check_controllers(path)
        (path / "cgroup.subtree_control").write_text(_enabling(), encoding="ascii")
        commands.mkdir(exist_ok=True)
        return commands
    if path != mounted and not _delegated(path):
        raise ConfigurationError(
            f"cgroup v2 ({path} is not delegated to the worker: set Delegate=yes in its unit of systemd, or "
            "NOVA_TOOLS__COMMAND_CGROUP)"
        )
    return path


def _divide(parent: Path, *, has_processes: bool) -> None:
    """Let cgroups below have the controllers."""
    _check_controllers(parent)
    control = parent / "cgroup.subtree_control"
    for left in reversed(range(_TRIES)):
        if set(_NEEDED) <= set(control.read_text(encoding="ascii").split()):
            return
        if has_processes:
            _move_fleet(parent)
        try:
            control.write_text(_enabling(), encoding="ascii")
        except OSError:
            if not left:
                raise


def _move_fleet(parent: Path) -> None:
    fleet = parent / _FLEET
    fleet.mkdir(exist_ok=True)
    for pid in (parent / "cgroup.procs").read_text(encoding="ascii").split():
        with suppress(ProcessLookupError):
            (fleet / "cgroup.procs").write_text(pid, encoding="ascii")


def _check_controllers(path: Path) -> None:
    there = (path / "cgroup.controllers").read_text(encoding="ascii").split()
    if missing := [name for name in _NEEDED if name not in there]:
        raise ConfigurationError(f"cgroup v2 with {' and '.join(missing)} (not among the controllers of {path})")


def _mounts() -> Iterator[Path]:
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.startswith("cgroup2 "):
            yield Path(fields.split()[4])


def _delegated(path: Path) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            return os.getxattr(path, name) == b"1"
    return False


def _enabling() -> str:
    return " ".join(f"+{name}" for name in _NEEDED)


def _remove(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
