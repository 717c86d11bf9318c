"""What an order does next, as a function of its policy and of the parts that have ended. Pure.

A round (swirl) crafts proposals, then reviews them. If the policy is satisfied, the general makes the final proposal
from both, or the best proposal is final; otherwise the next round starts, with the critiques, up to the cap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from nova_workers.base.vocabulary import RoleKind, WorkStopReason
from nova_workers.contracts.orders import PolicyDocument

_CAPS: Final[Sequence[WorkStopReason]] = ("cost_cap_exceeded", "round_cap_exceeded")
_BY_WEIGHT: Final[Sequence[WorkStopReason]] = (
    *_CAPS,
    "rate_limited",
    "router_failed",
    "provider_failed",
    "ajv_failed",
    "json_parse_failed",
    "needs_human",
)
"""Of parts that failed in different ways, the first of these is the order's reason."""


@dataclass(frozen=True, slots=True)
class Job:
    """A part to add: one model job."""

    kind: RoleKind
    role: str
    position: int


@dataclass(frozen=True, slots=True)
class EndedPart:
    """A part that has ended.

    Attributes:
        id: Of the part.
        confidence: Of a proposal or a review.
        approved: Of a review: whether the best proposal may be returned.
        best: Of a review: the index of the best proposal among those of its round.
    """

    id: str
    kind: RoleKind
    round: int
    position: int
    stop_reason: WorkStopReason
    confidence: float | None = None
    approved: bool | None = None
    best: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it has an answer."""
        return self.stop_reason == "ok"


class Ranked(NamedTuple):
    """A part with a proposal, and how many reviews call it the best."""

    part: EndedPart
    votes: int = 0


@dataclass(frozen=True, slots=True)
class Next:
    """The next stage, with its parts."""

    stage: RoleKind
    round: int
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class End:
    """The end: why, and the parts whose proposals are the result, best first."""

    stop_reason: WorkStopReason
    ranking: tuple[Ranked, ...]


def jobs_of(policy: PolicyDocument, kind: RoleKind) -> tuple[Job, ...]:
    """Return the parts of a stage."""
    names = [role.name for role in policy.roles_of(kind) for _ in range(role.candidates)]
    return tuple(Job(kind, name, position) for position, name in enumerate(names))


def decide(
    policy: PolicyDocument, parts: Sequence[EndedPart], *, stage: RoleKind, round: int, max_rounds: int
) -> Next | End:
    """Return the next stage after one all of whose parts have ended.

    Args:
        parts: All parts of the order, in the order of their creation.
        stage: The stage that has ended.
        round: Its round, from 1.
        max_rounds: The cap of rounds.
    """
    present = [part for part in parts if part.round == round and part.kind == stage]
    ranking = rank(parts)
    capped = [part for part in present if part.stop_reason in _CAPS]
    if stage == "general":
        # Without its proposal, the best one of the round that satisfied the policy is the result.
        return End(_reason(capped) if capped else "ok", ranking)
    if stage == "craft" and not any(part.succeeded for part in present):
        return End(_reason(present), ranking)
    if stage == "craft" and (reviews := jobs_of(policy, "review")):
        return Next("review", round, reviews)
    if stage == "review" and capped:
        return End(_reason(capped), ranking)
    return _after_round(policy, parts, ranking, round=round, max_rounds=max_rounds)


def _after_round(
    policy: PolicyDocument, parts: Sequence[EndedPart], ranking: tuple[Ranked, ...], *, round: int, max_rounds: int
) -> Next | End:
    reviews = [part for part in parts if part.round == round and part.kind == "review"]
    if _is_satisfied(policy, ranking[0].part, reviews):
        general = jobs_of(policy, "general")
        return Next("general", round, general) if general else End("ok", ranking)
    if round >= max_rounds:
        return End("round_cap_exceeded", ranking)
    return Next("craft", round + 1, jobs_of(policy, "craft"))


def rank(parts: Sequence[EndedPart]) -> tuple[Ranked, ...]:
    """Return the parts with proposals, best first: the general's, then those of the last round that has any.

    Within the round those that most reviews call the best are first, then those with more confidence.
    """
    proposals = [part for part in parts if part.kind != "review" and part.succeeded]
    latest = max((part.round for part in proposals), default=0)
    crafted = [part for part in proposals if part.kind == "craft" and part.round == latest]
    crafted.sort(key=lambda part: part.position)
    votes = [0] * len(crafted)
    for review in parts:
        if review.kind == "review" and review.round == latest and review.succeeded and review.best is not None:
            if review.best < len(crafted):
                votes[review.best] += 1
    ranked = [Ranked(part, count) for part, count in zip(crafted, votes, strict=True)]
    ranked.sort(key=lambda each: (-each.votes, -(each.part.confidence or 0.0), each.part.position))
    return (*(Ranked(part) for part in proposals if part.kind == "general"), *ranked)


def _is_satisfied(policy: PolicyDocument, best: EndedPart, reviews: Sequence[EndedPart]) -> bool:
    """Return whether the policy accepts the best proposal. A review that failed has not approved it."""
    needed = policy.satisfied.min_approvals
    approvals = sum(review.succeeded and bool(review.approved) for review in reviews)
    return approvals >= (len(reviews) if needed is None else needed) and (
        (best.confidence or 0.0) >= policy.satisfied.min_confidence
    )


def _reason(parts: Sequence[EndedPart]) -> WorkStopReason:
    reasons = {part.stop_reason for part in parts}
    for reason in _BY_WEIGHT:
        if reason in reasons:
            return reason
    return "provider_failed"
