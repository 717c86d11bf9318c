"""Scores of models: what was learned, and affinities where too little was. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from nova_workers.ledger.orchestrations.rankings import Ranking
from nova_workers.orchestration.models.capability import ModelCapability
from nova_workers.vocabulary import TaskCategory

__all__ = ["MIN_SAMPLES", "PRIOR_SAMPLES", "Rankings", "canonical_model"]

MIN_SAMPLES: Final = 5
"""Runs of a model in a kind of work below which nothing is learned: one failure of two says nothing."""
PRIOR_SAMPLES: Final = 10
"""How many runs an affinity counts as. With as many samples, experience and affinity have equal weight."""

_DATE = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")


def canonical_model(model: str) -> str:
    """Return a model's id as the registry has it, from what usage names: ``codex/gpt-6-sol``, a dated snapshot."""
    return _DATE.sub("", model.rpartition("/")[2])


class Rankings:
    """The rankings of one tenant."""

    def __init__(self, rankings: Iterable[Ranking] = ()) -> None:
        """Take the rankings. Of two that are of one model the one with more samples counts."""
        self._by_model: dict[tuple[str, TaskCategory], Ranking] = {}
        for ranking in sorted(rankings, key=lambda each: (each.samples, each.model)):
            self._by_model[canonical_model(ranking.model), ranking.category] = ranking

    def get(self, model: ModelCapability, category: TaskCategory) -> Ranking | None:
        """Return what was learned about a model in a kind of work, however little."""
        return self._by_model.get((canonical_model(model.model_id), category))

    def score(self, model: ModelCapability, category: TaskCategory) -> float:
        """Return how good a model is for a kind of work, from 0 to 1.

        With fewer than `MIN_SAMPLES` it is the affinity; with more, the learned score shrunk towards the affinity.
        """
        affinity, learned = model.affinity(category), self.get(model, category)
        if learned is None or learned.samples < MIN_SAMPLES:
            return affinity
        weight = learned.samples / (learned.samples + PRIOR_SAMPLES)
        return weight * learned.score + (1 - weight) * affinity
