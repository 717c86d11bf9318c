"""What an order does next: a pure function of its policy and of the parts that have ended."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from nova_workers.contracts.orders import PolicyDocument
from nova_workers.domain.orders.rules.stages import End, EndedPart, Next, decide, jobs_of, rank
from tests.support.harness.orders import policy

_OUTCOMES = ("ok", "ok", "ok", "provider_failed", "ajv_failed", "rate_limited")
_ROLES = st.fixed_dictionaries(
    {"craft": st.just("craft")},
    optional={
        "second": st.just("craft"),
        "critic": st.just("review"),
        "compliance": st.just("review"),
        "general": st.just("general"),
    },
)


def _play(document: PolicyDocument, draw: st.DataObject, max_rounds: int) -> tuple[End, list[EndedPart]]:
    """Play an order to its end, with outcomes of parts that hypothesis chooses."""
    parts: list[EndedPart] = []
    ids = count()
    following: Next | End = Next("craft", 1, jobs_of(document, "craft"))
    while isinstance(following, Next):
        for job in following.jobs:
            reason = draw.draw(st.sampled_from(_OUTCOMES))
            parts.append(
                EndedPart(
                    f"part {next(ids)}",
                    job.kind,
                    following.round,
                    job.position,
                    reason,
                    draw.draw(st.none() | st.floats(0, 1)) if reason == "ok" else None,
                    draw.draw(st.booleans()) if job.kind == "review" and reason == "ok" else None,
                    draw.draw(st.integers(0, 3)) if job.kind == "review" and reason == "ok" else None,
                )
            )
        following = decide(document, parts, stage=following.stage, round=following.round, max_rounds=max_rounds)
    return following, parts


@given(roles=_ROLES, max_rounds=st.integers(1, 6), draw=st.data())
def test_every_order_ends_within_its_rounds_and_with_the_proposals_it_has(
    roles: dict[str, str], max_rounds: int, draw: st.DataObject
) -> None:
    document = policy(roles)
    end, parts = _play(document, draw, max_rounds)
    assert max(part.round for part in parts) <= max_rounds
    assert len({(part.round, part.kind, part.position) for part in parts}) == len(parts)
    proposed = [part for part in parts if part.kind != "review" and part.succeeded]
    assert bool(end.ranking) == bool(proposed)
    assert end.ranking == rank(parts)
    if end.stop_reason == "ok":
        reviews = [part for part in parts if part.kind == "review" and part.round == parts[-1].round]
        assert all(part.approved for part in reviews)
        assert end.ranking


def _part(kind: str, number: int, **fields: object) -> EndedPart:
    values = {"id": f"{kind}{number}", "round": 1, "position": number, "stop_reason": "ok", **fields}
    return EndedPart(kind=kind, **values)  # type: ignore[arg-type]  # the words of the vocabulary


def test_the_proposal_that_most_reviews_call_the_best_is_first_then_the_most_confident() -> None:
    parts = [
        _part("craft", 0, confidence=0.5),
        _part("craft", 1, confidence=0.9),
        _part("craft", 2, confidence=0.7),
        _part("review", 0, best=2),
    ]
    assert [each.part.id for each in rank(parts)] == ["craft2", "craft1", "craft0"]


def test_a_review_that_failed_has_not_approved_anything() -> None:
    document = policy({"craft": "craft", "critic": "review"})
    parts = [_part("craft", 0, confidence=0.9), _part("review", 0, stop_reason="provider_failed")]
    assert decide(document, parts, stage="review", round=1, max_rounds=1) == End("round_cap_exceeded", rank(parts))


def test_the_final_proposal_of_the_general_comes_before_all_others() -> None:
    parts = [_part("craft", 0, confidence=1.0), _part("general", 0, confidence=0.1)]
    assert [each.part.id for each in rank(parts)] == ["general0", "craft0"]
