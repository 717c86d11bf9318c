"""`nova tasks`: list, create, follow and end tasks of agents."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.talk.follow import follow, outcome_code, why_it_waits
from nova_workers.cli.talk.live import LiveView
from nova_workers.cli.terminal.output import Column, short, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.cli.workspace.task_text import change_words, show_task
from nova_workers.contracts.http.tasks import (
    MAX_TASK_ID,
    StepPatch,
    StepsReplace,
    SubtaskCreate,
    TaskChangeView,
    TaskCreate,
    TaskEnd,
    TaskPatch,
    TaskResourceAdd,
    TaskStatus,
    TaskSummary,
    TaskView,
)

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="List, make, follow and end the work that agents own.",
)

TaskArgument = Annotated[int, typer.Argument(min=1, max=MAX_TASK_ID, help="The task's number.")]
TitleOption = Annotated[str | None, typer.Option(help="What is to be reached.")]
OwnerOption = Annotated[str | None, typer.Option(help="The agent that works on it.")]
DescriptionOption = Annotated[str | None, typer.Option(help="What its agent needs to know; @FILE reads a file.")]
OutcomeOption = Annotated[str | None, typer.Option(help="What came of it, or why it is canceled; @FILE reads a file.")]
StepOption = Annotated[list[str] | None, typer.Option("--step", help="A step of its plan; may be given again.")]
UrlOption = Annotated[list[str] | None, typer.Option("--url", help="An address it works with; may be given again.")]
PathOption = Annotated[list[str] | None, typer.Option("--path", help="A file it works with; may be given again.")]
StepArgument = Annotated[int, typer.Argument(min=1, help="Which step, counted from 1 as `show` counts.")]


@remote(app, "list")
async def list_tasks(
    session: Session,
    status: Annotated[TaskStatus | None, typer.Option(help="Only those that stand so.")] = None,
    owner: Annotated[str | None, typer.Option(help="Only those of this agent.")] = None,
    parent: Annotated[int | None, typer.Option(min=1, max=MAX_TASK_ID, help="Only subtasks of this task.")] = None,
    limit: LimitOption = 20,
    cursor: CursorOption = None,
) -> None:
    """List tasks, newest first."""
    page = await session.client.tasks.list(
        status=status, owner_agent_id=owner, parent_task_id=parent, limit=limit, cursor=cursor
    )
    columns: tuple[Column, ...] = (
        *("task", ("title", "text"), "status", "steps", "owner"),
        *(("part of", "spare"), ("next work", "spare"), ("updated", "spare")),
    )
    show_page(session.out, page, columns, _row, nothing="No tasks. Make one with `nova tasks create`.")


@remote(app, "show")
async def show(session: Session, task: TaskArgument) -> None:
    """Show a task with its plan as a checklist."""
    _show(session, await session.client.tasks.get(task))


@remote(app, "create")
async def create(
    session: Session,
    title: Annotated[str, typer.Argument(help="What is to be reached.")],
    owner: OwnerOption = None,
    description: DescriptionOption = None,
    step: StepOption = None,
    url: UrlOption = None,
    path: PathOption = None,
    activate: Annotated[bool, typer.Option("--activate", help="To be worked on at once, not a draft.")] = False,
) -> None:
    """Create a task."""
    given: dict[str, Any] = {
        "title": title,
        "owner_agent_id": owner,
        "description": _text_or_file(description),
        "steps": [{"title": each} for each in step or ()] or None,
        "resources": _resources(url, path) or None,
        "status": "active" if activate else None,
    }
    _show(session, await session.client.tasks.create(build(TaskCreate, _without_none(given))))


@remote(app, "edit")
async def edit(
    session: Session,
    task: TaskArgument,
    title: TitleOption = None,
    owner: OwnerOption = None,
    description: DescriptionOption = None,
) -> None:
    """Change a task's title, owner or description."""
    given = _without_none({"title": title, "owner_agent_id": owner, "description": _text_or_file(description)})
    if not given:
        raise InvalidInput("Nothing to change: give --title, --owner or --description.")
    _show(session, await session.client.tasks.update(task, build(TaskPatch, given)))


@remote(app, "activate")
async def activate(session: Session, task: TaskArgument) -> None:
    """Activate a draft, so that its agent works on it."""
    _show(session, await session.client.tasks.activate(task))


@remote(app, "run")
async def run_now(
    session: Session,
    task: TaskArgument,
    follow_it: Annotated[bool, typer.Option("--follow", help="Show the run until it is over.")] = False,
) -> None:
    """Start work on an active task now, also outside working hours or if it is parked."""
    run = await session.client.tasks.run(task)
    if follow_it:
        end = await follow(session, run.id, LiveView(session.out))
        raise typer.Exit(0 if end is None else outcome_code(end.status, interrupted=False))
    if session.out.json:
        session.out.document(run)
        return
    session.out.text(run.id)
    session.out.note(f"{why_it_waits(run)}; follow it with `nova runs tail {run.id}`")


@remote(app, "complete")
async def complete(session: Session, task: TaskArgument, outcome: OutcomeOption = None) -> None:
    """Complete a task. It must have no open subtasks."""
    _show(session, await session.client.tasks.complete(task, _end(outcome)))


