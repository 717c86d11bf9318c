"""A disk of its own for one folder, whose size can shrink to what is used. Needs root, on Linux."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Self

_SIZE_BYTES = 6 * 1024**3
_PAGE_BYTES = 4096


class OwnDisk:
    """A file system in memory, mounted at a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def mounted(cls, folder: Path) -> Self | None:
        """Mount one at a folder; None if this process may not."""
        if sys.platform != "linux" or os.geteuid() != 0:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE_BYTES},mode=755", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return None
        return cls(folder)

    def fill(self) -> None:
        """Leave no free block."""
        now = os.statvfs(self._folder)
        self._resize((now.f_blocks - now.f_bfree) * now.f_frsize)

    def free(self) -> None:
        """Give it its size again."""
        self._resize(_SIZE_BYTES)

    def unmount(self) -> None:
        """Remove it with all that is on it."""
        subprocess.run(["umount", "--lazy", str(self._folder)], capture_output=True, check=False)

    def _resize(self, size_bytes: int) -> None:
        size = max(size_bytes, _PAGE_BYTES)
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self._folder)], capture_output=True, check=True)
