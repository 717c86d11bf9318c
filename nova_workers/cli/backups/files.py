"""The files of agents in a backup: a tar of their directories, written while agents work, and read back whole.

Nothing outside of the root gets into it, whatever an agent does meanwhile: directories are opened from the one that
holds them, and no link is followed.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from nova_workers.base.errors import ConfigurationError, Conflict, InvalidInput

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHANGED: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
"""What the kernel says of a file that is gone, or has become a link or a socket."""


@dataclass(slots=True)
class FilesWritten:
    """What `write_files` wrote.

    Attributes:
        count: Files and links.
        unreadable: Files, folders and links that this user may not read.
    """

    count: int = 0
    unreadable: int = 0

    def leave_out(self, error: OSError) -> None:
        """Go on without something that cannot be read, or end the backup.

        Raises:
            ConfigurationError: It is there, and the disk does not give it.
        """
        if isinstance(error, PermissionError):
            self.unreadable += 1
        elif error.errno not in _CHANGED:
            raise ConfigurationError(f"The files of agents cannot be read ({error}).") from error


class _Sink(io.RawIOBase):
    """Hands what the tar library writes to a function."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put

    def write(self, data: Any, /) -> int:
        self._put(bytes(data))
        return len(data)


class _Exactly:
    """A file of exactly so many bytes: an agent may cut it off or write on while it is read."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._file.read(wanted)
        self._left -= wanted
        return data + bytes(wanted - len(data))


def write_files(root: Path, put: Callable[[bytes], None]) -> FilesWritten:
    """Write a tar of everything below a folder.

    Each file is as it was when it was read; one that vanishes meanwhile is left out. Links are written as links. What
    is neither file, folder nor link (a socket, a pipe) is left out, and so is what this user may not read.

    Args:
        root: The folder, or a link to it.
        put: Takes the bytes of the tar.

    Raises:
        ConfigurationError: The disk fails.
    """
    root, written = root.resolve(), FilesWritten()
    with tarfile.open(fileobj=_Sink(put), mode="w|", encoding="utf-8", errors="surrogateescape") as tar:
        for inside, folders, names, folder in os.fwalk(root, onerror=written.leave_out):
            at = Path(inside).relative_to(root)
            for name in sorted((*folders, *names)):
                try:
                    written.count += _add(tar, str(at / name), name, folder)
                except OSError as error:
                    written.leave_out(error)
    return written


def _add(tar: tarfile.TarFile, path: str, name: str, folder: int) -> int:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    entry = tarfile.TarInfo(path)
    entry.mode, entry.uid, entry.gid = stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
    entry.mtime = int(found.st_mtime)
    if stat.S_ISLNK(found.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=folder)
        tar.addfile(entry)
    elif stat.S_ISDIR(found.st_mode):
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
        return 0
    elif stat.S_ISREG(found.st_mode):
        with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file:
            opened = os.fstat(file.fileno())
            if not stat.S_ISREG(opened.st_mode):
                return 0
            entry.size = opened.st_size
            tar.addfile(entry, _Exactly(file, opened.st_size))  # pyright: ignore[reportArgumentType] - it is read only
    else:
        return 0
    return 1


def need_empty(root: Path) -> None:
    """Refuse a folder that has files: a restore never mixes those of two fleets.

    Raises:
        Conflict: It is not empty.
        ConfigurationError: It cannot be read.
    """
    try:
        taken = root.exists() and any(root.iterdir())
    except OSError as error:
        raise ConfigurationError(
            f"{str(root)!r}, for the files of agents, cannot be read: {error.strerror}."
        ) from error
    if taken:
        raise Conflict(
            f"{str(root)!r} is not empty, and the backup has files of agents. Move what is there away, name another "
            "folder with --files, or leave them out with --no-files."
        )


def read_files(tar_bytes: IO[bytes], root: Path) -> int:
    """Extract what `write_files` wrote into a folder that is empty or missing, and return the number of files.

    If it cannot be read whole, the folder has nothing of it. A process that is killed while it moves the folders into
    their place leaves some; the next try is refused, as the folder is not empty.

    Raises:
        InvalidInput: The tar is damaged, or has what no backup has.
        ConfigurationError: The folder cannot be written.
    """
    unfinished = root / f".restoring-{os.getpid()}"
    try:
        unfinished.mkdir(mode=0o700, parents=True)
        with tarfile.open(fileobj=tar_bytes, mode="r|", encoding="utf-8", errors="surrogateescape") as tar:
            # The filter refuses what would be written outside, also through a link. Folders get their modes last: an
            # agent may have left one that takes no files.
            tar.extractall(unfinished, _checked(tar), numeric_owner=True, filter="tar")
            count = sum(not entry.isdir() for entry in tar.getmembers())
        for each in unfinished.iterdir():
            each.rename(root / each.name)
        return count
    except tarfile.TarError as error:
        raise InvalidInput(f"The files of agents in the backup cannot be read ({error}).", field="file") from error
    except OSError as error:
        raise ConfigurationError(
            f"The files of agents cannot be written below {str(root)!r} ({error.strerror or error})."
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _checked(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for entry in tar:
        if not (entry.isreg() or entry.isdir() or entry.issym()):
            raise InvalidInput(f"The backup has {entry.name!r}, which is neither file, folder nor link.", field="file")
        yield entry
