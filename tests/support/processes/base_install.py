"""Runs `nova` as with the base install: ``python -m tests.support.processes.base_install runs list``.

Of the installed packages it hides those that only extras bring. With ``--import`` and names of modules it imports these
instead, and prints each failure. With ``--each`` and names of commands it runs one after the other, and prints their
exit codes.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from types import ModuleType

from packaging.requirements import Requirement


def base_distributions() -> set[str]:
    """Return the names of all distributions that `pip install nova-workers` brings."""
    found: set[str] = set()
    open_names = ["nova-workers"]
    while open_names:
        name = _normal(open_names.pop())
        if name in found:
            continue
        found.add(name)
        try:
            wanted = [Requirement(line) for line in requires(name) or ()]
        except PackageNotFoundError:
            # Of another platform.
            continue
        open_names += [each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


class _BaseOnly:
    """Finds modules as Python does, except those of packages that are not in the base install."""

    find_distributions = staticmethod(PathFinder.find_distributions)

    def __init__(self) -> None:
        base = base_distributions()
        self._hidden = {
            top
            for top, distributions in packages_distributions().items()
            if not any(_normal(each) in base for each in distributions)
        }

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, None for a hidden one."""
        return None if name.partition(".")[0] in self._hidden else PathFinder.find_spec(name, path, target)


def main() -> None:
    """Hide the packages, then run the command line or import modules."""
    finder = _BaseOnly()
    sys.meta_path[:] = [finder if each is PathFinder else each for each in sys.meta_path]
    for loaded in [name for name in sys.modules if name.partition(".")[0] == "packaging"]:
        del sys.modules[loaded]
    if sys.argv[1:2] == ["--import"]:
        _import_all(sys.argv[2:])
    elif sys.argv[1:2] == ["--each"]:
        _run_each(sys.argv[2:])
    else:
        importlib.import_module("nova_workers.cli.app").main()


def _import_all(names: Sequence[str]) -> None:
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"{name}: {error}")


def _run_each(commands: Sequence[str]) -> None:
    run = importlib.import_module("nova_workers.cli.app").main
    for command in commands:
        sys.argv[1:] = [command]
        try:
            code = run()
        except SystemExit as ended:
            code = ended.code
        print(f"{command}: {code}")


if __name__ == "__main__":
    main()
