"""What was learned about models counts as much as there is of it."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from nova_workers.domain.orchestrations.rules.models.capability import ModelCapability, infer_capability
from nova_workers.domain.orchestrations.rules.models.choice import ModelSelector
from nova_workers.domain.orchestrations.rules.models.rankings import (
    MIN_SAMPLES,
    PRIOR_SAMPLES,
    Rankings,
    canonical_model,
)
from nova_workers.domain.orchestrations.rules.models.registry import ModelRegistry
from nova_workers.domain.orchestrations.sql.rankings import Ranking

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A, B = infer_capability("a-strong", "claude", "strong"), infer_capability("b-strong", "codex", "strong")


def ranked(model: str, score: float, samples: int) -> Ranking:
    return Ranking("coding", model, samples, score, None, None, score, NOW)


def test_ids_of_usage_are_those_of_the_registry() -> None:
    assert canonical_model("codex/gpt-6-sol") == "gpt-6-sol"
    assert canonical_model("claude-haiku-4-5-20251001") == "claude-haiku-4-5"
    assert canonical_model("gpt-6-sol-2026-08-01") == "gpt-6-sol"


def test_too_few_runs_teach_nothing() -> None:
    few = Rankings([ranked("a-strong", 0.0, MIN_SAMPLES - 1)])
    assert few.score(A, "coding") == A.affinity("coding")
    assert few.get(A, "coding") is not None


def test_affinity_and_experience_have_equal_weight_at_as_many_runs() -> None:
    learned = Rankings([ranked("x/a-strong", 0.0, PRIOR_SAMPLES)])
    assert learned.score(A, "coding") == A.affinity("coding") / 2
    assert learned.score(A, "planning") == A.affinity("planning"), "another kind of work"


@given(st.floats(0, 1), st.integers(MIN_SAMPLES, 10_000))
def test_a_score_lies_between_affinity_and_experience(score: float, samples: int) -> None:
    affinity = A.affinity("coding")
    found = Rankings([ranked("a-strong", score, samples)]).score(A, "coding")
    assert min(score, affinity) - 1e-9 <= found <= max(score, affinity) + 1e-9


def test_a_model_that_failed_often_gives_way_to_one_of_its_tier() -> None:
    registry = ModelRegistry([A, B])
    before = ModelSelector(registry).choose("coding", "complex")
    after: ModelCapability = ModelSelector(registry, score=Rankings([ranked(before.model_id, 0.1, 50)]).score).choose(
        "coding", "complex"
    )
    assert after != before
