"""Who owns the directories of commands: where the worker is root, another user."""

from __future__ import annotations

import os
from pathlib import Path

SANDBOX_UID = 65_534
"""The user of enclosed commands of a worker that is root, and the owner of their directories: `nobody`."""


def make_private(path: Path, *, other_user: bool) -> None:
    """Make a directory that only its owner may enter.

    Args:
        path: Its path; directories above it are made too.
        other_user: Whether, if the worker is root, it belongs to the user of enclosed commands.

    Raises:
        OSError: It cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if other_user and os.geteuid() == 0 and path.stat().st_uid == 0:
        os.chown(path, SANDBOX_UID, SANDBOX_UID)
