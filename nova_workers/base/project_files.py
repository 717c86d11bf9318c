"""What of a project's folder is its code, wherever the folder is: where it was written, in a wheel, on a worker."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

LOCK: Final = "requirements.txt"
"""The name of the lock, in a project's folder and in its wheel: pinned requirements with hashes, as pip and uv read."""

PACKAGES: Final = ".packages"
"""The folder of an unpacked project with packages that its lock names, and that are not installed beside the fleet."""

_FILE_NAME: Final = re.compile(r"([a-z0-9][a-z0-9_]*)-([A-Za-z0-9.!+_]+)-py3-none-any\.whl")


def name_in(file_name: str) -> str | None:
    """Return the project that the name of a wheel's file says; None if it is no such name."""
    found = _FILE_NAME.fullmatch(file_name)
    return None if found is None else found[1].replace("_", "-")


def digest_of_code(modules: Mapping[str, bytes]) -> str:
    """Return the version of code: a digest of its modules and its lock, by their paths, whatever else comes with them.

    Args:
        modules: Files of a project. Others than modules and the lock do not count, nor do tests.
    """
    digest = hashlib.sha256()
    for path in sorted(filter(is_code, modules)):
        digest.update(f"{path}\0".encode() + hashlib.sha256(modules[path]).digest())
    return digest.hexdigest()


def is_code(path: str) -> bool:
    """Return whether a file of a project decides what its code does: a module outside of its tests, or the lock."""
    folders = PurePosixPath(path).parts[:-1]
    if folders[:1] == ("tests",) or any(is_hidden(folder) for folder in folders):
        return False
    return path == LOCK or path.endswith(".py")


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is no part of a project: ``.venv``, ``__pycache__``, ``.env``."""
    return name.startswith((".", "__pycache__"))
