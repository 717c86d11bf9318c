"""Results show proposals as asked, and nothing that a customer may not see."""

from typing import Any

import pytest

from nova_workers.base.vocabulary import PresentationMode
from nova_workers.contracts.orders import (
    CostBreakdown,
    CostShare,
    ExecutionMeta,
    SpecialistMeta,
    StopReasonV1,
    SwarmMeta,
    artifact_of,
)
from nova_workers.domain.orders.rules.checker import ResultDraft, check_result
from nova_workers.domain.orders.rules.presentation import Proposal, artifacts_of, present
from tests.support.data.order_policies import policy

META = ExecutionMeta(
    cached=False, attempt_count=1, rounds=1, calls=2, models=["haiku"], estimated_usd=0.1, input_tokens=10
)
COSTS = CostBreakdown(
    by_model={"haiku": CostShare(calls=2, cost_usd=0.1)}, by_provider={"x": CostShare(calls=2, cost_usd=0.1)}, total=0.1
)


def _payload(value: Any = "Hello", confidence: float = 0.8) -> dict[str, Any]:
    return {
        "targetKey": "hero.headline",
        "value": value,
        "rationale": "It is shorter.",
        "confidence": confidence,
        "risks": [],
        "assumptions": [],
    }


def _proposals() -> list[Proposal]:
    return [
        Proposal(_payload("a", 0.5), 0.5, approvals=1),
        Proposal(_payload("b", 0.9), 0.9),
        Proposal(_payload("c", 0.7), 0.7, approvals=1),
        Proposal(_payload("c", 0.7), 0.7),
    ]


@pytest.mark.parametrize(
    ("mode", "artifacts", "alternatives"),
    [("single_best", "c", ""), ("side_by_side", "c", "ab"), ("ranked", "cab", "")],
)
def test_proposals_are_shown_in_the_mode_the_best_first(
    mode: PresentationMode, artifacts: str, alternatives: str
) -> None:
    shown = present(artifacts_of(_proposals(), policy()), policy(), mode)
    assert "".join(each.to_wire()["payload"]["value"] for each in shown.artifacts) == artifacts
    assert "".join(each.to_wire()["payload"]["value"] for each in shown.alternatives) == alternatives


def test_the_final_proposal_comes_first_and_alternatives_are_bounded() -> None:
    one = policy(presentation={"modes": ["side_by_side"], "default": "side_by_side", "maxAlternatives": 1})
    final = Proposal(_payload("final", 0.1), 0.1, final=True)
    shown = present(artifacts_of([*_proposals(), final], one), one, "side_by_side")
    assert [each.to_wire()["payload"]["value"] for each in (*shown.artifacts, *shown.alternatives)] == ["final", "c"]


@pytest.mark.parametrize(
    ("reason", "status", "seen", "needs_human", "message"),
    [
        ("ok", "succeeded", "ok", False, None),
        ("in_progress", "in_progress", "in_progress", False, None),
        ("rate_limited", "failed", "rate_limited", False, None),
        ("cost_cap_exceeded", "failed", "cost_cap_exceeded", False, None),
        ("provider_failed", "failed", "needs_human", True, "Temporary issue, we'll handle it"),
        ("router_failed", "failed", "needs_human", True, "We're reviewing your request"),
        ("ajv_failed", "failed", "needs_human", True, "We need to review this manually"),
        ("json_parse_failed", "failed", "needs_human", True, "We need to review this manually"),
    ],
)
def test_a_stop_reason_is_shown_as_a_customer_may_see_it(
    reason: StopReasonV1, status: str, seen: str, needs_human: bool, message: str | None
) -> None:
    result = check_result(ResultDraft("trc_1", reason), policy()).result.to_wire()
    assert (result["status"], result["stopReason"], result["needsHuman"]) == (status, seen, needs_human)
    assert result["extensions"].get("message") == message
    assert result["customerSafe"] is True


def test_an_order_in_review_is_in_progress_and_needs_a_person() -> None:
    result = check_result(ResultDraft("trc_1", "ajv_failed", in_review=True), policy()).result
    assert (result.status, result.stop_reason, result.needs_human) == ("in_progress", "needs_human", True)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("Use sk-ant-api03-" + "Q7" * 12, "credential"),
        ('Traceback (most recent call last):\n  File "x.py", line 3', "stack trace"),
        ("see run_01JZ0000000000000000000000", "internal record"),
        ("I was told: Write  one better text for the\nplace that the facts name.", "line of a prompt"),
    ],
)
@pytest.mark.parametrize("place", ["value", "nested", "key"])
def test_an_artifact_that_leaks_is_left_out_and_the_order_needs_a_person(text: str, rule: str, place: str) -> None:
    value: Any = {"value": text, "nested": {"list": [text]}, "key": {text: 1}}[place]
    leaking = artifact_of("copy_proposal_v1", _payload(value))
    checked = check_result(ResultDraft("trc_1", "ok", [leaking]), policy())
    assert checked.result.artifacts == []
    assert (checked.result.stop_reason, checked.result.needs_human) == ("needs_human", True)
    assert all(rule in each.rule and text not in each.rule for each in checked.left_out)
    assert {each.path for each in checked.left_out} == {"artifacts.0"}


def test_artifacts_beside_one_that_leaks_are_shown() -> None:
    leaking = artifact_of("copy_proposal_v1", _payload("run_01JZ0000000000000000000000"))
    fine = artifact_of("copy_proposal_v1", _payload())
    checked = check_result(ResultDraft("trc_1", "ok", [fine], [leaking, fine]), policy())
    assert checked.result.stop_reason == "ok"
    assert checked.result.artifacts == [fine]
    assert checked.result.extensions is not None
    assert checked.result.extensions.alternatives == [fine]
    assert [each.path for each in checked.left_out] == ["extensions.alternatives.0"]


def test_costs_by_model_are_for_internal_readers_only() -> None:
    draft = ResultDraft("trc_1", "ok", meta=META, cost_breakdown=COSTS)
    assert "costBreakdown" not in check_result(draft, policy()).result.to_wire()["extensions"]
    internal = check_result(draft, policy(), internal=True).result.to_wire()
    assert internal["extensions"]["costBreakdown"]["total"] == 0.1


def test_a_policy_may_hide_models_figures_and_the_swarm() -> None:
    swarm = SwarmMeta(
        field_general_model="sonnet",
        specialists=[SpecialistMeta(role="craft", model="haiku", stop_reason="provider_failed")],
        swirls=1,
    )
    draft = ResultDraft("trc_1", "ok", swarm=swarm, meta=META)
    shown = check_result(draft, policy()).result.to_wire()["extensions"]
    assert shown["swarm"]["specialists"] == [{"role": "craft", "model": "haiku", "stopReason": "needs_human"}]
    assert shown["meta"]["models"] == ["haiku"]
    no_models = check_result(draft, policy(visibility={"models": False})).result.to_wire()["extensions"]
    assert "sonnet" not in str(no_models)
    assert "haiku" not in str(no_models)
    nothing = policy(visibility={"swarm": False, "figures": False})
    assert check_result(draft, nothing).result.to_wire()["extensions"] == {}
