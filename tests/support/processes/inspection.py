"""Inspection of processes: descendants, command lines, and whether they still run."""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

__all__ = ["children", "command_lines", "descendants", "is_alive", "wait_until_gone"]


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in ("Z", "X")


def children(pid: int) -> list[int]:
    """Return the ids of a process's children; none if it is gone."""
    found: list[int] = []
    try:
        # Linux lists the children of each thread apart.
        for listed in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, listed.read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes that descend from one, each before its own descendants."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def command_lines(pids: Iterable[int]) -> dict[int, str]:
    """Return the command lines of processes, by process id; those that are gone are left out."""
    lines: dict[int, str] = {}
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            lines[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return lines


def wait_until_gone(pids: Iterable[int], timeout_s: float) -> set[int]:
    """Wait until none of the processes runs; return those that still do when the time is up."""
    deadline_s = time.monotonic() + timeout_s
    left = set(pids)
    while left and time.monotonic() < deadline_s:
        left = {pid for pid in left if is_alive(pid)}
        time.sleep(0.05)
    return left
