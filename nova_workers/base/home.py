"""The folder of this machine's fleet, for programs that need no other setting: to read them all takes 0.1 s."""

from __future__ import annotations

import os
from pathlib import Path

_VARIABLE = "NOVA_HOME"


def home_folder() -> Path:
    """Return NOVA_HOME, in upper or lower case as of all settings, or its default."""
    return next((Path(value) for name, value in os.environ.items() if name.upper() == _VARIABLE), default_home())


def default_home() -> Path:
    """Return the folder in the user's home."""
    return Path.home() / ".nova"
