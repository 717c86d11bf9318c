"""What is known of a model, if only its id; and which kind of work a description asks for. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ConfigDict

from nova_workers.base.errors import InvalidInput
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.base.vocabulary import COMPLEXITIES, MODEL_TIERS, TASK_CATEGORIES, Complexity, ModelTier, TaskCategory
from nova_workers.domain.orchestrations.rules.config.values import ModelOverride


class ModelCapability(TrueNumbers):
    """A model as the choice sees it.

    Attributes:
        affinities: How good it is for each kind of work, from 0 to 1, before anything is learned.
        cost_factor: Cost in relation to the usual model, which is 1.
        speed_factor: Speed in relation to the usual model, which is 1.
        max_context_window: In tokens; None is unknown.
        source: Whether an installed library lists the model, or only the configuration.
        enabled: Whether the choice may take it.
        given: Kinds of work whose affinity a person set.
    """

    model_config = ConfigDict(frozen=True)

    model_id: str
    provider: str
    tier: ModelTier
    affinities: Mapping[TaskCategory, float]
    cost_factor: float
    speed_factor: float
    max_context_window: int | None = None
    source: Literal["installed", "configured"] = "configured"
    enabled: bool = True
    given: frozenset[TaskCategory] = frozenset()

    def affinity(self, category: TaskCategory) -> float:
        """Return the score for a kind of work; 0.5 where nothing is known."""
        return self.affinities.get(category, 0.5)

    def overridden(self, override: ModelOverride) -> "ModelCapability":
        """Return the model with what a configuration says. Affinities that it leaves out stay."""
        given = override.model_dump(include=override.model_fields_set - {"affinities"}, exclude_none=True)
        if "tier" in given and given["tier"] != self.tier and self.source == "configured":
            # Everything else was inferred from a wrong tier.
            inferred = infer_capability(self.model_id, self.provider, given["tier"])
            return inferred.overridden(override.model_copy(update={"tier": None}))
        # An entry that discovery wrote repeats what is inferred.
        changed = {kind for kind, score in override.affinities.items() if score != self.affinities.get(kind)}
        affinities = {**self.affinities, **override.affinities}
        return self.model_copy(update={**given, "affinities": affinities, "given": self.given | changed})


_TIER_WORDS: Final[Mapping[ModelTier, str]] = {
    "economy": r"nano|lite|micro|tiny|luna|\d{1,2}b",
    "fast": "haiku|mini|small|flash|highspeed|turbo|fast|instant|air|spark",
    "frontier": "opus|fable|mythos|pro|max|ultra|astra|argon|sol",
    "strong": "sonnet|codex|plus|large|medium|terra|minimax-m",
}
"""Words of ids, in the order of precedence: ``gemini-3.5-flash-lite`` is an economy model, ``gpt-5.4-pro`` a frontier
one."""
_TIERS: Final[Mapping[ModelTier, re.Pattern[str]]] = {
    tier: re.compile(rf"(?:^|[-._/:])(?:{words})(?=$|[-._/:\d])", re.IGNORECASE) for tier, words in _TIER_WORDS.items()
}

_SCORES: Final[Mapping[ModelTier, tuple[float, ...]]] = {
    "frontier": (0.95, 0.95, 0.91, 0.91, 0.93, 0.88, 0.74, 0.60, 0.85, 0.93, 0.70, 0.80),
    "strong": (0.80, 0.80, 0.88, 0.86, 0.82, 0.87, 0.80, 0.72, 0.82, 0.86, 0.78, 0.84),
    "fast": (0.50, 0.50, 0.65, 0.60, 0.55, 0.72, 0.85, 0.86, 0.70, 0.62, 0.86, 0.76),
    "economy": (0.30, 0.30, 0.45, 0.40, 0.35, 0.55, 0.72, 0.88, 0.55, 0.42, 0.78, 0.60),
}
"""Affinities of a tier, in the order of `TaskCategory`. Models of one tier are ranked by price, age and experience."""

_COST: Final[Mapping[ModelTier, float]] = {"frontier": 2.0, "strong": 1.0, "fast": 0.3, "economy": 0.1}
_SPEED: Final[Mapping[ModelTier, float]] = {"frontier": 0.6, "strong": 1.0, "fast": 2.0, "economy": 3.0}
_CODEX = re.compile(r"(?:^|[-._])codex(?:$|[-._])", re.IGNORECASE)
_CODEX_BONUS: Final[Mapping[TaskCategory, float]] = {"coding": 0.03, "code-review": 0.03, "tool-use": 0.02}
_NUMBER = re.compile(r"\d+")
_DATE_DIGITS = 4
"""A number of an id with as many digits is a date or a year, and no version."""

_TIER_OF: Final[Mapping[str, ModelTier]] = {
    **dict(zip(COMPLEXITIES, MODEL_TIERS, strict=True)),
    **{tier: tier for tier in MODEL_TIERS},
}


def required_tier(complexity: str) -> ModelTier:
    """Return the lowest tier that suffices for a piece of work.

    Args:
        complexity: ``simple``, ``medium``, ``complex`` or ``expert``; or the word of a tier itself, in any case.

    Raises:
        InvalidInput: It is another word.
    """
    found = _TIER_OF.get(complexity.strip().lower())
    if found is None:
        levels: tuple[Complexity, ...] = COMPLEXITIES
        raise InvalidInput(
            f"complexity is {complexity!r}; it is one of {', '.join(levels)}, or a tier: {', '.join(MODEL_TIERS)}.",
            field="complexity",
        )
    return found


def tier_rank(tier: ModelTier) -> int:
    """Return the place of a tier, from 0 for the cheapest."""
    return MODEL_TIERS.index(tier)


def infer_tier(model_id: str, default: ModelTier = "strong") -> ModelTier:
    """Return the tier that the words of an id suggest."""
    for tier, words in _TIERS.items():
        if words.search(model_id):
            return tier
    return default


def version_of(model_id: str) -> tuple[int, ...]:
    """Return the numbers of an id, such as (5, 5) of ``claude-sonnet-5-5``; dates are left out."""
    return tuple(int(number) for number in _NUMBER.findall(model_id) if len(number) < _DATE_DIGITS)


def infer_capability(model_id: str, provider: str, tier: ModelTier | None = None) -> ModelCapability:
    """Return the capability of a model that its id alone suggests.

    Args:
        model_id: The provider's id.
        provider: Who has it.
        tier: If it is known.
    """
    tier = tier or infer_tier(model_id)
    bonus = _CODEX_BONUS if _CODEX.search(model_id) else {}
    affinities: dict[TaskCategory, float] = {
        category: round(min(score + bonus.get(category, 0.0), 1.0), 4)
        for category, score in zip(TASK_CATEGORIES, _SCORES[tier], strict=True)
    }
    return ModelCapability(
        model_id=model_id,
        provider=provider,
        tier=tier,
        affinities=affinities,
        cost_factor=_COST[tier],
        speed_factor=_SPEED[tier],
    )


_CATEGORY_WORDS: Final[Mapping[TaskCategory, str]] = {
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
    for category, words in _CATEGORY_WORDS.items()
}
