"""What this machine's disks say: whether there is room in a folder, and whether its files outlive a container."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MB: Final = 1_000_000
_FULL_BYTES: Final = 100 * _MB
"""A worker's logs, an upload and the write-ahead log of the embedded Postgres need about this much."""
_FULL_SHARE: Final = 0.02
"""Of a small file system, such as a container's tmpfs."""
_FULL_INODES: Final = 1_000
_MOUNTS: Final = Path("/proc/self/mountinfo")
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_CONTAINERS: Final = (Path("/.dockerenv"), Path("/run/.containerenv"))
_CONTAINER_VARIABLES: Final = ("KUBERNETES_SERVICE_HOST", "container")
_EMPTY_DIR: Final = "kubernetes.io~empty-dir"


@dataclass(frozen=True, slots=True)
class Space:
    """What a user without privileges may still write on a file system."""

    free_bytes: int
    total_bytes: int
    free_inodes: int | None
    """None where the file system has no fixed number of them."""

    @property
    def is_full(self) -> bool:
        """Whether too little is left to work with."""
        if self.free_inodes is not None and self.free_inodes < _FULL_INODES:
            return True
        return self.free_bytes < min(_FULL_BYTES, _FULL_SHARE * self.total_bytes)


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of `mountinfo`.

    Attributes:
        root: The folder of the file system that is mounted.
        point: Where.
        kind: The type of the file system.
    """

    root: str
    point: Path
    kind: str


def space_of(path: Path) -> Space:
    """Return the space below a folder, which may not exist yet.

    Raises:
        OSError: It cannot be asked.
    """
    found = os.statvfs(nearest(path))
    size = found.f_frsize
    return Space(found.f_bavail * size, found.f_blocks * size, found.f_favail if found.f_files else None)


def short_of_room(path: Path) -> str | None:
    """Return how little is left below a folder, in words, if it is too little to work with.

    Raises:
        OSError: It cannot be asked.
    """
    space = space_of(path)
    if not space.is_full:
        return None
    inodes = "" if space.free_inodes is None or space.free_inodes >= _FULL_INODES else f", {space.free_inodes} files"
    return f"{space.free_bytes / _MB:,.0f} MB of {space.total_bytes / _MB:,.0f} MB{inodes} are free"


def write_fault(path: Path) -> str | None:
    """Return why no file can be written below a folder, in words; None if one can, or the folder does not exist yet."""
    if not path.is_dir():
        return None
    try:
        with tempfile.TemporaryFile(dir=path, prefix=".nova-check-") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return None


def nearest(path: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def mounts() -> list[Mount]:
    """Return the mounted file systems, as this process sees them; nothing where the kernel does not say."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [mount for line in lines if (mount := _mount(line)) is not None]


def lost_with(
    path: Path,
    mounted: Sequence[Mount] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> str | None:
    """Return the container or memory with which the files below a folder end, in words; None on a disk or a volume.

    Args:
        path: The folder, which may not exist yet.
        mounted: What is mounted; None asks the kernel.
        environ: Of this process: it says whether this is a container.
    """
    # What is missing of it is made where its nearest folder is.
    place = path.resolve()
    holding = [mount for mount in (mounts() if mounted is None else mounted) if place.is_relative_to(mount.point)]
    if not holding:
        return None
    # The last one of the deepest is on top.
    mount = max(enumerate(holding), key=lambda each: (len(each[1].point.parts), each[0]))[1]
    if mount.kind in _MEMORY:
        return "a restart, since they are in memory (tmpfs)"
    if _EMPTY_DIR in mount.root:
        return "the pod, since its folder is an emptyDir"
    if mount.point == Path("/") and _is_container(environ):
        return "the container, since no volume is mounted there"
    return None


def _is_container(environ: Mapping[str, str]) -> bool:
    return any(path.exists() for path in _CONTAINERS) or any(environ.get(name) for name in _CONTAINER_VARIABLES)


def _mount(line: str) -> Mount | None:
    # 36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw
    before, _, after = line.partition(" - ")
    fields, kind = before.split(" "), after.split(" ")[0]
    if len(fields) < 5 or not kind:
        return None
    return Mount(_plain(fields[3]), Path(_plain(fields[4])), kind)


def _plain(text: str) -> str:
    """Return a path whose spaces and the like the kernel writes in octal."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
