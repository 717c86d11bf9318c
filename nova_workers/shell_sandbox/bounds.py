"""What a command in the sandbox may use up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandBounds:
    """Most that one command, with all that it starts, may use.

    Attributes:
        memory_bytes: Of memory: in a cgroup all its processes together, elsewhere each of them.
        processes: In a cgroup. Elsewhere the bound is that of the user.
        open_files: Of each process.
        file_bytes: The longest file that it can write.
        tmpfs_bytes: Of each directory that is empty and its own, such as /tmp; they are in memory.
    """

    memory_bytes: int = 4 << 30
    processes: int = 512
    open_files: int = 4_096
    file_bytes: int = 10 << 30
    tmpfs_bytes: int = 1 << 30

    def options(self) -> Iterator[str]:
        """Yield the options of the launcher."""
        for name, value in (
            ("memory", self.memory_bytes),
            ("open-files", self.open_files),
            ("file-size", self.file_bytes),
        ):
            yield from ("--limit", f"{name}={value}")
