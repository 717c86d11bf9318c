"""Tasks as text: a task with its plan, and its history."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from nova_workers.cli.terminal.output import Facts, Output, short, stamp
from nova_workers.contracts.http.tasks import TaskChangeView, TaskView

_WORDS_CHARS = 60


def show_task(out: Output, task: TaskView) -> None:
    """Write a task with its plan as a checklist."""
    out.record(task, _facts)
    if out.json:
        return
    if task.steps:
        out.text()
        out.text(f"{sum(step.done for step in task.steps)} of {len(task.steps)} steps done", "dim")
    for number, step in enumerate(task.steps, 1):
        out.text(f"{number:3} [{'x' if step.done else ' '}] {step.title}", "green" if step.done else "")
        if step.subtask is not None:
            out.text(f"        task {step.subtask.id}, {step.subtask.status}, {step.subtask.owner_agent_id}", "cyan")
        if step.details:
            out.text(f"        {short(step.details, 200)}", "dim")


def _facts(task: TaskView) -> Facts:
    yield "task", task.id
    yield "title", task.title
    yield "status", task.status
    yield "owner", task.owner_agent_id
    yield "made by", task.created_by
    yield "part of", None if task.parent_task_id is None else f"task {task.parent_task_id}"
    yield "thread", task.thread_id
    yield "worked on in", task.working_run_id
    yield "waiting for", task.waiting_for
    yield "next work", stamp(task.work_at) + (", once that run is over" if task.work_at and task.working_run_id else "")
    yield "parked", f"{task.parked_reason}; `nova tasks run {task.id}` starts it" if task.parked_reason else None
    yield "description", task.description
    yield "outcome", task.outcome
    for resource in task.resources:
        yield resource.kind, _named(resource.value, resource.title)
    yield "created", task.created_at
    yield "ended", task.ended_at


def change_words(change: TaskChangeView) -> str:
    """Return the details of a change as text; empty if its kind has none."""
    details = dict(change.details)
    match change.kind:
        case "created":
            words = _created(details)
        case "updated":
            words = [_field(name, values) for name, values in details.items()]
        case "steps_replaced" | "step_updated":
            words = _steps(details)
        case "resource_added" | "resource_removed":
            words = [_resource(details.get("resource", {}))]
        case _:
            words = [_fact(name, value) for name, value in details.items() if name not in {"step_id", "status"}]
    return "; ".join(word for word in words if word)


def _named(value: str, title: str | None) -> str:
    return f"{value} ({title})" if title else value


def _resource(resource: Mapping[str, Any]) -> str:
    return _named(f"{resource.get('kind')} {resource.get('value')}", resource.get("title"))


def _created(details: Mapping[str, Any]) -> Iterable[str]:
    yield f"{details.get('status', 'draft')}, for {details.get('owner_agent_id', 'no agent')}"
    if steps := details.get("steps"):
        yield f"steps {_titles(steps)}"
    for resource in details.get("resources", ()):
        yield _resource(resource)


def _field(name: str, values: Mapping[str, Any]) -> str:
    label = "owner" if name == "owner_agent_id" else name
    if name == "description":
        # Both values are too long for a line.
        return label
    return f"{label} from {_quoted(values.get('from'))} to {_quoted(values.get('to'))}"


def _steps(details: Mapping[str, Any]) -> Iterable[str]:
    for verb in ("added", "removed"):
        if steps := details.get(verb):
            yield f"{verb} {_titles(steps)}"
    moved: list[str] = []
    for step in details.get("changed", ()):
        number = f"step {step.get('position', 0) + 1}"
        words = list(_changed_step(step))
        moved += [] if words else [number]
        yield from (f"{number} {word}" for word in words)
    if moved:
        yield f"moved to {', '.join(moved)}"


def _changed_step(step: Mapping[str, Any]) -> Iterable[str]:
    if "done" in step:
        yield "done" if step["done"]["to"] else "not done after all"
    if "title" in step:
        yield f"renamed from {_quoted(step['title']['from'])} to {_quoted(step['title']['to'])}"
    if "details" in step:
        yield "has other details"


def _fact(name: str, value: Any) -> str:
    match name, value:
        case "thread_id", str(thread):
            return f"in {thread}"
        case "subtask_id", int(number):
            return f"task {number}"
        case "outcome", str(outcome):
            return short(outcome, 2 * _WORDS_CHARS)
        case "canceled_with", int(number):
            return f"with task {number}"
        case "canceled_with_it", list(numbers):
            return f"with it tasks {', '.join(map(str, numbers))}"  # pyright: ignore[reportUnknownArgumentType] - JSON
        case _:
            return f"{name.replace('_', ' ')} {value if isinstance(value, str) else json.dumps(value)}"


def _titles(steps: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(_quoted(step.get("title")) for step in steps)


def _quoted(value: Any) -> str:
    return repr(short(str(value), _WORDS_CHARS))
