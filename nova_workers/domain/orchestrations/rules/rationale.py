"""Why an agent changed a file: the text before the change that gives a reason. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from nova_workers.contracts.orchestration import HistoryEntry, Rationale

LOOK_BACK: Final = 10
"""How many entries before a tool call may give its reason."""

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


def extract_rationale(entries: Sequence[HistoryEntry], at: int) -> Rationale | None:
    """Return why an agent made a tool call; None if nothing before it gives a reason.

    Args:
        entries: The agent's history, oldest first.
        at: The position of the call.

    Returns:
        Of the texts and thoughts among the `LOOK_BACK` entries before the call, the one with the highest score; of
        equal ones the nearest to the call.
    """
    best: Rationale | None = None
    for entry in reversed(entries[max(0, at - LOOK_BACK) : at]):
        if entry.type in ("TEXT", "THINKING"):
            points = score(entry.text)
            if points > (0 if best is None else best.score):
                best = Rationale(entry.text.strip()[:_MAX_CHARS], points)
    return best
