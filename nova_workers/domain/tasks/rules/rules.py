"""The rules for changes of a task, the same for people and for agents. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from nova_workers.base.errors import Conflict, Forbidden, IllegalTransition, InvalidInput
from nova_workers.base.ids import new_id
from nova_workers.contracts.http.tasks import StepInput, StepView, TaskStatus, TaskView
from nova_workers.domain.tasks.sql.plan import PlannedStep

LEGAL_MOVES: Mapping[TaskStatus, frozenset[TaskStatus]] = MappingProxyType(
    {
        "draft": frozenset({"active", "canceled"}),
        "active": frozenset({"done", "canceled"}),
        "done": frozenset(),
        "canceled": frozenset(),
    }
)
"""By status, the statuses that may follow."""


@dataclass(frozen=True, slots=True)
class TaskActor:
    """The author of a change: an agent in a run, or a person."""

    agent_id: str | None = None
    """None is a person."""
    run_id: str | None = None
    thread_id: str | None = None
    """The thread of the run."""
    may_instruct: Collection[str] | None = None
    """The other agents to which the agent may give work; None is all."""

    @property
    def name(self) -> str:
        """The author's name in the history."""
        return "person" if self.agent_id is None else self.agent_id


PERSON = TaskActor()
"""A caller of the API, which has checked the key's scope."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes of a task's steps.

    Attributes:
        written: New and changed steps.
        dropped: Ids of removed steps.
        details: The change for the history.
    """

    written: tuple[PlannedStep, ...]
    dropped: tuple[str, ...]
    details: Mapping[str, Any]

    @property
    def changes(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.written or self.dropped)


def check_move(task_id: int, from_status: TaskStatus, to_status: TaskStatus) -> None:
    """Refuse an illegal transition.

    Raises:
        IllegalTransition: Names both statuses, and those that may follow.
    """
    legal = LEGAL_MOVES[from_status]
    if to_status not in legal:
        can = f"It can become {' or '.join(sorted(legal))}." if legal else f"A task that is {from_status} stays so."
        raise IllegalTransition(
            f"Task {task_id} cannot go from {from_status!r} to {to_status!r}. {can}",
            task_id=task_id,
            from_status=from_status,
            to_status=to_status,
        )


def check_open(task: TaskView) -> None:
    """Refuse to change a task that has ended.

    Raises:
        IllegalTransition: It is done or canceled.
    """
    if not LEGAL_MOVES[task.status]:
        raise IllegalTransition(
            f"Task {task.id} is {task.status!r} and no longer changes. Make a new task for what is left to do.",
            task_id=task.id,
            from_status=task.status,
        )


def check_may_change(actor: TaskActor, task: TaskView, owners_above: Collection[str]) -> None:
    """Refuse an agent that has no part in a task. A person may change all of them.

    Args:
        actor: The author of the change.
        task: The task to change.
        owners_above: Owners of the tasks that this one is a subtask of, at any depth.

    Raises:
        Forbidden: The agent neither owns the task, nor created it, nor owns a task above it.
    """
    # An agent may have the id "person", and did not create what people created.
    makers = {task.created_by} - {PERSON.name}
    if actor.agent_id is not None and actor.agent_id not in {task.owner_agent_id, *makers, *owners_above}:
        raise Forbidden(
            f"Task {task.id} belongs to agent {task.owner_agent_id!r}. You may read it; you did not make it, and it is "
            "no part of a task of yours. Ask its owner.",
            task_id=task.id,
        )


def check_may_instruct(actor: TaskActor, owner: str) -> None:
    """Refuse an agent that would give work to one that it may not ask: what a task says, its owner does.

    Raises:
        Forbidden: Its grant of `agents` does not cover the owner.
    """
    if actor.agent_id in {None, owner} or actor.may_instruct is None or owner in actor.may_instruct:
        return
    raise Forbidden(
        f"owner_agent_id: you may not give work to agent {owner!r}, since you may not ask it: a person grants that "
        "with the capability `agents` and its `may_ask`. Own the task yourself, or ask a person to assign it.",
        field="owner_agent_id",
        agent_id=owner,
    )


