"""``python -m tests.bench.imports MODULE…``: the memory that importing the modules takes, by library.

A library's figures are those of its own modules, without other libraries that they import.
"""

import argparse
import importlib
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from nova_workers.base.program import collect_seldom

UNUSED_SERVERS = {"NOVA_DATABASE_URL": "postgresql://unused", "NOVA_REDIS_URL": "redis://unused"}
"""The environment in which the apps of processes can be imported."""

_MEMORY = Path("/proc/self/smaps_rollup")
_SHOWN = 25


class _Memory(NamedTuple):
    resident_mb: float = 0.0
    private_mb: float = 0.0

    def plus(self, other: "_Memory") -> "_Memory":
        return _Memory(*(mine + its for mine, its in zip(self, other, strict=True)))

    def minus(self, other: "_Memory") -> "_Memory":
        return _Memory(*(mine - its for mine, its in zip(self, other, strict=True)))


def _now() -> _Memory:
    lines = (line.split() for line in _MEMORY.read_text().splitlines()[1:])
    mb = {line[0]: int(line[1]) * 1024 / 1e6 for line in lines}
    return _Memory(mb["Rss:"], mb["Private_Dirty:"])


class _Meter(MetaPathFinder):
    """Measures the memory before and after each module that Python executes from a file."""

    def __init__(self) -> None:
        self.by_library: defaultdict[str, _Memory] = defaultdict(_Memory)
        self._nested = [_Memory()]
        """For each module that is being executed, what the modules cost that it imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _MeteredLoader(spec.loader, self)
        return spec

    def execute(self, loader: Loader, module: ModuleType) -> None:
        before = _now()
        self._nested.append(_Memory())
        try:
            loader.exec_module(module)
        finally:
            whole = _now().minus(before)
            library = module.__name__.partition(".")[0]
            self.by_library[library] = self.by_library[library].plus(whole.minus(self._nested.pop()))
            self._nested[-1] = self._nested[-1].plus(whole)


class _MeteredLoader(Loader):
    def __init__(self, loader: Loader, meter: _Meter) -> None:
        self._loader = loader
        self._meter = meter

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._meter.execute(self._loader, module)


def main() -> None:
    """Import what the arguments name, and print the libraries that take the most memory."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.imports", description=__doc__)
    parser.add_argument("modules", nargs="+", metavar="MODULE")
    modules: list[str] = parser.parse_args().modules
    os.environ.update(UNUSED_SERVERS)
    collect_seldom()
    meter, before = _Meter(), _now()
    sys.meta_path.insert(0, meter)
    for module in modules:
        importlib.import_module(module)
    after = _now()
    rows = sorted(meter.by_library.items(), key=lambda item: item[1].resident_mb, reverse=True)[:_SHOWN]
    sys.stdout.write("| library | resident MB | private MB |\n| --- | --- | --- |\n")
    for name, cost in (("before", before), *rows, ("after", after)):
        sys.stdout.write(f"| {name} | {cost.resident_mb:.1f} | {cost.private_mb:.1f} |\n")


if __name__ == "__main__":
    main()