@remote(app, "cancel")
async def cancel(session: Session, task: TaskArgument, outcome: OutcomeOption = None) -> None:
    """Cancel a task and its open subtasks."""
    _show(session, await session.client.tasks.cancel(task, _end(outcome)))


@remote(app, "check")
async def check(
    session: Session,
    task: TaskArgument,
    step: StepArgument,
    undo: Annotated[bool, typer.Option("--undo", help="Not done after all.")] = False,
) -> None:
    """Mark a step as done."""
    step_id = await _step_id(session, task, step)
    _show(session, await session.client.tasks.update_step(task, step_id, StepPatch(done=not undo)))


@remote(app, "plan")
async def plan(
    session: Session,
    task: TaskArgument,
    step: Annotated[list[str], typer.Option("--step", help="A step, in order; may be given again.")],
    add: Annotated[bool, typer.Option("--add", help="After the steps that are there, which all stay.")] = False,
) -> None:
    """Replace a task's plan. A step with the title of an existing one keeps its state; others are removed."""
    present = await session.client.tasks.get(task)
    kept = [{"id": each.id, "title": each.title} for each in present.steps]
    steps = kept + [{"title": title} for title in step] if add else _matched(kept, step)
    body = build(StepsReplace, {"steps": steps, "revision": present.revision})
    _show(session, await session.client.tasks.replace_steps(task, body))


@remote(app, "attach")
async def attach(session: Session, task: TaskArgument, url: UrlOption = None, path: PathOption = None) -> None:
    """Attach a URL or a path to a task."""
    resources = [build(TaskResourceAdd, each) for each in _resources(url, path)]
    if not resources:
        raise InvalidInput("Nothing to attach: give --url or --path.")
    for resource in resources:
        await session.client.tasks.add_resource(task, resource)
    _show(session, await session.client.tasks.get(task))


@remote(app, "detach")
async def detach(
    session: Session,
    task: TaskArgument,
    resources: Annotated[list[str], typer.Argument(help="Addresses and paths, as `show` shows them, or their ids.")],
) -> None:
    """Remove resources from a task."""
    ids = {name: each.id for each in (await session.client.tasks.get(task)).resources for name in (each.id, each.value)}
    if unknown := [name for name in resources if name not in ids]:
        raise InvalidInput(f"Task {task} does not work with {unknown[0]!r}; `nova tasks show {task}` shows with what.")
    for resource_id in dict.fromkeys(ids[name] for name in resources):
        await session.client.tasks.remove_resource(task, resource_id)
    _show(session, await session.client.tasks.get(task))


@remote(app, "delegate")
async def delegate(
    session: Session,
    task: TaskArgument,
    step: StepArgument,
    owner: OwnerOption = None,
    title: TitleOption = None,
    description: DescriptionOption = None,
) -> None:
    """Delegate a step of an active task to a subtask."""
    given = _without_none({"title": title, "owner_agent_id": owner, "description": _text_or_file(description)})
    step_id = await _step_id(session, task, step)
    _show(session, await session.client.tasks.create_subtask(task, step_id, build(SubtaskCreate, given)))


@remote(app, "history")
async def history(session: Session, task: TaskArgument, limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """Show a task's history, newest first."""
    page = await session.client.tasks.history(task, limit=limit, cursor=cursor)
    columns: tuple[Column, ...] = (("revision", "spare"), ("when", "spare"), "what", "who", ("details", "fold"))
    show_page(session.out, page, columns, _history_row, nothing="Nothing happened before that.")


async def _step_id(session: Session, task_id: int, number: int) -> str:
    steps = (await session.client.tasks.get(task_id)).steps
    if number > len(steps):
        raise InvalidInput(f"Task {task_id} has {len(steps)} steps; there is no step {number}.")
    return steps[number - 1].id


def _resources(urls: list[str] | None, paths: list[str] | None) -> list[dict[str, str]]:
    found = [{"kind": "url", "value": each} for each in urls or ()]
    return found + [{"kind": "file", "value": each} for each in paths or ()]


def _matched(present: list[dict[str, str]], titles: list[str]) -> list[dict[str, str]]:
    """Return the steps with these titles: existing ones by their ids, each at most once."""
    left = list(present)
    steps: list[dict[str, str]] = []
    for title in titles:
        same = next((step for step in left if step["title"] == " ".join(title.split())), None)
        if same is not None:
            left.remove(same)
        steps.append(same or {"title": title})
    return steps


def _row(task: TaskSummary) -> tuple[str, ...]:
    return (
        str(task.id),
        short(task.title),
        task.status,
        f"{task.steps_done}/{task.steps_total}" if task.steps_total else "",
        task.owner_agent_id,
        "" if task.parent_task_id is None else str(task.parent_task_id),
        "parked" if task.parked_reason else stamp(task.work_at),
        stamp(task.updated_at),
    )


def _history_row(change: TaskChangeView) -> tuple[str, ...]:
    return (
        str(change.revision),
        stamp(change.created_at),
        change.kind.replace("_", " "),
        change.actor,
        short(change_words(change), 200),
    )


def _show(session: Session, task: TaskView) -> None:
    show_task(session.out, task)


def _end(outcome: str | None) -> TaskEnd:
    return build(TaskEnd, _without_none({"outcome": _text_or_file(outcome)}))


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _text_or_file(value: str | None) -> str | None:
    if value is None or not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{value[1:]!r} cannot be read: {error}") from error
