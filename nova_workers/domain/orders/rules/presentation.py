"""Makes artifacts and alternatives of an order's proposals. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nova_workers.base.vocabulary import PresentationMode
from nova_workers.contracts.orders import AiArtifactV1, PolicyDocument, artifact_of


@dataclass(frozen=True, slots=True)
class Proposal:
    """A payload that fits its kind, with what is known of its quality.

    Attributes:
        payload: Parsed JSON.
        confidence: From 0 to 1; 0 if it has none.
        approvals: Reviews that approve it.
        final: Whether the field general made it: it comes before all others.
    """

    payload: Mapping[str, Any]
    confidence: float = 0.0
    approvals: int = 0
    final: bool = False


class Presented(NamedTuple):
    """The artifacts of a result, and the alternatives beside them."""

    artifacts: list[AiArtifactV1]
    alternatives: list[AiArtifactV1]


def rank(proposals: Iterable[Proposal]) -> list[Proposal]:
    """Return different proposals, the best first: the final one, then by approvals, confidence and position."""
    ordered = sorted(proposals, key=lambda each: (each.final, each.approvals, each.confidence), reverse=True)
    different: dict[str, Proposal] = {}
    for proposal in ordered:
        different.setdefault(json.dumps(proposal.payload, sort_keys=True), proposal)
    return list(different.values())


def artifacts_of(proposals: Iterable[Proposal], policy: PolicyDocument) -> list[AiArtifactV1]:
    """Return the artifacts of different proposals, the best first."""
    return [artifact_of(policy.produces, proposal.payload) for proposal in rank(proposals)]


def present(ranked: Sequence[AiArtifactV1], policy: PolicyDocument, mode: PresentationMode) -> Presented:
    """Return the artifacts as a result shows them; they are in their order."""
    artifacts = list(ranked[: 1 + policy.presentation.max_alternatives])
    match mode:
        case "single_best":
            return Presented(artifacts[:1], [])
        case "side_by_side":
            return Presented(artifacts[:1], artifacts[1:])
        case "ranked":
            return Presented(artifacts, [])
