"""Entry points of the installed packages, read once for as long as no package is installed or removed."""

import os
import sys
from functools import lru_cache
from importlib import metadata
from importlib.metadata import EntryPoint


def entry_points_of(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group. Blocks: the first call reads a file of each package, 15 ms for 250 of them.

    Later calls look only at the directories of packages, and read again if one has changed.
    """
    return _read(group, tuple((path, _changed_ns(path)) for path in sys.path))


@lru_cache(maxsize=16)
def _read(group: str, _directories: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(metadata.entry_points(group=group))


def _changed_ns(path: str) -> int:
    # A package is a directory beside the others: installing and removing one changes the directory of all.
    try:
        return os.stat(path or os.curdir).st_mtime_ns
    except OSError:
        return 0
