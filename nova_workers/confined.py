"""Opens files only inside an allowed directory: safe against links, also those created during the check.

A path that was resolved and checked is opened by name too late: replacing a directory by a link after the check
leads outside (measured on the SDK's tools, with a program that does nothing else: 4 of 3,000 reads). So
what was checked is opened here step by step from the root that it lies in, each step from the directory that the step
before holds open, and no step follows a link. What was resolved has none left; a link that is there now was not there
before, and is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Confinement", "PrivateFiles"]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PROCESSES = "/proc"
"""Where a process could read the environment and the memory of the worker."""
# Opening a named pipe waits for its other end, without this.
_NO_WAIT = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class PrivateFiles:
    """The files of the fleet itself, which no tool opens: those of NOVA_HOME, and what the kernel shows of processes.

    Attributes:
        home: NOVA_HOME. None of its files but those below `workspace` may be opened.
        workspace: The folder of all agents' working directories, which may lie in `home`.
    """

    home: Path
    workspace: Path

    def resolved(self) -> PrivateFiles:
        """Return them without links."""
        return PrivateFiles(self.home.resolve(), self.workspace.resolve())

    def has(self, target: Path) -> bool:
        """Return whether a path without links is one of them."""
        if target.is_relative_to(_PROCESSES):
            return True
        private = self.resolved()
        return target.is_relative_to(private.home) and not target.is_relative_to(private.workspace)


class Confinement:
    """Directories, and the opening of what is in them. Its methods block."""

    def __init__(
        self, roots: Sequence[str], *, within: Sequence[str] = (), private: PrivateFiles | None = None
    ) -> None:
        """Confine to `roots`, at least one; relative paths start at the first.

        Args:
            roots: Directories, which an agent may be able to exchange for links.
            within: Directories that an agent cannot exchange. What is outside all of them stays closed, wherever a root
                leads. Empty: the roots themselves.
            private: Files that stay closed wherever they are.
        """
        self._roots = tuple(roots)
        self._anchors = tuple(within) or self._roots
        self._private = private

    def resolve(self, path: str) -> Path:
        """Return the place that the path means, without links.

        Raises:
            ValueError: It is outside, private, or no path.
        """
        target = self._without_links(path)
        if not any(target.is_relative_to(Path(anchor).resolve()) for anchor in self._anchors):
            raise ValueError(f"{path!r} is outside the directories of this tenant")
        if self._private is not None and self._private.has(target):
            raise ValueError(f"{path!r} belongs to the fleet itself, and no tool opens it")
        return target

    def _without_links(self, path: str) -> Path:
        target = Path(os.path.realpath(os.path.normpath(Path(self._roots[0]).resolve() / path)))
        if not any(target.is_relative_to(Path(root).resolve()) for root in self._roots):
            raise ValueError(f"{path!r} is outside the working directory and the other directories of this agent")
        return target

    def open_file(self, target: Path, flags: int, *, make: bool = False) -> int:
        """Open a regular file by what `resolve` returned, and return its descriptor.

        Args:
            target: The place.
            flags: ``os.O_RDONLY`` and the like.
            make: Whether the file and its directories are made where they are missing.

        Raises:
            OSError: It cannot be opened.
            ValueError: It is there, and no regular file; or it is outside.
        """
        if target == self._root(target):
            raise ValueError(f"{str(target)!r} is not a regular file")
        directory = self._open_directory(target.parent, make=make)
        try:
            file = _open(directory, target.name, flags, make=make)
        finally:
            os.close(directory)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise ValueError(f"{str(target)!r} is not a regular file")
        return file

    def open_place(self, target: Path) -> int:
        """Open a directory or a regular file, to search in. Raises what `open_file` does."""
        try:
            return self._open_directory(target, make=False)
        except NotADirectoryError:
            return self.open_file(target, os.O_RDONLY)

    def _open_directory(self, target: Path, *, make: bool) -> int:
        root = self._root(target)
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in target.relative_to(root).parts:
            try:
                inner = _step(directory, part, make=make)
            finally:
                os.close(directory)
            directory = inner
        return directory

    def _root(self, target: Path) -> Path:
        for anchor in self._anchors:
            resolved = Path(anchor).resolve()
            if target.is_relative_to(resolved):
                return resolved
        raise ValueError(f"{str(target)!r} is outside")


def _open(directory: int, name: str, flags: int, *, make: bool) -> int:
    try:
        return os.open(name, flags | _NO_WAIT, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
    file = os.open(name, flags | _NO_WAIT | os.O_CREAT, 0o666, dir_fd=directory)
    _give_to_owner(file, directory)
    return file


def _give_to_owner(made: int, directory: int) -> None:
    """Give what root made to the owner of the directory: the agent's commands may run as that user."""
    if os.geteuid() == 0:
        owner = os.fstat(directory)
        os.fchown(made, owner.st_uid, owner.st_gid)


def _step(directory: int, part: str, *, make: bool) -> int:
    try:
        return os.open(part, _DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
    try:
        os.mkdir(part, dir_fd=directory)
    except FileExistsError:
        # Another call of this step made it.
        return os.open(part, _DIRECTORY, dir_fd=directory)
    made = os.open(part, _DIRECTORY, dir_fd=directory)
    _give_to_owner(made, directory)
    return made
