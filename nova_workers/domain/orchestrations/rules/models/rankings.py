"""Scores of models: what the ledger taught; and where that is too little, what a judge said, or affinities."""

import re
from collections.abc import Iterable
from typing import Final

import structlog

from nova_workers.base.config import OrchestrationSettings
from nova_workers.base.vocabulary import RankingSource, TaskCategory
from nova_workers.domain.orchestrations.rules.models.capability import ModelCapability
from nova_workers.domain.orchestrations.sql.judgements import ModelScores
from nova_workers.domain.orchestrations.sql.rankings import Ranking, refresh_rankings
from nova_workers.ledger.database import Database

MIN_SAMPLES: Final = 5
"""Runs of a model in a kind of work below which nothing is learned: one failure of two says nothing."""
PRIOR_SAMPLES: Final = 10
"""How many runs an affinity or a judgement counts as. With as many samples, experience has equal weight."""

_DATE = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")


def canonical_model(model: str) -> str:
    """Return a model's id as the registry has it, from what usage names: ``codex/gpt-6-sol``, a dated snapshot."""
    return _DATE.sub("", model.rpartition("/")[2])


class Rankings:
    """The rankings of one tenant."""

    def __init__(self, rankings: Iterable[Ranking] = (), judged: ModelScores | None = None) -> None:
        """Take the rankings, of two that are of one model the one with more samples; and what the judge said."""
        self._judged = judged or {}
        self._by_model: dict[tuple[str, TaskCategory], Ranking] = {}
        for ranking in sorted(rankings, key=lambda each: (each.samples, each.model)):
            self._by_model[canonical_model(ranking.model), ranking.category] = ranking

    def get(self, model: ModelCapability, category: TaskCategory) -> Ranking | None:
        """Return the ranking of a model in a kind of work, however little it is based on."""
        return self._by_model.get((canonical_model(model.model_id), category))

    def score(self, model: ModelCapability, category: TaskCategory) -> float:
        """Return how good a model is for a kind of work, from 0 to 1.

        With fewer than `MIN_SAMPLES` it is the judgement or the affinity; with more, the learned score shrunk towards
        that.
        """
        return self.score_of(model, category)[0]

    def score_of(self, model: ModelCapability, category: TaskCategory) -> tuple[float, RankingSource]:
        """Return the score, and what it is from."""
        judged, learned = self.judged(model, category), self.get(model, category)
        prior = model.affinity(category) if judged is None else judged
        if learned is None or learned.samples < MIN_SAMPLES:
            return prior, "static" if judged is None else "judgement"
        weight = learned.samples / (learned.samples + PRIOR_SAMPLES)
        return weight * learned.score + (1 - weight) * prior, "ledger"

    def judged(self, model: ModelCapability, category: TaskCategory) -> float | None:
        """Return the judge's score; None if it gave none, or a person set the affinity."""
        return None if category in model.given else self._judged.get(model.model_id, {}).get(category)


_log = structlog.get_logger(__name__)


class RankingRefresher:
    """Computes rankings of models again when they are old. Any number of instances may tick."""

    def __init__(self, database: Database, settings: OrchestrationSettings) -> None:
        self._database = database
        self._settings = settings

    async def tick(self) -> int:
        """Compute the rankings that are old again, and return how many were written.

        Raises:
            Unavailable: The database cannot be reached; the next tick tries again.
        """
        async with self._database.transaction() as connection:
            written = await refresh_rankings(
                connection, fresh_s=self._settings.rankings_every_s, days=self._settings.rankings_days
            )
        if written:
            _log.info("model_rankings.refreshed", rankings=written)
        return written
