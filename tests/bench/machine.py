"""Reads CPU time, memory and load of this machine and its processes from the kernel."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from tests.support.processes.inspection import children

__all__ = ["CpuMeter", "Machine", "cpu_s", "descendants_cpu_s", "pss_mb", "rss_mb", "tree_cpu_s"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_AFTER_NAME = 3
"""Number, in proc(5), of the first field of /proc/<pid>/stat after the name, which may hold spaces."""


def _stat(pid: int) -> list[str]:
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process used, with all its threads and without its children; 0 when it is gone."""
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(fields[number - _AFTER_NAME]) for number in (14, 15)) / _TICKS_PER_S


def tree_cpu_s(pid: int) -> float:
    """Return the CPU time of a process and its descendants, those that ended and were waited for included."""
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    own = sum(int(fields[number - _AFTER_NAME]) for number in (14, 15, 16, 17)) / _TICKS_PER_S
    return own + sum(tree_cpu_s(child) for child in children(pid))


def descendants_cpu_s(pid: int) -> float:
    """Return the CPU time of a process's descendants, without its own."""
    return tree_cpu_s(pid) - cpu_s(pid)


def pss_mb(pid: int) -> float:
    """Return a process's proportional set size: its own memory and its share of what it shares, in MB."""
    return _memory_mb(_PROC / str(pid) / "smaps_rollup", "Pss:")


def rss_mb(pid: int) -> float:
    """Return a process's resident set size in MB."""
    return _memory_mb(_PROC / str(pid) / "status", "VmRSS:")


def _memory_mb(path: Path, name: str) -> float:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024 / 1e6
    raise LookupError(f"{path} has no {name!r}")


def _busy_s() -> float:
    user, nice, system, _, _, irq, softirq, *_ = map(int, (_PROC / "stat").read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


class CpuMeter:
    """Measures the CPU time of processes, and of the rest of the machine, over a block.

    Args:
        processes: By name, how to read the CPU seconds that each has used so far.
    """

    def __init__(self, processes: Mapping[str, Callable[[], float]]) -> None:
        self._processes = {"load generator": partial(cpu_s, os.getpid()), **processes}
        self.used_s: dict[str, float] = {}
        self.others_s = 0.0
        """CPU time of processes that are no descendants of ours: the noise."""
        self.wall_s = 0.0

    def __enter__(self) -> Self:
        self._began_s = time.perf_counter()
        self._before = self._read()
        self._others_before_s = _busy_s() - tree_cpu_s(os.getpid())
        return self

    def __exit__(self, *_: object) -> None:
        after = self._read()
        self.used_s = {name: after[name] - before for name, before in self._before.items()}
        self.others_s = max(_busy_s() - tree_cpu_s(os.getpid()) - self._others_before_s, 0.0)
        self.wall_s = time.perf_counter() - self._began_s

    def details(self, runs: int) -> dict[str, Any]:
        """Return the context of every figure: CPU time per run, and how many cores other processes kept busy."""
        return {
            "runs": runs,
            "cpu_ms_per_run": {name: used_s * 1000 / runs for name, used_s in self.used_s.items()},
            "cores_used_by_others": self.others_s / self.wall_s,
        }

    def _read(self) -> dict[str, float]:
        return {name: read() for name, read in self._processes.items()}


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of the measurement."""

    cpu: str
    cores: int
    memory_gb: float
    system: str
    python: str
    load_1m: float

    @classmethod
    def this(cls) -> Self:
        """Describe this one, as it is now."""
        model = next(
            (
                line.partition(":")[2].strip()
                for line in (_PROC / "cpuinfo").read_text().splitlines()
                if line.startswith("model name")
            ),
            platform.machine(),
        )
        return cls(
            cpu=model,
            cores=len(os.sched_getaffinity(0)),
            memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            load_1m=os.getloadavg()[0],
        )
