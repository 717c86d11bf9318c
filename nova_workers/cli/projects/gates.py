"""Evaluates agents before their changes are applied: those that a project's `evaluations.yaml` names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, StrictBool

from nova_workers.base.errors import Conflict
from nova_workers.cli.command import Session, build
from nova_workers.cli.evaluations.evals import ended_evaluation
from nova_workers.cli.evaluations.reports import summary_of
from nova_workers.contracts.bodies import Body
from nova_workers.contracts.evaluators import Evaluator
from nova_workers.contracts.http.datasets import DatasetName, Tags, Word
from nova_workers.contracts.http.evaluations import MAX_EVALUATORS, MAX_REPEATS, EvaluationStart, ToolReplay
from nova_workers.contracts.http.projects import ProjectPlan, ProjectStep
from nova_workers.contracts.http.wire import AgentPatch

EVALUATIONS: Final = "evaluations.yaml"


class AgentGate(Body):
    """What a change of an agent must pass before it is applied."""

    dataset: DatasetName
    threshold: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    """The part of the verdicts that must be passed. What is not judged is not passed."""
    evaluators: Annotated[tuple[Evaluator, ...], Field(min_length=1, max_length=MAX_EVALUATORS)]
    compare: StrictBool = False
    """Whether the version of the fleet answers, too, to be shown beside."""
    split: Word | None = None
    tags: Tags = ()
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1
    tools: ToolReplay = ToolReplay()
    budget_usd: Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)] | None = None


@dataclass(frozen=True, slots=True)
class HeldBack:
    """An agent whose change is not applied, and why."""

    agent: str
    why: str


def gated_steps(plan: ProjectPlan, gates: Mapping[str, AgentGate]) -> list[ProjectStep]:
    """Return the steps of a plan that are evaluated before they are applied.

    Raises:
        Conflict: An agent is renamed and changed at once: there is no version of it to evaluate.
    """
    agents = [step for step in plan.steps if step.kind == "agent" and step.name in gates]
    renamed = next((step.name for step in agents if step.action == "rename" and step.fields), None)
    if renamed is not None:
        raise Conflict(
            f"The agent {renamed!r} is renamed and changed at once, and {EVALUATIONS} names it. Apply its new name "
            "first, and its changes then."
        )
    return [step for step in agents if step.action == "update"]


def describe_gates(plan: ProjectPlan, gates: Mapping[str, AgentGate]) -> Iterator[str]:
    """Yield a line for each agent that is evaluated, or is new and cannot be."""
    for step in gated_steps(plan, gates):
        gate = gates[step.name]
        yield f"{step.name} is evaluated over {gate.dataset}, and applied if it passes {gate.threshold:.1%}."
    for step in plan.steps:
        if step.kind == "agent" and step.name in gates and step.action == "create":
            yield f"{step.name} is new, and made without an evaluation."


async def evaluate_changes(
    session: Session, plan: ProjectPlan, gates: Mapping[str, AgentGate], *, keeps_drift: bool
) -> list[HeldBack]:
    """Let the changed agents answer their datasets, and return those that do not pass.

    Args:
        session: Of the command.
        plan: What would be applied.
        gates: By agent.
        keeps_drift: Whether fields that were changed on the fleet stay as they are there.
    """
    started = [(step, await _start(session, step, gates[step.name], keeps_drift)) for step in gated_steps(plan, gates)]
    held: list[HeldBack] = []
    for step, evaluation_id in started:
        session.out.note(f"{step.name}: evaluation {evaluation_id}")
        evaluation = await ended_evaluation(session, evaluation_id)
        text = summary_of(evaluation)
        session.out.note(f"{step.name}: {text}")
        passes = evaluation.result is not None and evaluation.result.meets_threshold is True
        if evaluation.status != "done" or not passes:
            held.append(HeldBack(step.name, f"{text} See nova evals show {evaluation_id}"))
    return held


async def _start(session: Session, step: ProjectStep, gate: AgentGate, keeps_drift: bool) -> str:
    changed = {each.field: each.after for each in step.fields if not (keeps_drift and each.drifted)}
    current = (await session.client.agents.get(step.name)).version
    saved = await session.client.agents.save_version(step.name, build(AgentPatch, changed))
    start = EvaluationStart(
        agent=step.name,
        version=saved.version,
        against=current if gate.compare else None,
        **gate.model_dump(exclude={"compare", "evaluators", "tools"}),
        evaluators=gate.evaluators,
        tools=gate.tools,
    )
    started = await session.client.evaluations.start(start)
    assert started.id is not None  # noqa: S101 - it is no dry run
    return started.id


def refusal_of(held: Sequence[HeldBack]) -> str:
    """Return the text for people on agents that were held back."""
    return "\n".join(f"{each.agent} was not applied: {each.why}" for each in held)
