"""Check that migrations follow each other: ``python deploy/environment/check_migrations.py``. Part of ``make check``.

Two branches that each add a migration of the same number merge without a conflict; then no database can be migrated.
The file of a revision begins with its number, and the numbers have no gap.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path

_VERSIONS = Path(__file__).resolve().parents[2] / "models" / "migrations" / "versions"
_REVISION = re.compile(r'^revision = "(\d+)"$', re.MULTILINE)
_DOWN = re.compile(r'^down_revision = (?:"(\d+)"|None)$', re.MULTILINE)


def problems_of(migrations: Mapping[str, str]) -> list[str]:
    """Return what is wrong with migrations, given by the names of their files with their texts."""
    problems: list[str] = []
    for number, name in enumerate(sorted(migrations), 1):
        revision, down = _REVISION.search(migrations[name]), _DOWN.search(migrations[name])
        found = (name.partition("_")[0], revision and revision[1], down and down[1])
        wanted = (f"{number:04}", f"{number:04}", None if number == 1 else f"{number - 1:04}")
        if down is None or found != wanted:
            problems.append(f"{name}: file, revision and down_revision are {found}; here they must be {wanted}")
    return problems


def main() -> int:
    """Print each migration out of order. Returns 1 where there is one, else 0."""
    problems = problems_of({path.name: path.read_text("utf-8") for path in _VERSIONS.glob("*.py")})
    for problem in problems:
        print(f"migrations: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
