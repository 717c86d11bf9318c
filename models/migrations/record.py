"""What each migration does to tables that a database has before it, as `record.json` beside this file has it.

The file is measured: a test migrates an empty database, looks at the locks and the catalog at each commit, and compares.
`python -m tests.support.data.migration_record` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

RECORD = Path(__file__).with_name("record.json")

Lock = Literal["none", "writes", "all"]
"""Which statements of others wait: none, those that write, or all."""

Work = Literal["rewritten", "checked", "indexed", "index dropped", "updated", "checked beside", "indexed beside"]
"""What takes longer the more rows there are: the table is written again, its rows are read for a constraint or for an
index, an index is dropped under its lock, or rows of it are changed; the last two while others read and write."""


@dataclass(frozen=True)
class Touch:
    """What one migration does to one table.

    Attributes:
        lock: The strongest lock that it holds.
        work: Empty: it takes a moment, however many rows there are.
    """

    lock: Lock
    work: tuple[Work, ...] = ()


@dataclass(frozen=True)
class Step:
    """One migration.

    Attributes:
        revision: Such as ``0042``.
        title: One sentence.
        tables: What it does to each table that was there before.
    """

    revision: str
    title: str
    tables: Mapping[str, Touch]


def read_record(after: str | None = None) -> list[Step]:
    """Return the migrations after a revision, in their order; all of them for None."""
    return [
        Step(
            revision,
            step["title"],
            {table: Touch(touch["lock"], tuple(touch["work"])) for table, touch in step["tables"].items()},
        )
        for revision, step in json.loads(RECORD.read_text("utf-8")).items()
        if after is None or revision > after
    ]
