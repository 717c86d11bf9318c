"""The private directory of one run of a program: its settings, its working directory, the socket of its tools.

A program's working directory is an empty one in here and never the agent's: so it finds no settings, instructions or
hooks of a project, and its tools on files are ours, which are confined to the agent's directories.
"""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nova_workers.base.errors import EngineFailure

_PREFIXES = {"program": "nova-program-", "claude": "nova-claude-"}
_STALE_S = 2 * 86_400.0
"""Age at which a home is stale; no turn lasts this long."""


@dataclass(frozen=True, slots=True)
class Home:
    """A private directory, which only the worker's user can read."""

    base: Path

    @property
    def user(self) -> Path:
        """The home directory of the program's user."""
        return self.base / "home"

    @property
    def work(self) -> Path:
        """The program's working directory."""
        return self.base / "work"

    @property
    def socket(self) -> Path:
        """The socket of the turn's tools."""
        return self.base / "tools"

    def environment(self, cwd: Path | None = None) -> dict[str, str]:
        """Return the variables that lead into the home. `cwd` is the working directory; None is that in the home."""
        return {"HOME": str(self.user), "TMPDIR": str(self.base / "tmp"), "PWD": str(cwd or self.work)}

    def write(self, name: str, content: str | bytes, *, executable: bool = False) -> Path:
        """Write a file, for the worker's user only."""
        path = self.base / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700 if executable else 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        return path

    def remove(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.base, ignore_errors=True)


def make_home(kind: Literal["program", "claude"] = "program") -> Home:
    """Make a private directory.

    Raises:
        EngineFailure: There is no place for it.
    """
    try:
        home = Home(Path(tempfile.mkdtemp(prefix=_PREFIXES[kind])).resolve())
        for path in (home.user, home.work, home.base / "tmp"):
            path.mkdir(mode=0o700)
    except OSError as error:
        raise EngineFailure(
            f"No private directory can be made below {tempfile.gettempdir()!r}: {error.strerror}. Free space there, or "
            "set TMPDIR of the workers.",
            kind="unknown",
            retryable=True,
        ) from error
    return home


def sweep() -> None:
    """Remove stale homes of killed workers."""
    for prefix in _PREFIXES.values():
        for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE_S:
                    shutil.rmtree(path, ignore_errors=True)
