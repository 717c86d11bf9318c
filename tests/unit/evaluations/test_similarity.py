"""Similarity: how close the answer is to the expected one, by vectors of an embedding model."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from nova_workers.base.errors import ConfigurationError, InvalidInput, NovaError, Unavailable
from nova_workers.contracts.evaluators import Similarity
from nova_workers.domain.evaluations.rules.evaluators import Outcome
from nova_workers.domain.evaluations.rules.verdicts import JudgeAway, Judges, Owner, cosine

_OWNER = Owner("ten_1", "clerk")
_VECTORS = {"yes": [2.0, 0.0], "yep": [0.8, 0.6], "no": [-1.0, 0.0]}


class _Model:
    """An embedding model that knows three words, and refuses others."""

    model = "words"

    def __init__(self, error: NovaError | None = None) -> None:
        self.error = error
        self.calls: list[Sequence[str]] = []

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.calls.append(texts)
        if self.error is not None:
            raise self.error
        if unknown := [text for text in texts if text not in _VECTORS]:
            raise InvalidInput(f"unknown: {unknown[0]}", field="text")
        return [_VECTORS[text] for text in texts]


async def _judge(model: _Model, *answers: str, gives_up: bool = True) -> list[tuple[str, float | None, str]]:
    outcomes = [Outcome("succeeded", answer, expected="yes") for answer in answers]
    judged = await Judges(model).judge(_OWNER, [Similarity(at_least=0.8)], outcomes, gives_up=gives_up)
    return [(verdict.status, verdict.score, verdict.reason) for (verdict,) in judged]


async def test_the_score_is_the_cosine_and_all_answers_are_one_question() -> None:
    model = _Model()
    assert await _judge(model, "yep", "no", "yes") == [
        ("passed", pytest.approx(0.8), "the similarity is 0.800, at least 0.8 is wanted"),
        ("failed", 0.0, "the similarity is 0.000, at least 0.8 is wanted"),
        ("passed", 1.0, "the similarity is 1.000, at least 0.8 is wanted"),
    ]
    assert len(model.calls) == 1


async def test_a_text_that_the_model_refuses_leaves_only_its_answer_not_judged() -> None:
    assert [status for status, _, _ in await _judge(_Model(), "yes", "what", "no")] == [
        "passed",
        "not_judged",
        "failed",
    ]


async def test_a_model_that_is_away_is_asked_again_before_it_is_given_up() -> None:
    away = _Model(Unavailable("away"))
    with pytest.raises(JudgeAway, match="away"):
        await _judge(away, "yes", gives_up=False)
    assert await _judge(away, "yes") == [("not_judged", None, "the embedding model does not answer: away")]
    wrong = await _judge(_Model(ConfigurationError("no such model")), "yes", gives_up=False)
    assert wrong == [("not_judged", None, "the embedding model cannot be asked: no such model")]


def test_a_vector_of_zeros_is_similar_to_nothing() -> None:
    assert cosine([0.0, 0.0], [1.0, 0.0]) == 0
