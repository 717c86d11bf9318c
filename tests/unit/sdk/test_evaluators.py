"""Evaluators in Python: what may be declared as one, and what it may say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from nova_workers.base.errors import ConfigurationError, ToolFailure
from nova_workers.sdk import JudgedAnswer, Judgement, evaluator
from nova_workers.sdk.evaluators import as_evaluator, judgement_of


@pytest.mark.parametrize(
    ("said", "judgement"),
    [
        (True, Judgement(score=1, passed=True)),
        (False, Judgement(score=0, passed=False)),
        (1, Judgement(score=1)),
        (0.25, Judgement(score=0.25)),
        (Judgement(score=0.5, reason="So so."), Judgement(score=0.5, reason="So so.")),
    ],
)
def test_an_evaluator_says_a_judgement_a_bool_or_a_number(said: Any, judgement: Judgement) -> None:
    assert judgement_of(said) == judgement


@pytest.mark.parametrize("said", [None, "0.5", 1.5, -1, float("nan"), {"score": 1}, (1, "good")])
def test_anything_else_is_no_judgement(said: Any) -> None:
    with pytest.raises(ToolFailure, match=re.escape(f"It returned {said!r}")):
        judgement_of(said)


def _no_answer() -> bool:
    """Judge nothing."""
    return True


def _two(answer: JudgedAnswer, more: int) -> bool:
    """Judge with more."""
    return bool(answer.answer) and bool(more)


def _silent(answer: JudgedAnswer) -> bool:
    return bool(answer.answer)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (_no_answer, r"its parameters are \(\) -> .*; expected \(answer: JudgedAnswer\)"),
        (_two, r"expected \(answer: JudgedAnswer\)"),
        (_silent, "it has no docstring"),
    ],
)
def test_a_function_that_cannot_judge_is_refused_with_its_place(function: Callable[..., Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"test_evaluators\.py:\d+: the evaluator '_\w+': .*{problem}"):
        as_evaluator(evaluator(function))


def test_a_time_limit_is_bounded() -> None:
    with pytest.raises(ConfigurationError, match="timeout_s is 60; expected seconds, at most 30"):
        evaluator(timeout_s=60)(_silent)
