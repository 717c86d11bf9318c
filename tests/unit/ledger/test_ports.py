"""What follows a commit is done in one place: its order is code there, and no rule that others repeat."""

from __future__ import annotations

import re
from pathlib import Path

import nova_workers

_CALLS = re.compile(r"\b_?(?:dispatcher|notifier)\.(?:ring|announce|apply|notify)_\w+\(")

_OWN = {
    "work.py": "does what follows commits",
    "suspects.py": "passes doorbells on",
    "recover.py": "rings for effects whose doorbells may be lost",
    "worker.py": "rings for the next batch",
}


def test_only_units_of_work_call_the_ports_of_what_follows_a_commit() -> None:
    files = [path for folder in nova_workers.__path__ for path in Path(folder).rglob("*.py")]
    assert {path.name for path in files if _CALLS.search(path.read_text())} == set(_OWN)
