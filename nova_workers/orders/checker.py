"""Makes the result that leaves the fleet, and checks it: `customerSafe` is true because this check passed. Pure.

What a customer may not see: internal stop reasons, costs by model and provider, credentials, stack traces, ids of
internal records, and the policy's own prompts. An artifact that contains such a thing is left out, and without any
artifact the order needs a person.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

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
from nova_workers.observability.redaction import redact
from nova_workers.vocabulary import WorkStatus

__all__ = ["CheckedResult", "ResultDraft", "check_result", "invalid_result", "split_safe"]

_PROMPT_LINE_CHARS: Final = 40
"""A line of a prompt with at least this many characters is recognized in an artifact; a shorter one may be chance."""

_TRACES: Final = re.compile(
    r"Traceback \(most recent call last\)"
    r'|File "[^"\n]+", line \d+'
    r"|^\s*at .+\(.+:\d+:\d+\)\s*$"
    r"|\bpanicked at \S+:\d+",
    re.MULTILINE,
)
_INTERNAL_IDS: Final = re.compile(r"\b(?:run|thr|turn|ten|wait|wop|key|oag|orc)_[0-9A-HJKMNP-TV-Z]{26}\b")
_PLACEHOLDER: Final = re.compile(r"\{\{\s*\w*\s*\}\}")


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
    swarm: SwarmMeta | None = None
    meta: ExecutionMeta | None = None
    cost_breakdown: CostBreakdown | None = None


@dataclass(frozen=True, slots=True)
class CheckedResult:
    """A result that passed, and what had to be left out of it, without its content."""

    result: AiWorkResultV1
    left_out: Sequence[OrderProblem] = field(default_factory=list[OrderProblem])


def check_result(draft: ResultDraft, policy: PolicyDocument, *, internal: bool = False) -> CheckedResult:
    """Return the result of an order as a customer may see it.

    Args:
        draft: What is known.
        policy: The order's policy; it may hide models, figures and the swarm.
        internal: Whether the reader may see the cost by model and provider, and what the policy hides.
    """
    prompts = _prompt_lines(policy)
    artifacts, problems = _safe("artifacts", draft.artifacts, prompts)
    alternatives, more = _safe("extensions.alternatives", draft.alternatives, prompts)
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
            message=message,
        ),
    )
    return CheckedResult(result, [*problems, *more])


def split_safe(
    artifacts: Sequence[AiArtifactV1], policy: PolicyDocument
) -> tuple[list[AiArtifactV1], list[OrderProblem]]:
    """Return the artifacts that a customer may see, and what is wrong with the others."""
    return _safe("artifacts", artifacts, _prompt_lines(policy))


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


def _safe(
    path: str, artifacts: Sequence[AiArtifactV1], prompts: frozenset[str]
) -> tuple[list[AiArtifactV1], list[OrderProblem]]:
    kept: list[AiArtifactV1] = []
    problems: list[OrderProblem] = []
    for index, artifact in enumerate(artifacts):
        rules = list(
            dict.fromkeys(rule for text in _texts(artifact.to_wire()) for rule in _broken_rules(text, prompts))
        )
        problems += [OrderProblem(path=f"{path}.{index}", rule=rule) for rule in rules]
        if not rules:
            kept.append(artifact)
    return kept, problems


def _broken_rules(text: str, prompts: frozenset[str]) -> Iterator[str]:
    if redact(text) != text:
        yield "it contains a credential"
    if _TRACES.search(text):
        yield "it contains a stack trace"
    if _INTERNAL_IDS.search(text):
        yield "it contains an id of an internal record"
    flat = " ".join(text.split())
    if any(line in flat for line in prompts):
        yield "it contains a line of a prompt"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _prompt_lines(policy: PolicyDocument) -> frozenset[str]:
    """Return the lines of a policy's prompts, without what is inserted in them."""
    texts = (text for role in policy.roles for text in (role.prompt.system, role.prompt.user))
    return frozenset(line for text in texts for line in _lines(text) if len(line) >= _PROMPT_LINE_CHARS)


def _lines(template: str) -> Iterable[str]:
    return (" ".join(line.split()) for part in _PLACEHOLDER.split(template) for line in part.splitlines())


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
