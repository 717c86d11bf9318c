"""Opens files only inside an allowed directory: safe against links, also those created during the check.

A path that was resolved and checked is opened by name too late: replacing a directory by a link after the check
leads outside (measured on the SDK's tools, with a program that does nothing else: 4 of 3,000 reads). So
what was checked is opened here step by step from the root that it lies in, each step from the directory that the step
before holds open, and no step follows a link. What was resolved has none left; a link that is there now was not there
before, and is refused.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PROCESSES = "/proc"
"""Where a process could read the environment and the memory of the worker."""
_CANNOT_TAKE_ITS_PLACE = frozenset({errno.EBUSY, errno.EXDEV})
"""A file that is mounted by itself, such as into a container."""
_MAX_DEPTH = 256
"""The most directories within each other. Programs that walk deeper trees, and delete them, exceed the limit of their
stack."""
_KEPT_ATTRIBUTES = ("user.", "system.posix_acl", "security.selinux")
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
        self,
        roots: Sequence[str],
        *,
        within: Sequence[str] = (),
        beneath: Sequence[str] = (),
        but: str | None = None,
        private: PrivateFiles | None = None,
    ) -> None:
        """Confine to `roots`, at least one; relative paths start at the first.

        Args:
            roots: Directories, which an agent may be able to exchange for links.
            within: Directories that an agent cannot exchange. What is outside all of them stays closed, wherever a root
                leads. Empty: the roots themselves.
            beneath: Directories that the roots lie in, of an agent that could exchange the roots only. What is outside
                all of them stays closed, too.
            but: A folder in them that stays closed.
            private: Files that stay closed wherever they are.
        """
        self._roots = tuple(roots)
        self._anchors = tuple(within) or tuple(beneath) or self._roots
        self._beneath = tuple(beneath) or self._roots
        self._but = but
        self._private = private

    def resolve(self, path: str) -> Path:
        """Return the place that the path means, without links.

        Raises:
            ValueError: It is outside, private, or no path.
        """
        target = self._without_links(path)
        if not _is_within(target, self._anchors):
            raise ValueError(f"{path!r} is outside the directories of this tenant")
        if not _is_within(target, self._beneath):
            raise ValueError(f"{path!r} is outside the directories of this agent")
        if self._but is not None and _is_within(target, (self._but,)):
            raise ValueError(f"{path!r} is in {self._but!r}, where other agents work")
        if self._private is not None and self._private.has(target):
            raise ValueError(f"{path!r} belongs to the fleet itself, and no tool opens it")
        return target

    def _without_links(self, path: str) -> Path:
        target = Path(os.path.realpath(os.path.normpath(Path(self._roots[0]).resolve() / path)))
        if len(target.parts) > _MAX_DEPTH:
            raise ValueError(f"the path has more than {_MAX_DEPTH} directories")
        if not _is_within(target, self._roots):
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

    def replace_file(self, target: Path, content: Callable[[FileIO | None], bytes], *, make: bool = False) -> None:
        """Replace the content of a regular file in one step: a reader, or a crash, finds the old or the new one.

        The file keeps its permissions, but not a set-user-ID, its owner and its extended attributes. Where another file
        cannot take its place so, it is written in place: another user's file, one in a directory that only others may
        write, one that is mounted by itself.

        Args:
            target: The place, as `resolve` returned it.
            content: Returns the new content; receives the file that is there, open at its beginning, or None.
            make: Whether the file and its directories are made where they are missing.

        Raises:
            OSError: It cannot be opened, written or made; it is as it was.
            ValueError: It is there, and no regular file; or it is outside.
        """
        if target == self._root(target):
            raise ValueError(f"{str(target)!r} is not a regular file")
        directory = self._open_directory(target.parent, make=make)
        try:
            try:
                # For writing too: what may not be written must not be replaced either.
                opened = os.open(target.name, os.O_RDWR | _NO_WAIT, dir_fd=directory)
            except FileNotFoundError:
                if not make:
                    raise
                _put(directory, target.name, content(None), None)
                return
            with FileIO(opened, "rb+") as file:
                if not stat.S_ISREG(os.fstat(opened).st_mode):
                    raise ValueError(f"{str(target)!r} is not a regular file")
                data = content(file)
                if not _put(directory, target.name, data, opened):
                    _write_in_place(file, data)
        finally:
            os.close(directory)

    def open_place(self, target: Path) -> int:
        """Open a directory or a regular file, to search in. Raises what `open_file` does."""
        try:
            return self._open_directory(target, make=False)
        except NotADirectoryError:
            return self.open_file(target, os.O_RDONLY)

    def make_directory(self, target: Path) -> None:
        """Make a directory, by what `resolve` returned, and those above it that are missing.

        Raises:
            OSError: It cannot be made, or is no directory.
            ValueError: It is outside.
        """
        os.close(self._open_directory(target, make=True))

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


def _is_within(target: Path, folders: Sequence[str]) -> bool:
    return any(target.is_relative_to(Path(folder).resolve()) for folder in folders)


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


def _put(directory: int, name: str, data: bytes, before: int | None) -> bool:
    """Make a file of this name, in place of one that is open as `before`. Return False if it cannot be like that."""
    made_name = f".nova-{secrets.token_hex(8)}"
    try:
        made = os.open(made_name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_WAIT, 0o666, dir_fd=directory)
    except PermissionError:
        if before is None:
            raise
        return False
    try:
        with FileIO(made, "wb") as file:
            if before is None:
                _give_to_owner(made, directory)
            elif not _make_alike(made, before):
                os.unlink(made_name, dir_fd=directory)
                return False
            _write_all(file, data)
        os.rename(made_name, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(made_name, dir_fd=directory)
        if before is not None and isinstance(error, OSError) and error.errno in _CANNOT_TAKE_ITS_PLACE:
            return False
        raise
    return True


def _make_alike(made: int, before: int) -> bool:
    """Give a file the owner, permissions and attributes of another. Return False if it cannot have its owner."""
    wanted, status = os.fstat(before), os.fstat(made)
    if (status.st_uid, status.st_gid) != (wanted.st_uid, wanted.st_gid):
        try:
            os.fchown(made, wanted.st_uid, wanted.st_gid)
        except OSError:
            return False
    # Without set-user-ID and set-group-ID: as with any write, they are not for another content.
    os.fchmod(made, wanted.st_mode & 0o777)
    with suppress(OSError):
        # Not on every file system. Capabilities are for one content, too.
        for attribute in os.listxattr(before):
            if not attribute.startswith(_KEPT_ATTRIBUTES):
                continue
            with suppress(OSError):
                os.setxattr(made, attribute, os.getxattr(before, attribute))
    return True


def _write_in_place(file: FileIO, data: bytes) -> None:
    file.seek(0)
    _write_all(file, data)
    file.truncate()


def _write_all(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