def check_revision(task: TaskView, known: int | None) -> None:
    """Refuse a change that was made from an old view.

    Raises:
        Conflict: The task has changed since.
    """
    if known is not None and known != task.revision:
        raise Conflict(
            f"Task {task.id} has changed: it is at revision {task.revision}, and the change was made from revision "
            f"{known}. Read it again.",
            task_id=task.id,
            revision=task.revision,
        )


def make_plan(task_id: int, present: Sequence[StepView], given: Iterable[StepInput]) -> Plan:
    """Return the changes from the present steps to the given ones.

    A step given with its id stays the same step, and keeps the fields that are not given. A step's link to a subtask
    is not part of a plan: it is never set, removed or overwritten, and a step with one follows its subtask.

    Raises:
        InvalidInput: An id is not one of this task's steps, or occurs twice.
        IllegalTransition: A step with a subtask would be removed, or marked differently from it.
    """
    there = {step.id: step for step in present}
    place = {step.id: position for position, step in enumerate(present)}
    planned = [_plan_step(task_id, there, position, step) for position, step in enumerate(given)]
    kept = {step.id for step in planned}
    if len(kept) < len(planned):
        twice = next(step for at, step in enumerate(planned) if step.id in {other.id for other in planned[:at]})
        field = f"steps.{twice.position}.id"
        raise InvalidInput(f"{field}: step {twice.id!r} is given twice; a step has one place.", field=field)
    dropped = tuple(step for step in present if step.id not in kept)
    for step in dropped:
        _check_free(task_id, step)
    written = tuple(step for step in planned if step.id not in there or _differs(step, there[step.id], place[step.id]))
    return Plan(written, tuple(step.id for step in dropped), _changes_of(there, written, dropped))


def _plan_step(task_id: int, there: Mapping[str, StepView], position: int, given: StepInput) -> PlannedStep:
    if given.id is None:
        return PlannedStep(new_id("tst"), position, given.title, given.details or "", given.done or False)
    step = there.get(given.id)
    if step is None:
        field = f"steps.{position}.id"
        raise InvalidInput(
            f"{field}: task {task_id} has no step {given.id!r}. Leave the id out of a new step.", field=field
        )
    if step.subtask is not None and given.done is not None and given.done != step.done:
        raise IllegalTransition(
            f"Step {step.id!r} of task {task_id} is done by subtask {step.subtask.id}, which is "
            f"{step.subtask.status!r}: the step follows it. Complete or cancel the subtask.",
            field=f"steps.{position}.done",
            task_id=task_id,
            subtask_id=step.subtask.id,
        )
    details = step.details if given.details is None else given.details
    return PlannedStep(step.id, position, given.title, details, step.done if given.done is None else given.done)


def _check_free(task_id: int, step: StepView) -> None:
    if step.subtask is not None:
        raise IllegalTransition(
            f"Step {step.id!r} ({step.title!r}) of task {task_id} has subtask {step.subtask.id} and cannot be dropped. "
            "Keep the step by its id, or cancel the subtask first.",
            field="steps",
            task_id=task_id,
            subtask_id=step.subtask.id,
        )


def _differs(new: PlannedStep, old: StepView, position: int) -> bool:
    return (new.position, new.title, new.details, new.done) != (position, old.title, old.details, old.done)


def _changes_of(
    there: Mapping[str, StepView], written: Sequence[PlannedStep], dropped: Sequence[StepView]
) -> dict[str, Any]:
    """Return the changes only: a plan may have 200 steps, and each change is kept for ever."""
    changed: list[dict[str, Any]] = []
    for step in written:
        old = there.get(step.id)
        if old is not None:
            pairs: dict[str, tuple[object, object]] = {
                "title": (old.title, step.title),
                "details": (old.details, step.details),
                "done": (old.done, step.done),
            }
            fields = {name: {"from": was, "to": now} for name, (was, now) in pairs.items() if was != now}
            changed.append({"id": step.id, "position": step.position, **fields})
    added = [
        {"id": step.id, "position": step.position, "title": step.title, "details": step.details, "done": step.done}
        for step in written
        if step.id not in there
    ]
    removed = [{"id": step.id, "title": step.title, "details": step.details, "done": step.done} for step in dropped]
    details = {"added": added, "changed": changed, "removed": removed}
    return {name: steps for name, steps in details.items() if steps}
