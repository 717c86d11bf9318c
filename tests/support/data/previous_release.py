"""The release before this one, as the tests of upgrades know it. Change it with each release (tested)."""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

VERSION = "0.2.0"
COMMIT = "ff7b3546762e965ae6ad6e506f028be54b71260b"
"""The commit of its tag, since a clone may be without tags."""
REVISION = "0012"
"""The newest migration of it."""

_ROOT = Path(__file__).resolve().parents[3]


def unpack(folder: Path) -> None:
    """Put its files into a folder. Skips the test where the history is not complete."""
    packed = subprocess.run(["git", "-C", str(_ROOT), "archive", COMMIT], capture_output=True, check=False)
    if packed.returncode != 0:
        pytest.skip(f"release {VERSION} is not in this clone: {packed.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as tar:
        tar.extractall(folder, filter="data")
