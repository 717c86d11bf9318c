"""Check the licences of what users install: ``python deploy/environment/check_licences.py``. Part of ``make check``.

The permitted ones are in ``[tool.pip-licenses]`` of pyproject.toml; a package with another one needs a decision.
"""

import re
import subprocess
import sys
from pathlib import Path

_LOCK = Path(__file__).resolve().parents[2] / "requirements.txt"
_NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)


def names_of(lock: str) -> list[str]:
    """Return the names of the packages of a lock's text."""
    return sorted(set(_NAME.findall(lock)))


def main() -> None:
    """End with 1 at a package whose licence is not permitted."""
    command = [sys.executable, "-m", "piplicenses", "--packages", *names_of(_LOCK.read_text())]
    done = subprocess.run(command, cwd=_LOCK.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"licences: {done.stderr.strip() or done.stdout.strip()}")


if __name__ == "__main__":
    main()
