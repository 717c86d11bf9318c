"""Inspection of processes: descendants, and whether they still run."""

import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["descendants", "is_alive", "wait_until_gone"]


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in ("Z", "X")


def descendants(pid: int) -> set[int]:
    """Return the ids of all processes that descend from one."""
    found: set[int] = set()
    try:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found |= {child} | descendants(child)
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def wait_until_gone(pids: Iterable[int], timeout_s: float) -> set[int]:
    """Wait until none of the processes runs; return those that still do when the time is up."""
    deadline_s = time.monotonic() + timeout_s
    left = set(pids)
    while left and time.monotonic() < deadline_s:
        left = {pid for pid in left if is_alive(pid)}
        time.sleep(0.05)
    return left
