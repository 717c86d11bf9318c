"""Inspection of processes: descendants, command lines, and whether they still run."""

import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that only waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() not in _ENDED
    except psutil.NoSuchProcess:
        return False


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes that descend from one; none if it is gone."""
    try:
        return [process.pid for process in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def command_lines(pids: Iterable[int]) -> dict[int, str]:
    """Return the command lines of processes, by process id; those that are gone are left out."""
    lines: dict[int, str] = {}
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            lines[pid] = " ".join(psutil.Process(pid).cmdline())
    return lines


def wait_until_gone(pids: Iterable[int], timeout_s: float) -> set[int]:
    """Wait until none of the processes runs; return those that still do when the time is up."""
    deadline_s = time.monotonic() + timeout_s
    left = set(pids)
    while left and time.monotonic() < deadline_s:
        left = {pid for pid in left if is_alive(pid)}
        time.sleep(0.05)
    return left
