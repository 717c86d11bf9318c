"""The threat model of docs/security.md: its actors and its walls."""

import re
from dataclasses import dataclass

from tests.support.data.documents import ROOT


@dataclass(frozen=True, slots=True)
class Wall:
    """A row: what an actor could try, and what stands in the way.

    Attributes:
        promises: Ids of `tests/requirements.py`; none where there is no wall.
    """

    actor: str
    attempt: str
    what: str
    promises: tuple[str, ...]


def actors() -> dict[str, str]:
    """Return what each actor reaches."""
    return dict(row for row in _tables()[0])


def walls() -> list[Wall]:
    """Return the rows of the second table."""
    return [
        Wall(actor, attempt, what, tuple(re.findall(r"`([^`]+)`", proofs)))
        for actor, attempt, what, proofs in _tables()[1]
    ]


def _tables() -> list[list[list[str]]]:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    section = text.partition("\n## Threat model\n")[2].partition("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    return [[[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]] for table in tables]
