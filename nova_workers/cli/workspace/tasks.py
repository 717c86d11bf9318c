"""`nova tasks`: list, create, follow and end tasks of agents."""

from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, build, changes, given, remote
from nova_workers.cli.resources import Argument, Filter, group, listing
from nova_workers.cli.talk.follow import follow, outcome_code, why_it_waits
from nova_workers.cli.talk.live import LiveView
from nova_workers.cli.terminal.output import Shown, short
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.cli.terminal.text_input import read_option
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

app = group("List, make, follow and end the work that agents own.")

TaskArgument = Annotated[int, typer.Argument(min=1, max=MAX_TASK_ID, help="The task's number.")]
TitleOption = Annotated[str | None, typer.Option(help="What is to be reached.")]
OwnerOption = Annotated[str | None, typer.Option(help="The agent that works on it.")]
DescriptionOption = Annotated[
    str | None, typer.Option(help="What its agent needs to know; @FILE reads a file, - reads stdin.")
]
OutcomeOption = Annotated[
    str | None, typer.Option(help="What came of it, or why it is canceled; @FILE reads a file, - reads stdin.")
]
StepOption = Annotated[list[str] | None, typer.Option("--step", help="A step of its plan; may be given again.")]
UrlOption = Annotated[list[str] | None, typer.Option("--url", help="An address it works with; may be given again.")]
PathOption = Annotated[list[str] | None, typer.Option("--path", help="A file it works with; may be given again.")]
StepArgument = Annotated[int, typer.Argument(min=1, help="Which step, counted from 1 as `show` counts.")]


def _next_work(task: TaskSummary) -> Shown:
    return "parked" if task.parked_reason else task.work_at


listing(
    app,
    "List tasks, newest first.",
    lambda nova: nova.tasks.list,
    Rows[TaskSummary](
        "No tasks. Make one with `nova tasks create`.",
        Column("task", lambda task: task.id),
        Column("title", lambda task: short(task.title), "text"),
        Column("status", lambda task: task.status),
        Column("steps", lambda task: f"{task.steps_done}/{task.steps_total}" if task.steps_total else None),
        Column("owner", lambda task: task.owner_agent_id),
        Column("part of", lambda task: task.parent_task_id, "spare"),
        Column("next work", _next_work, "spare"),
        Column("updated", lambda task: task.updated_at, "spare"),
    ),
    status=Filter("Only those that stand so.", TaskStatus),
    owner=Filter("Only those of this agent.", sent_as="owner_agent_id"),
    parent=Filter("Only subtasks of this task.", int, sent_as="parent_task_id", min=1, max=MAX_TASK_ID),
)


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
    task = given(
        title=title,
        owner_agent_id=owner,
        description=read_option(description),
        steps=[{"title": each} for each in step or ()] or None,
        resources=_resources(url, path) or None,
        status="active" if activate else None,
    )
    _show(session, await session.client.tasks.create(build(TaskCreate, task)))


@remote(app, "edit")
async def edit(
    session: Session,
    task: TaskArgument,
    title: TitleOption = None,
    owner: OwnerOption = None,
    description: DescriptionOption = None,
) -> None:
    """Change a task's title, owner or description."""
    options = "--title, --owner or --description"
    changed = changes(options, title=title, owner_agent_id=owner, description=read_option(description))
    _show(session, await session.client.tasks.update(task, build(TaskPatch, changed)))


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
    session.out.done(run, run.id, about=f"{why_it_waits(run)}; follow it with `nova runs tail {run.id}`")


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
    subtask = given(title=title, owner_agent_id=owner, description=read_option(description))
    step_id = await _step_id(session, task, step)
    _show(session, await session.client.tasks.create_subtask(task, step_id, build(SubtaskCreate, subtask)))


listing(
    app,
    "Show a task's history, newest first.",
    lambda nova: nova.tasks.history,
    Rows[TaskChangeView](
        "Nothing happened before that.",
        Column("revision", lambda change: change.revision, "spare"),
        Column("when", lambda change: change.created_at, "spare"),
        Column("what", lambda change: change.kind.replace("_", " ")),
        Column("who", lambda change: change.actor),
        Column("details", lambda change: short(change_words(change), 200), "fold"),
    ),
    name="history",
    of=Argument("task", TaskArgument),
)


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


def _show(session: Session, task: TaskView) -> None:
    show_task(session.out, task)


def _end(outcome: str | None) -> TaskEnd:
    return build(TaskEnd, given(outcome=read_option(outcome)))
