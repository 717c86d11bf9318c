"""What can make a sandbox on this machine, and how it is started."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from pathlib import Path
from typing import Final, Literal

import nova_workers
from nova_workers.base.errors import ConfigurationError
from nova_workers.sandbox_launcher.calls import program

SandboxKind = Literal["bubblewrap", "namespaces", "landlock"]
"""``bubblewrap``; the same walls built by our launcher, with Landlock beside them; Landlock alone, where the machine
permits no namespaces. Our filter of system calls stands beside each."""
SandboxChoice = Literal["auto", "bubblewrap", "namespaces", "landlock"]
"""``auto`` is the first kind that works."""

_LAUNCH: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from nova_workers.sandbox_launcher.main import main; main()"
)
WHY_NOT: dict[SandboxKind, str] = {
    "bubblewrap": "{program} cannot make a sandbox here: {complaint}. It needs user namespaces, which some kernels and "
    "most container runtimes withhold: allow them for the worker.",
    "namespaces": "Nor can the worker itself make one with namespaces: {complaint}.",
    "landlock": "Nor one with Landlock alone: {complaint}.",
}


def find_program(kind: SandboxKind) -> tuple[str, ...]:
    """Return the words that start what confines.

    Raises:
        ConfigurationError: A program is missing.
    """
    if kind != "bubblewrap":
        return launcher()
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        raise ConfigurationError(
            "There is no bwrap on PATH. Install bubblewrap on every worker's machine: apt-get install bubblewrap, "
            "or the like."
        )
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        raise ConfigurationError(
            "There is no setpriv on PATH, with which a worker that is root runs tenants' commands as another user. "
            "Install util-linux on every worker's machine."
        )
    return (bubblewrap,)


def launcher() -> tuple[str, ...]:
    """Return the words that start our own launcher."""
    # The folder of this package, where a Python without packages does not look.
    folder = str(Path(nova_workers.__path__[0]).parent)
    return (sys.executable, "-I", "-S", "-c", _LAUNCH, folder)


@functools.cache
def call_filter(*, unix: bool = True) -> bytes | None:
    """Return the filter of system calls that stands beside namespaces; None on machines that there is none for.

    Args:
        unix: Whether it permits Unix sockets.
    """
    try:
        return program(os.uname().machine, network=True, alone=False, unix=unix)
    except ValueError:
        return None
