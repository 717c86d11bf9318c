"""The release of the fleet that is installed: its version, and where its parts are.

`api`, `beat` and `models` are at the top of the repository, and in `nova_workers` of a wheel, which takes no other name
from the programs that it is installed beside. They import relatively inside themselves; all others find them here.
"""

from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType

import nova_workers

DISTRIBUTION = "nova-workers"

_PACKAGE = Path(nova_workers.__file__).parent


@cache
def release() -> str:
    """Return the version, such as ``0.2.0``; ``from source`` where the package is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "from source"


def part_name(name: str) -> str:
    """Return the name that a module of `api`, `beat` or `models` has here, for import strings.

    Args:
        name: As in the repository, such as ``api.app``.
    """
    top = name.partition(".")[0]
    return f"{nova_workers.__name__}.{name}" if (_PACKAGE / top / "__init__.py").is_file() else name


def part(name: str) -> ModuleType:
    """Import such a module."""
    return import_module(part_name(name))
