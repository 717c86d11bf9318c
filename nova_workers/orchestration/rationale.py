"""Why an agent changed a file: the text before the change that gives a reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from nova_workers.contracts.orchestration import HistoryEntry, Rationale

__all__ = ["CHANGING_TOOLS", "LOOK_BACK", "extract_rationale", "file_changes", "score"]

LOOK_BACK: Final = 10
"""How many entries before a tool call may give its reason."""
CHANGING_TOOLS: Final = frozenset({"Write", "Edit"})
"""Tools that change the file in their parameter `file_path`."""

_SCORES: Final[Mapping[str, int]] = {
    "fix": 3,
    "bug": 3,
    "because": 3,
    "prevent": 3,
    "resolve": 3,
    "improve": 2,
    "refactor": 2,
    "add": 2,
    "implement": 2,
    "avoid": 2,
    "ensure": 2,
    "need": 2,
    "so that": 2,
    "update": 1,
    "change": 1,
    "should": 1,
    "replace": 1,
    "remove": 1,
    "support": 1,
    "handle": 1,
}
"""Words that give a reason. Each counts once in a text, with its endings: ``fixes``, ``fixed``, ``improving``."""
_WORDS: Final = {
    word: re.compile(rf"\b{word.removesuffix('e')}(?:e|es|ed|ing|s|{word[-1]}ed|{word[-1]}ing)?\b", re.IGNORECASE)
    for word in _SCORES
}
_MAX_CHARS: Final = 2_000


def score(text: str) -> int:
    """Return how much a text gives a reason; 0 if no word of it does."""
    return sum(points for word, points in _SCORES.items() if _WORDS[word].search(text))


def extract_rationale(entries: Sequence[HistoryEntry], at: int) -> str | None:
    """Return why an agent made a tool call; None if nothing before it gives a reason.

    Args:
        entries: The agent's history, oldest first.
        at: The position of the call.

    Returns:
        Of the texts and thoughts among the `LOOK_BACK` entries before the call, the one with the highest score; of
        equal ones the nearest to the call.
    """
    best, found = 0, None
    for entry in reversed(entries[max(0, at - LOOK_BACK) : at]):
        if entry.type in ("TEXT", "THINKING"):
            points = score(entry.text)
            if points > best:
                best, found = points, entry.text.strip()
    return None if found is None else found[:_MAX_CHARS]


def file_changes(entries: Sequence[HistoryEntry]) -> list[Rationale]:
    """Return the changes of files in a history, oldest first, each with its rationale. Failed calls are left out."""
    failed = {entry.call_id for entry in entries if entry.type == "TOOL_RESULT" and entry.failed}
    return [
        Rationale(entry.call_id, entry.tool_name, str(entry.params["file_path"]), extract_rationale(entries, at))
        for at, entry in enumerate(entries)
        if entry.type == "TOOL_CALL"
        and entry.call_id is not None
        and entry.call_id not in failed
        and entry.tool_name in CHANGING_TOOLS
        and entry.params is not None
        and "file_path" in entry.params
    ]
