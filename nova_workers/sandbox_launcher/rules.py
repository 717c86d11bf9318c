"""Which rules of Landlock the walls need."""

import os
from collections.abc import Iterator, Sequence

from nova_workers.sandbox_launcher.landlock import (
    EVERYTHING,
    READ,
    SCOPES_SINCE,
    WRITE,
    WRITE_DEVICES,
    Ruleset,
    version,
)
from nova_workers.sandbox_launcher.walls import Operation, Walls

LEAST_ALONE = 6
"""The first version of Landlock that can stand without namespaces: it keeps signals inside (Linux 6.12)."""

_SYSTEM = ("/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr", "/nix/store", "/gnu/store")
_OF_THE_MACHINE = tuple(
    f"/proc/{name}"
    for name in ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "sys/kernel", "sys/vm")
)
"""The right to all but processes: which of them a command could see is not for Landlock to say."""
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
_OF_THE_KERNEL = ("/proc", "/sys")


def scopes() -> Ruleset | None:
    """Return rules that keep signals and abstract sockets inside, and nothing else; None if the kernel has none."""
    return Ruleset(network=True, files=False) if version() >= SCOPES_SINCE else None


def ruleset_of(walls: Walls) -> Ruleset | None:
    """Return the rules; None if there are none, or the kernel has no Landlock and namespaces stand without it.

    Raises:
        OSError: The kernel refuses them.
        ValueError: They are to stand alone, and this kernel's Landlock is too old for that.
    """
    known = version()
    if walls.landlock_only:
        if known < LEAST_ALONE:
            raise ValueError(
                f"without namespaces Landlock of version {LEAST_ALONE} (Linux 6.12) is needed, and this kernel has "
                f"{known or 'none'}"
            )
        return _alone(walls) if walls.guard else _around_processes()
    return _beside_namespaces(walls) if walls.guard and known else None


def _around_processes() -> Ruleset:
    """Permit all but what no rule can permit: the environment and the memory of processes outside."""
    rules = Ruleset(network=True, signals=True)
    rules.permit("/", EVERYTHING)
    return rules


def _beside_namespaces(walls: Walls) -> Ruleset:
    # Connections within a network of its own are the command's business.
    rules = Ruleset(network=True)
    rules.permit("/", READ)
    for operation in walls.operations:
        if operation.kind in ("tmpfs", "bind", "proc"):
            rules.permit(operation.target, WRITE)
        elif operation.kind == "dev":
            rules.permit(operation.target, WRITE_DEVICES)
    return rules


def _alone(walls: Walls) -> Ruleset:
    rules = Ruleset(network=walls.network)
    hidden = [os.path.realpath(each.target) for each in walls.operations if each.kind == "tmpfs"]
    for path in dict.fromkeys(map(os.path.realpath, _SYSTEM)):
        for visible in _without(path, hidden):
            rules.permit(visible, READ)
    for path in _OF_THE_MACHINE:
        rules.permit(path, READ)
    for path in _DEVICES:
        rules.permit(path, WRITE_DEVICES)
    for operation in walls.operations:
        if operation.kind == "bind":
            _permit(rules, operation, WRITE)
        elif operation.kind == "ro-bind" and operation.source != "/" and not is_below(operation.source, _OF_THE_KERNEL):
            _permit(rules, operation, READ)
    return rules


def _permit(rules: Ruleset, operation: Operation, rights: int) -> None:
    if operation.descriptor < 0:
        rules.permit(operation.source, rights)
        return
    # What was opened is what is permitted, whatever the path means by now.
    rules.permit(operation.descriptor, rights)
    os.close(operation.descriptor)


def _without(path: str, hidden: Sequence[str]) -> Iterator[str]:
    """Yield the path, or what is in it if something hidden is among that."""
    if is_below(path, hidden):
        return
    if not any(is_below(each, (path,)) for each in hidden):
        yield path
        return
    for name in os.listdir(path):
        inner = os.path.join(path, name)
        # What a link means has rules of its own, or none.
        if not os.path.islink(inner):
            yield from _without(inner, hidden)


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Return whether a path is one of the folders or below it."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
