"""Which kind of work a description asks for, by its words. Pure; a model's judgement is not needed for a default."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nova_workers.base.vocabulary import TASK_CATEGORIES, Complexity, TaskCategory

__all__ = ["Classification", "classify", "usual_complexity"]

_WORDS: Final[Mapping[TaskCategory, str]] = {
    "architecture": "architect* design* structure* modular* scalab* microservice* schema* interface* decompos*",
    "complex-reasoning": "prove proof theorem deriv* reason* algorithm* complex* analy* optimi* deadlock* race* "
    "concurren* trade-off* root-cause* mathematic*",
    "coding": "implement* code* coding function* bug* fix* refactor* compil* class* method* endpoint* unit-test* "
    "test* feature* migrat* python typescript rust sql api patch* debug*",
    "code-review": "review* critique* audit* diff pull-request* pr lint* vulnerab* feedback approv*",
    "planning": "plan* roadmap* milestone* strateg* prioriti* estimat* schedule* break-down sequence* backlog*",
    "tool-use": "tool* command* script* shell bash browser* click* mcp call* invoke* install* deploy* run",
    "exploration": "explor* look* inspect* understand* trace* map* survey* investigat* discover* where",
    "simple-tasks": "rename* format* typo* list* count* copy* sort* trivial* simple* quick* move* convert*",
    "agentic": "agent* autonom* orchestrat* delegat* end-to-end multi-step coordinat* workflow* iterat*",
    "search": "search* find* grep* locat* lookup* look-up web google quer* retrieval* retrieve* source*",
    "documentation": "document* docs readme changelog* tutorial* comment* docstring* guide* explain* summariz*",
}
_HEAVY: Final = 2
"""Weight of a category's first words, which name it; the others weigh 1."""
_NAMING: Final = 3

_USUAL: Final[Mapping[TaskCategory, Complexity]] = {
    "architecture": "expert",
    "complex-reasoning": "expert",
    "coding": "complex",
    "code-review": "complex",
    "planning": "complex",
    "tool-use": "medium",
    "exploration": "medium",
    "simple-tasks": "simple",
    "general": "medium",
    "agentic": "complex",
    "search": "simple",
    "documentation": "medium",
}


@dataclass(frozen=True, slots=True)
class Classification:
    """A kind of work, and the words that say so."""

    category: TaskCategory
    words: tuple[str, ...] = ()


def classify(task_description: str) -> Classification:
    """Return the kind of work whose words occur most; ``general`` if none do.

    Each word counts once, in any case. Of two kinds with the same weight the first of `TaskCategory` is taken.
    """
    text = f" {' '.join(re.findall(r'[a-z0-9]+', task_description.lower()))} "
    best: tuple[int, TaskCategory, tuple[str, ...]] = (0, "general", ())
    for category in TASK_CATEGORIES:
        found = [
            (weight, match[0].strip()) for weight, word in _PATTERNS.get(category, ()) if (match := word.search(text))
        ]
        total = sum(weight for weight, _ in found)
        if total > best[0]:
            best = (total, category, tuple(word for _, word in found))
    return Classification(best[1], best[2])


def usual_complexity(category: TaskCategory) -> Complexity:
    """Return how hard a kind of work usually is."""
    return _USUAL[category]


def _pattern(word: str) -> re.Pattern[str]:
    plain = re.escape(word.rstrip("*").replace("-", " "))
    return re.compile(rf" {plain}{'[a-z]*' if word.endswith('*') else ''}(?= )")


_PATTERNS: Final[Mapping[TaskCategory, tuple[tuple[int, re.Pattern[str]], ...]]] = {
    category: tuple((_HEAVY if at < _NAMING else 1, _pattern(word)) for at, word in enumerate(words.split()))
    for category, words in _WORDS.items()
}
