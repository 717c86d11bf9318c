"""Check the licences of what users install: ``python deploy/environment/check_licences.py``. Part of ``make check``.

The permitted ones are in ``[tool.pip-licenses]`` of pyproject.toml; a package with another one needs a decision.
"""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

_LOCK = Path(__file__).resolve().parents[2] / "requirements.txt"
_TITLES = {"agent-client-protocol": "Apache License"}
"""Packages whose metadata name no licence, and the title of the licence that they bring as a file."""
_NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)


def names_of(lock: str) -> list[str]:
    """Return the names of the packages of a lock's text."""
    return sorted(set(_NAME.findall(lock)))


def title_of(name: str) -> str:
    """Return the first line of the licence file of an installed package; empty if it brings none."""
    files = [file for file in metadata.files(name) or () if file.name == "LICENSE"]
    lines = "".join(file.read_text() for file in files).split("\n")
    return next((line.strip() for line in lines if line.strip()), "")


def main() -> None:
    """End with 1 at a package whose licence is not permitted."""
    for name, title in _TITLES.items():
        if title_of(name) != title:
            sys.exit(f"licences: {name}: its licence file begins with {title_of(name)!r}, and not with {title!r}")
    names = [name for name in names_of(_LOCK.read_text()) if name not in _TITLES]
    command = [sys.executable, "-m", "piplicenses", "--packages", *names]
    done = subprocess.run(command, cwd=_LOCK.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"licences: {done.stderr.strip() or done.stdout.strip()}")


if __name__ == "__main__":
    main()
