"""Wheels of a release, built from its files and unpacked: the code that users install."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path


def unpack_wheel(source: Path, folder: Path) -> None:
    """Build the wheel of a source tree, and unpack it into a folder that is then first on a path of modules."""
    built = folder.with_name(f"{folder.name}-wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
