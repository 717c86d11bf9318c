"""Ends a process and all that came of it.

The program starts shells in sessions of their own, and a shell may leave a child behind: a process group does not
hold them all. On Linux the whole family is found by descent and by a mark in the environment, which a child
inherits even after it has lost its parents. Elsewhere the process group has to do.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["MARK", "end_family", "freeze"]

MARK = "NOVA_CLAUDE_RUN"
"""Environment variable whose value is unlike that of any other run."""

_PROC = Path("/proc")


def freeze(leader: int) -> None:
    """Stop the leader's process group where it stands. Returns at once."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGSTOP)


def end_family(leader: int | None, mark: str) -> None:
    """Kill the leader, its process group, and every process that descends from it or bears the mark. Blocks shortly.

    Each member is frozen before the next look: what stands still begets nothing, so the last look finds all.

    Args:
        leader: None when it has ended: its number may be another's by now.
        mark: The value of `MARK` in the family's environment.
    """
    found: set[int] = set()
    if leader is not None:
        freeze(leader)
        found.add(leader)
    while fresh := _relatives(found, f"{MARK}={mark}".encode()) - found:
        for pid in fresh:
            _send(pid, signal.SIGSTOP)
        found |= fresh
    for pid in found:
        _send(pid, signal.SIGKILL)
    if leader is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _relatives(family: set[int], mark: bytes) -> set[int]:
    parents = dict(_parents())
    return {pid for pid, parent in parents.items() if pid not in family and (parent in family or _bears(pid, mark))}


def _parents() -> Iterator[tuple[int, int]]:
    if not _PROC.is_dir():
        return
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # The name in parentheses may hold anything; state and parent follow the last of them.
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                yield int(entry.name), int(fields[1])


def _bears(pid: int, mark: bytes) -> bool:
    with suppress(OSError):
        return mark in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return False
