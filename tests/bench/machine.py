"""Reads CPU time, memory and load of this machine and its processes from the kernel."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import psutil

from tests.support.processes.inspection import descendants


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process used, with all its threads and without its children; 0 when it is gone."""
    try:
        used = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return used.user + used.system


def tree_cpu_s(pid: int) -> float:
    """Return the CPU time of a process and its descendants, those that ended and were waited for included."""
    total_s = 0.0
    for each in (pid, *descendants(pid)):
        with suppress(psutil.NoSuchProcess):
            used = psutil.Process(each).cpu_times()
            total_s += used.user + used.system + used.children_user + used.children_system
    return total_s


def descendants_cpu_s(pid: int) -> float:
    """Return the CPU time of a process's descendants, without its own."""
    return tree_cpu_s(pid) - cpu_s(pid)


def pss_mb(pid: int) -> float:
    """Return a process's proportional set size: its own memory and its share of what it shares, in MB."""
    return psutil.Process(pid).memory_full_info().pss / 1e6


def rss_mb(pid: int) -> float:
    """Return a process's resident set size in MB."""
    return psutil.Process(pid).memory_info().rss / 1e6


def _busy_s() -> float:
    used = psutil.cpu_times()
    return used.user + used.nice + used.system


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
                for line in Path("/proc/cpuinfo").read_text().splitlines()
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
