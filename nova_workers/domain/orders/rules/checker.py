"""Makes the result that leaves the fleet, and checks it: `customerSafe` is true because this check passed. Pure.

What a customer may not see: internal stop reasons, costs by model and provider, and in artifacts what
`checking.leaks` finds. Such an artifact is left out, and without any artifact the order needs a person.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nova_workers.base.vocabulary import WorkStatus
from nova_workers.contracts.orders import (
    AiArtifactV1,
    AiWorkResultV1,
    CostBreakdown,
    ExecutionMeta,
    OrderProblem,
    PolicyDocument,
    ResultExtensions,
    StopReasonV1,
    SwarmMeta,
    customer_stop,
    status_of,
)
from nova_workers.domain.orders.rules.checking.leaks import LeakCheck


@dataclass(frozen=True, slots=True)
class ResultDraft:
    """What the fleet knows about the end, or the present state, of an order.

    Attributes:
        trace_id: The order's id.
        stop_reason: The internal one.
        artifacts: Proposals to show, the best first.
        alternatives: Proposals to show beside them.
        in_review: Whether a person is to decide: the result is `in_progress` with `needs_human`.
        needs_human: Whether a person is still needed; None follows from the stop reason.
        message: For the customer; None follows from the stop reason.
        swarm: What the swarm did, if there was one.
        meta: Figures of the execution.
        cost_breakdown: For internal readers only.
    """

    trace_id: str
    stop_reason: StopReasonV1
    artifacts: Sequence[AiArtifactV1] = ()
    alternatives: Sequence[AiArtifactV1] = ()
    in_review: bool = False
    needs_human: bool | None = None
    message: str | None = None
    swarm: SwarmMeta | None = None
    meta: ExecutionMeta | None = None
    cost_breakdown: CostBreakdown | None = None


@dataclass(frozen=True, slots=True)
class CheckedResult:
    """A result that passed, and what had to be left out of it, without its content."""

    result: AiWorkResultV1
    left_out: Sequence[OrderProblem] = field(default_factory=list[OrderProblem])


def check_result(
    draft: ResultDraft, policy: PolicyDocument, check: LeakCheck | None = None, *, internal: bool = False
) -> CheckedResult:
    """Return the result of an order as a customer may see it.

    Args:
        draft: What is known.
        policy: The order's policy; it may hide models, figures and the swarm.
        check: Of the order; without one, of the policy alone.
        internal: Whether the reader may see the cost by model and provider, and what the policy hides.
    """
    check = LeakCheck(policy) if check is None else check
    artifacts, problems = split_safe(draft.artifacts, check)
    alternatives, more = split_safe(draft.alternatives, check, place="extensions.alternatives")
    reason = draft.stop_reason
    if reason == "ok" and draft.artifacts and not artifacts:
        # Nothing of what was made may be shown: to the customer this is the same as an answer of the wrong form.
        reason = "ajv_failed"
    stop, message = customer_stop(reason)
    status: WorkStatus = "in_progress" if draft.in_review else status_of(stop)
    needs_human = (stop == "needs_human") if draft.needs_human is None else draft.needs_human
    result = AiWorkResultV1(
        version="v1",
        status=status,
        stop_reason="needs_human" if draft.in_review else stop,
        needs_human=needs_human or draft.in_review,
        trace_id=draft.trace_id,
        artifacts=artifacts,
        customer_safe=True,
        extensions=ResultExtensions(
            swarm=_swarm(draft.swarm, policy, internal=internal),
            alternatives=alternatives or None,
            cost_breakdown=draft.cost_breakdown if internal else None,
            meta=_meta(draft.meta, policy, internal=internal),
            message=draft.message or message,
        ),
    )
    return CheckedResult(result, [*problems, *more])


def split_safe(
    artifacts: Sequence[AiArtifactV1], check: LeakCheck, *, place: str = "artifacts"
) -> tuple[list[AiArtifactV1], list[OrderProblem]]:
    """Return the artifacts that a customer may see, and what is wrong with the others: the kind, never the value."""
    kept: list[AiArtifactV1] = []
    problems: list[OrderProblem] = []
    for index, artifact in enumerate(artifacts):
        rules = check.rules_of(artifact)
        problems += [OrderProblem(path=f"{place}.{index}", rule=rule) for rule in rules]
        if not rules:
            kept.append(artifact)
    return kept, problems


def invalid_result(trace_id: str, problems: Sequence[OrderProblem]) -> AiWorkResultV1:
    """Return the result of an order that was refused: the fields that are wrong, without their content."""
    return AiWorkResultV1(
        version="v1",
        status="failed",
        stop_reason="invalid_request",
        needs_human=False,
        trace_id=trace_id,
        artifacts=[],
        customer_safe=True,
        extensions=ResultExtensions(problems=list(problems)),
    )


def _swarm(swarm: SwarmMeta | None, policy: PolicyDocument, *, internal: bool) -> SwarmMeta | None:
    if swarm is None or not (internal or policy.visibility.swarm):
        return None
    shows_models = internal or policy.visibility.models
    specialists = [
        each.model_copy(
            update={
                "stop_reason": customer_stop(each.stop_reason).stop_reason,
                "model": each.model if shows_models else None,
            }
        )
        for each in swarm.specialists
    ]
    general = swarm.field_general_model if shows_models else None
    return swarm.model_copy(update={"specialists": specialists, "field_general_model": general})


def _meta(meta: ExecutionMeta | None, policy: PolicyDocument, *, internal: bool) -> ExecutionMeta | None:
    if meta is None or not (internal or policy.visibility.figures):
        return None
    return meta if internal or policy.visibility.models else meta.model_copy(update={"models": []})
