"""The outcome of an order: its results as they are stored, one for each mode of presentation, and its figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nova_workers.base.vocabulary import WorkStopReason
from nova_workers.contracts.orders import (
    AiWorkResultV1,
    CostBreakdown,
    CostShare,
    ExecutionMeta,
    OrderProblem,
    ResultExtensions,
    SpecialistMeta,
    SwarmMeta,
    customer_stop,
    status_of,
)
from nova_workers.domain.orders.rules.checker import ResultDraft, check_result, split_safe
from nova_workers.domain.orders.rules.checking.leaks import LeakCheck
from nova_workers.domain.orders.rules.content import OrderContent
from nova_workers.domain.orders.rules.presentation import Proposal, artifacts_of, present
from nova_workers.domain.orders.sql.records import PartRow


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is known of an order at its end, or when a person has to decide.

    Attributes:
        stop_reason: The internal one. It is not the given one if no artifact passed the check.
        needs_human: Whether a person is needed, as the result says.
        results: For customers, by mode of presentation, as parsed JSON.
        internal: Extensions for internal readers, as parsed JSON.
        left_out: What did not pass the check, without its content.
    """

    stop_reason: WorkStopReason
    needs_human: bool
    results: dict[str, dict[str, Any]]
    internal: dict[str, Any]
    left_out: Sequence[OrderProblem]

    def stored(self) -> dict[str, Any]:
        """Return it as the ledger stores it."""
        return {"results": self.results, "internal": self.internal}


def outcome_of(  # noqa: PLR0917 - the parts of an outcome
    order_id: str,
    content: OrderContent,
    parts: Sequence[PartRow],
    proposals: Sequence[Proposal],
    stop_reason: WorkStopReason,
    check: LeakCheck,
    *,
    in_review: bool = False,
    needs_human: bool | None = None,
    message: str | None = None,
) -> Outcome:
    """Return the outcome of an order.

    Args:
        content: The order and its policy.
        proposals: The proposals that the result shows.
        stop_reason: The internal reason.
        check: What the customer may not see; it has read the proposals.
        in_review: Whether a person is to decide.
        needs_human: Whether a person is still needed; None follows from the reason.
        message: For the customer; None follows from the reason.
    """
    policy = content.policy
    meta, swarm, costs = figures_of(content, parts)
    results: dict[str, dict[str, Any]] = {}
    ranked = artifacts_of(proposals, policy)
    # Before the choice of what is shown: in place of an artifact that may not be shown, the next best one is.
    safe, left_out = split_safe(ranked, check)
    # If nothing of what was made may be shown, that is to the customer the same as an answer of the wrong form.
    reason: WorkStopReason = "ajv_failed" if stop_reason == "ok" and not safe else stop_reason
    needs = False
    for mode in policy.presentation.modes:
        shown = present(safe, policy, mode)
        draft = ResultDraft(
            trace_id=order_id,
            stop_reason=reason,
            artifacts=shown.artifacts,
            alternatives=shown.alternatives,
            in_review=in_review,
            needs_human=needs_human,
            message=message,
            swarm=swarm,
            meta=meta,
        )
        result = check_result(draft, policy, check).result
        results[mode] = result.to_wire()
        if mode == policy.presentation.default:
            needs = result.needs_human
    internal = {
        "costBreakdown": costs.to_wire(),
        "meta": meta.to_wire(),
        **({} if swarm is None else {"swarm": swarm.to_wire()}),
    }
    return Outcome(reason, needs, results, internal, left_out)


def result_without_outcome(
    order_id: str, stop_reason: WorkStopReason, *, needs_human: bool, message: str | None = None
) -> AiWorkResultV1:
    """Return the result of an order of which nothing else is known than why it ended.

    `message` is for the customer; None follows from the reason.
    """
    stop, usual = customer_stop(stop_reason)
    message = message or usual
    return AiWorkResultV1(
        version="v1",
        status=status_of(stop),
        stop_reason=stop,
        needs_human=needs_human,
        trace_id=order_id,
        artifacts=[],
        customer_safe=True,
        extensions=None if message is None else ResultExtensions(message=message),
    )


def figures_of(
    content: OrderContent, parts: Sequence[PartRow]
) -> tuple[ExecutionMeta, SwarmMeta | None, CostBreakdown]:
    """Return the figures of an order: of its execution, of its swarm if its policy has one, and of its cost."""
    policy = content.policy
    called = [part for part in parts if part.calls]
    meta = ExecutionMeta(
        cached=False,
        attempt_count=max((part.attempts for part in parts), default=0),
        rounds=max((part.round for part in parts), default=0),
        calls=sum(part.calls for part in parts),
        models=list(dict.fromkeys(part.model for part in called if part.model is not None)),
        estimated_usd=sum(part.used_usd for part in parts),
        input_tokens=sum(_input_tokens(part) for part in parts),
        output_tokens=sum(int(part.usage.get("output_tokens", 0)) for part in parts),
    )
    swarm = None
    if policy.general is not None or policy.roles_of("review"):
        swarm = SwarmMeta(
            field_general_model=next((part.model for part in called if part.kind == "general"), None),
            specialists=[
                SpecialistMeta(
                    role=part.role,
                    model=part.model,
                    stop_reason=part.stop_reason or "in_progress",
                    confidence=part.confidence,
                )
                for part in _latest(parts)
            ],
            swirls=meta.rounds,
        )
    return meta, swarm, _costs(called)


def _latest(parts: Sequence[PartRow]) -> list[PartRow]:
    """Return the last part of each specialist."""
    latest: dict[tuple[str, int], PartRow] = {}
    for part in parts:
        if part.kind != "general":
            latest[part.kind, part.position] = part
    return list(latest.values())


def _input_tokens(part: PartRow) -> int:
    return sum(int(part.usage.get(name, 0)) for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens"))


def _costs(parts: Sequence[PartRow]) -> CostBreakdown:
    models: defaultdict[str, list[PartRow]] = defaultdict(list)
    providers: defaultdict[str, list[PartRow]] = defaultdict(list)
    for part in parts:
        models[part.model or "unknown"].append(part)
        providers[part.provider or "unknown"].append(part)
    return CostBreakdown(
        by_model={name: _share(of) for name, of in models.items()},
        by_provider={name: _share(of) for name, of in providers.items()},
        total=sum(part.used_usd for part in parts),
    )


def _share(parts: Sequence[PartRow]) -> CostShare:
    return CostShare(calls=sum(part.calls for part in parts), cost_usd=sum(part.used_usd for part in parts))
