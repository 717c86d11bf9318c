"""Evaluators: what passes, what fails, what cannot be judged, and which rules are refused when they are written."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from nova_workers.contracts.evaluators import Evaluator, evaluator_adapter
from nova_workers.domain.evaluations.rules.evaluators import Outcome, ToolUse, Verdict
from nova_workers.domain.evaluations.rules.verdicts import Judges, Owner
from tests.requirements import proves

_OWNER = Owner("ten_1", "clerk")
PRICES = '{"items": [{"unit price": 4, "n": 2}], "ok": true, "none": null}'
CALLS = (
    ToolUse("search", {"query": "prices", "limit": 5}),
    ToolUse("read", {"path": "a.md"}),
    ToolUse("read", {"path": "b.md"}),
)


def _outcome(text: str | None = "Paris", **facts: Any) -> Outcome:
    return replace(Outcome("succeeded", text), **facts)


async def _judge(rule: dict[str, Any], outcome: Outcome) -> Verdict:
    ((verdict,),) = await Judges(None).judge(_OWNER, [evaluator_adapter.validate_python(rule)], [outcome])
    return verdict


@pytest.mark.parametrize(
    ("rule", "outcome", "status"),
    [
        ({"kind": "answered"}, _outcome("Paris"), "passed"),
        ({"kind": "answered"}, _outcome(None, output={"city": "Paris"}), "passed"),
        ({"kind": "answered"}, _outcome(" "), "failed"),
        ({"kind": "answered"}, _outcome("Par", status="failed"), "failed"),
        ({"kind": "exact", "expected": "Paris"}, _outcome(" Paris\n"), "passed"),
        ({"kind": "exact", "expected": "paris"}, _outcome("Paris"), "failed"),
        ({"kind": "exact", "expected": "paris", "ignore_case": True}, _outcome("Paris"), "passed"),
        ({"kind": "exact", "expected": "a b", "ignore_spaces": False}, _outcome("a  b"), "failed"),
        ({"kind": "exact"}, _outcome("Paris", expected="Paris"), "passed"),
        ({"kind": "exact"}, _outcome('{"a": 1.0}', expected={"a": 1}), "passed"),
        ({"kind": "exact"}, _outcome('{"a": true}', expected={"a": 1}), "failed"),
        ({"kind": "exact"}, _outcome("Paris"), "not_judged"),
        ({"kind": "contains", "texts": ["par", "IS"]}, _outcome("Paris"), "passed"),
        ({"kind": "contains", "texts": ["par"], "ignore_case": False}, _outcome("Paris"), "failed"),
        ({"kind": "contains", "texts": ["Rome", "Paris"], "which": "any"}, _outcome("Paris"), "passed"),
        ({"kind": "contains", "texts": ["Rome"], "which": "any"}, _outcome("Paris"), "failed"),
        ({"kind": "contains", "texts": ["Rome"], "which": "none"}, _outcome("Paris"), "passed"),
        ({"kind": "contains"}, _outcome("It is Paris.", expected="Paris"), "passed"),
        ({"kind": "contains"}, _outcome("Paris", expected={"a": 1}), "not_judged"),
        ({"kind": "pattern", "pattern": "^P[a-z]+$"}, _outcome("Paris"), "passed"),
        ({"kind": "pattern", "pattern": "\\d"}, _outcome("Paris"), "failed"),
        ({"kind": "pattern", "pattern": "\\d", "occurs": False}, _outcome("Paris"), "passed"),
        ({"kind": "json_schema", "json_schema": {"required": ["ok"]}}, _outcome(f"```json\n{PRICES}\n```"), "passed"),
        ({"kind": "json_schema", "json_schema": {"required": ["no"]}}, _outcome(PRICES), "failed"),
        ({"kind": "json_schema", "json_schema": {"type": "object"}}, _outcome("no JSON"), "failed"),
        ({"kind": "json_schema", "json_schema": {"type": "array"}}, _outcome(None, output=[1]), "passed"),
        ({"kind": "json_path", "path": '$.items[0]["unit price"]', "expected": 4}, _outcome(PRICES), "passed"),
        ({"kind": "json_path", "path": "$.items[1]", "expected": 4}, _outcome(PRICES), "failed"),
        ({"kind": "json_path", "path": "$.ok", "expected": 1}, _outcome(PRICES), "failed"),
        ({"kind": "json_path", "path": "$.none", "expected": None}, _outcome(PRICES), "passed"),
        ({"kind": "json_path", "path": "$.ok"}, _outcome(PRICES, expected=True), "passed"),
        ({"kind": "json_path", "path": "$.ok"}, _outcome(PRICES), "not_judged"),
        ({"kind": "number", "expected": 100, "relative": 0.05}, _outcome("About 104.9 km."), "passed"),
        ({"kind": "number", "expected": 100, "absolute": 4}, _outcome("About 105 km."), "failed"),
        ({"kind": "number", "expected": 1250}, _outcome("It costs 1,250, as always."), "passed"),
        ({"kind": "number", "expected": 0.3}, _outcome(None, output=0.1 + 0.2), "failed"),
        ({"kind": "number", "path": "$.n", "expected": 0.3}, _outcome(None, output={"n": 0.1 + 0.2}), "passed"),
        ({"kind": "number", "path": "$.n", "expected": 7}, _outcome('{"n": "7"}'), "passed"),
        ({"kind": "number", "path": "$.ok", "expected": 1}, _outcome(PRICES), "failed"),
        ({"kind": "number", "expected": 7}, _outcome("none"), "failed"),
        ({"kind": "number", "expected": 7}, _outcome("7 of 9"), "not_judged"),
        ({"kind": "number", "expected": 7}, _outcome("7,5"), "not_judged"),
        ({"kind": "number"}, _outcome("7", expected="seven"), "not_judged"),
        ({"kind": "number"}, _outcome("7", expected="7.0"), "passed"),
        ({"kind": "similarity", "expected": "a"}, _outcome(), "not_judged"),
        ({"kind": "similarity"}, _outcome(), "not_judged"),
        ({"kind": "similarity", "expected": "a"}, _outcome(" \n"), "failed"),
        ({"kind": "similarity", "expected": "a"}, _outcome("a" * 16_001), "not_judged"),
        ({"kind": "latency", "at_most_s": 2}, _outcome(latency_s=2.0), "passed"),
        ({"kind": "latency", "at_most_s": 2}, _outcome(latency_s=2.1), "failed"),
        ({"kind": "latency", "at_most_s": 2}, _outcome(), "not_judged"),
        ({"kind": "cost", "at_most_usd": 0.01}, _outcome(cost_usd=0.0), "passed"),
        ({"kind": "cost", "at_most_usd": 0.01}, _outcome(), "not_judged"),
        ({"kind": "steps", "at_most": 3}, _outcome(steps=4), "failed"),
        ({"kind": "trajectory", "called": [{"tool": "read"}, {"tool": "read"}]}, _outcome(calls=CALLS), "passed"),
        ({"kind": "trajectory", "called": [{"tool": "read"}] * 3}, _outcome(calls=CALLS), "failed"),
        (
            {"kind": "trajectory", "called": [{"tool": "read"}, {"tool": "read", "arguments": {"path": "a.md"}}]},
            _outcome(calls=CALLS),
            "passed",
        ),
        (
            {"kind": "trajectory", "called": [{"tool": "search", "arguments": {"query": "costs"}}]},
            _outcome(calls=CALLS),
            "failed",
        ),
        (
            {"kind": "trajectory", "called": [{"tool": "read"}, {"tool": "search"}], "in_order": True},
            _outcome(calls=CALLS),
            "failed",
        ),
        (
            {"kind": "trajectory", "called": [{"tool": "search"}, {"tool": "read"}], "in_order": True},
            _outcome(calls=CALLS),
            "passed",
        ),
        ({"kind": "trajectory", "not_called": ["send"]}, _outcome(calls=CALLS), "passed"),
        ({"kind": "trajectory", "not_called": ["read"]}, _outcome(calls=CALLS), "failed"),
        ({"kind": "trajectory", "at_most": 2}, _outcome(calls=CALLS), "failed"),
    ],
)
async def test_an_evaluator_judges(rule: dict[str, Any], outcome: Outcome, status: str) -> None:
    verdict = await _judge(rule, outcome)
    assert verdict.status == status, verdict
    assert verdict.reason
    assert (verdict.score is None) == (status == "not_judged")


EVERY = [
    {"kind": "answered"},
    {"kind": "exact"},
    {"kind": "contains", "texts": ["a"], "which": "none"},
    {"kind": "pattern", "pattern": "a", "occurs": False},
    {"kind": "json_schema", "json_schema": {}},
    {"kind": "json_path", "path": "$", "expected": None},
    {"kind": "number", "expected": 1},
    {"kind": "similarity", "expected": "a"},
    {"kind": "python", "function": "shop:polite"},
    {"kind": "latency", "at_most_s": 1},
    {"kind": "cost", "at_most_usd": 1},
    {"kind": "steps", "at_most": 1},
    {"kind": "trajectory", "not_called": ["a"]},
    {"kind": "judge", "rubric": "a", "budget_usd": 1},
]


def test_there_is_one_of_every_kind_here() -> None:
    kinds = {kind.model_fields["kind"].default for kind in get_args(get_args(Evaluator)[0])}
    assert [rule["kind"] for rule in EVERY if rule["kind"] not in kinds] == []
    assert len(kinds) == len(EVERY)


@proves("evaluators.not-judged")
@pytest.mark.parametrize("rule", EVERY, ids=lambda rule: rule["kind"])
async def test_a_canceled_run_is_not_judged_and_a_failed_one_passes_no_rule_on_its_answer(rule: dict[str, Any]) -> None:
    assert (await _judge(rule, Outcome("canceled", "a", output=1, expected="a"))).status == "not_judged"
    failed = await _judge(rule, Outcome("failed", expected="a"))
    if rule["kind"] not in ("steps", "trajectory"):
        assert failed.status != "passed", failed


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100)
@given(st.sampled_from(EVERY), st.text(max_size=200) | st.just(PRICES), JSON, JSON)
async def test_no_answer_makes_an_evaluator_raise(rule: dict[str, Any], text: str, output: Any, expected: Any) -> None:
    verdict = await _judge(rule, _outcome(text, output=output, expected=expected))
    assert (verdict.score is None) == (verdict.status == "not_judged")
    assert verdict.score is None or 0 <= verdict.score <= 1
    assert (verdict.score == 1) == (verdict.status == "passed")


async def test_the_score_is_the_part_that_is_right() -> None:
    texts = {"kind": "contains", "texts": ["Paris", "Rome", "Oslo", "Par"]}
    assert await _judge(texts, _outcome()) == Verdict("failed", 0.5, "'Rome' is missing")
    calls = {"kind": "trajectory", "called": [{"tool": "read"}, {"tool": "send"}], "not_called": ["x"], "at_most": 9}
    assert await _judge(calls, _outcome(calls=CALLS)) == Verdict("failed", 0.75, "no call of 'send'")


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({"kind": "guess"}, ""),
        ({"kind": "pattern", "pattern": "("}, "pattern"),
        ({"kind": "pattern", "pattern": "(a)\\1"}, "pattern"),
        ({"kind": "pattern", "pattern": "(?=a)b"}, "pattern"),
        ({"kind": "json_schema", "json_schema": {"type": "no"}}, "json_schema"),
        ({"kind": "json_schema", "json_schema": {"$ref": "https://example.com/a"}}, "json_schema"),
        ({"kind": "json_path", "path": "items"}, "path"),
        ({"kind": "json_path", "path": "$.items[*]"}, "path"),
        ({"kind": "json_path", "path": "$..price"}, "path"),
        ({"kind": "json_path", "path": "$" + ".a" * 21}, "path"),
        ({"kind": "number", "absolute": -1}, "absolute"),
        ({"kind": "latency", "at_most_s": float("nan")}, "at_most_s"),
        ({"kind": "trajectory"}, ""),
        ({"kind": "trajectory", "called": [{"tool": "a"}], "not_called": ["a"]}, ""),
        ({"kind": "exact", "wanted": "x"}, "wanted"),
        ({"kind": "steps", "at_most": True}, "at_most"),
    ],
)
def test_a_wrong_rule_is_refused_when_it_is_written(rule: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        evaluator_adapter.validate_python(rule)
    places = [error["loc"][1] if len(error["loc"]) > 1 else "" for error in refused.value.errors()]
    assert field in places


@proves("evaluators.bounded")
async def test_hostile_patterns_and_answers_take_bounded_time() -> None:
    began = time.process_time()
    slow = {"kind": "pattern", "pattern": "(a+)+$"}
    assert (await _judge(slow, _outcome("a" * 100_000 + "b"))).status == "failed"
    assert (await _judge(slow, _outcome("a" * 200_001))).status == "not_judged"
    digits = {"kind": "number", "expected": 1}
    assert (await _judge(digits, _outcome("1," * 100_000))).status == "not_judged"
    deep = "[" * 100_000 + "]" * 100_000
    assert (await _judge({"kind": "json_path", "path": "$", "expected": []}, _outcome(deep))).status == "failed"
    nested: list[Any] = []
    for _ in range(5_000):
        nested = [nested]
    same = _outcome(None, output=nested, expected=nested[0])
    assert (await _judge({"kind": "exact"}, same)).status == "not_judged"
    many = _outcome(calls=[ToolUse("read", {"n": number}) for number in range(10_000)])
    rules = {"kind": "trajectory", "called": [{"tool": "read"}] * 50}
    assert (await _judge(rules, many)).status == "passed"
    assert time.process_time() - began < 5
