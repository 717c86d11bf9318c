"""A task as text: for the prompt of a run on its thread, and for results of tools."""

from __future__ import annotations

from nova_workers.contracts.http.tasks import StepView, TaskView
from nova_workers.domain.tasks.sql.records import find_task
from nova_workers.ledger.database import Connection

_SECTION_DETAILS_CHARS = 300
"""The limit of each step that is not done; `task_get` returns the rest. A plan has 200 steps at most."""


async def task_section(connection: Connection, tenant_id: str, task_id: int) -> str:
    """Return a task's section of the prompt, not escaped. Empty without a task."""
    task = await find_task(connection, tenant_id, task_id)
    return "" if task is None else describe_task(task, details_chars=_SECTION_DETAILS_CHARS)


def describe_task(task: TaskView, *, details_chars: int | None = None) -> str:
    """Return a task as text. Pure: the same task gives the same bytes.

    Args:
        task: What to describe.
        details_chars: Most characters of a step's details; steps that are done get none. None gives all details.
    """
    lines = [f"Task {task.id}: {task.title}", f"Status: {task.status}", f"Owner: {task.owner_agent_id}"]
    if task.parent_task_id is not None:
        lines.append(f"Subtask of task {task.parent_task_id}, for its step {task.parent_step_id}")
    if task.outcome is not None:
        lines += ["Outcome:", _indent(task.outcome)]
    if task.description.strip():
        lines += ["Description:", _indent(task.description)]
    if task.steps:
        done = sum(step.done for step in task.steps)
        lines.append(f"Steps ({done} of {len(task.steps)} done):")
        for step in task.steps:
            lines += _step(step, details_chars)
    if task.resources:
        lines.append("Resources:")
        for resource in task.resources:
            named = f" ({resource.title})" if resource.title else ""
            lines.append(f"- {resource.kind} {resource.value}{named} [{resource.id}]")
    return "\n".join(lines)


def _step(step: StepView, details_chars: int | None) -> list[str]:
    lines = [f"- [{'x' if step.done else ' '}] {step.title} [{step.id}]"]
    if step.subtask is not None:
        subtask = step.subtask
        lines.append(f"  Subtask {subtask.id}: {subtask.title} ({subtask.status}, owner {subtask.owner_agent_id})")
    details = step.details.strip()
    if details and details_chars is None:
        lines.append(_indent(details))
    elif details and details_chars is not None and not step.done:
        cut = details if len(details) <= details_chars else f"{details[:details_chars]}… (task_get shows all)"
        lines.append(_indent(cut))
    return lines


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())
