"""Tasks: the board, one task with its plan, tree and history."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from nova_workers.base.errors import NotFound, Rejected
from nova_workers.base.vocabulary import TaskStatus
from nova_workers.client.resources.tasks import Tasks
from nova_workers.console.access import agent_choices, name_of_thread
from nova_workers.console.actions import Done, act
from nova_workers.console.forms import Form, build, changes, read_form
from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.paging import PAGE_SIZE, cursor_of, filter_of, pager
from nova_workers.console.rendering import render, see_other
from nova_workers.console.state import client_of
from nova_workers.contracts.http.tasks import (
    StepInput,
    StepPatch,
    StepsReplace,
    TaskCreate,
    TaskEnd,
    TaskPatch,
    TaskResourceAdd,
)

_COLUMNS: tuple[TaskStatus, ...] = ("draft", "active", "done", "canceled")
_CARDS = 25
"""The most cards of a column of the board; its list has all."""


async def show_board(request: Request) -> Response:
    """Show the newest tasks by state."""
    client, agent = client_of(request), filter_of(request, "agent")
    pages = await asyncio.gather(
        *(client.tasks.list(status=status, owner_agent_id=agent, limit=_CARDS) for status in _COLUMNS)
    )
    columns = [(status, page.items, page.next_cursor is not None) for status, page in zip(_COLUMNS, pages, strict=True)]
    return render(request, "tasks/board.html", columns=columns, is_empty=not any(page.items for page in pages))


async def show_list(request: Request) -> Response:
    """Show a page of tasks, newest first."""
    page = await client_of(request).tasks.list(
        # The API refuses other words, with a message that lists these.
        status=cast(TaskStatus | None, filter_of(request, "status")),
        owner_agent_id=filter_of(request, "agent"),
        limit=PAGE_SIZE,
        cursor=cursor_of(request),
    )
    return render(request, "tasks/list.html", tasks=page.items, pager=pager(request, page), statuses=_COLUMNS)


async def new(request: Request) -> Response:
    """Show an empty form, and create a task."""
    form = Form()
    if request.method == "POST":
        form = await read_form(request)
        titles = [line.strip() for line in form.value("steps").splitlines() if line.strip()]
        given = {
            "title": form.value("title"),
            "description": form.value("description"),
            "owner_agent_id": form.value("owner_agent_id"),
            "status": form.value("status"),
            "steps": [{"title": title} for title in titles],
        }
        try:
            task = await client_of(request).tasks.create(build(TaskCreate, given), idempotency_key=form.given("key"))
        except Rejected as error:
            form = form.refused(error)
        else:
            return see_other(request, f"/tasks/{task.id}", flash=f"Task {task.id} was created.")
    return render(
        request,
        "tasks/new.html",
        status=422 if form.problem else 200,
        form=form,
        agents=await agent_choices(client_of(request)),
    )


async def show(request: Request) -> Response:
    """Show a task with its plan, its subtasks and its history."""
    return await _page(request, Form())


async def _page(request: Request, form: Form) -> Response:
    client, task_id = client_of(request), _number(request)
    task, subtasks, history = await asyncio.gather(
        client.tasks.get(task_id),
        client.tasks.list(parent_task_id=task_id, limit=PAGE_SIZE),
        client.tasks.history(task_id, limit=PAGE_SIZE, cursor=cursor_of(request)),
    )
    parent = await client.tasks.get(task.parent_task_id) if task.parent_task_id else None
    return render(
        request,
        "tasks/show.html",
        status=422 if form.problem else 200,
        task=task,
        conversation=await name_of_thread(client, task.thread_id),
        parent=parent,
        subtasks=subtasks.items,
        history=history.items,
        pager=pager(request, history),
        form=form,
    )


async def change(request: Request) -> Response:
    """Carry out what a button of the task's page asks for."""
    task_id, form = _number(request), await read_form(request)
    if form.value("do") == "edit":
        return await _edit(request, task_id, form)
    action = _ACTIONS.get(form.value("do"))
    if action is None:
        raise NotFound(f"Tasks have no action {form.value('do')!r}.", status=404)
    calls = client_of(request).tasks
    return await act(request, f"/tasks/{task_id}", lambda: action(calls, task_id, form), Done)


async def _edit(request: Request, task_id: int, form: Form) -> Response:
    """Save the task's form; after a refusal the page has what was typed, and the revision that is stored now."""
    tasks = client_of(request).tasks
    fields = {name: form.value(name) for name in ("title", "description", "owner_agent_id")}
    try:
        change = changes(TaskPatch, await tasks.get(task_id), fields)
        known = build(TaskPatch, {"revision": form.given("revision")}).revision
        if change.model_fields_set:
            await tasks.update(task_id, change.model_copy(update={"revision": known}))
    except NotFound:
        raise
    except Rejected as error:
        return await _page(request, form.refused(error))
    return see_other(request, f"/tasks/{task_id}", flash="Saved.")


async def _activate(tasks: Tasks, task_id: int, form: Form) -> str:
    await tasks.activate(task_id)
    return "The task is active."


async def _run(tasks: Tasks, task_id: int, form: Form) -> str:
    await tasks.run(task_id)
    return "It is being worked on."


async def _complete(tasks: Tasks, task_id: int, form: Form) -> str:
    await tasks.complete(task_id, build(TaskEnd, {"outcome": form.given("outcome")}))
    return "The task is done."


async def _cancel(tasks: Tasks, task_id: int, form: Form) -> str:
    await tasks.cancel(task_id, build(TaskEnd, {"outcome": form.given("outcome")}))
    return "The task is canceled, with all that was open below it."


async def _tick_step(tasks: Tasks, task_id: int, form: Form) -> str:
    await tasks.update_step(task_id, form.value("step"), StepPatch(done=form.value("done") == "yes"))
    return "Saved."


async def _add_step(tasks: Tasks, task_id: int, form: Form) -> str:
    task = await tasks.get(task_id)
    kept = [StepInput(id=step.id, title=step.title) for step in task.steps]
    added = build(StepInput, {"title": form.value("title"), "details": form.given("details")})
    await tasks.replace_steps(task_id, StepsReplace(steps=(*kept, added), revision=task.revision))
    return "The step was added."


async def _delegate_step(tasks: Tasks, task_id: int, form: Form) -> str:
    await tasks.create_subtask(task_id, form.value("step"))
    return "The step is a task of its own now."


async def _add_resource(tasks: Tasks, task_id: int, form: Form) -> str:
    given = {name: form.given(name) for name in ("kind", "value", "title")}
    await tasks.add_resource(task_id, build(TaskResourceAdd, given))
    return "Added."


async def _remove_resource(tasks: Tasks, task_id: int, form: Form) -> str:
    await tasks.remove_resource(task_id, form.value("resource"))
    return "Removed."


_ACTIONS: Mapping[str, Callable[[Tasks, int, Form], Awaitable[str]]] = {
    "activate": _activate,
    "run": _run,
    "complete": _complete,
    "cancel": _cancel,
    "tick": _tick_step,
    "add_step": _add_step,
    "delegate": _delegate_step,
    "add_resource": _add_resource,
    "remove_resource": _remove_resource,
}


def _number(request: Request) -> int:
    return request.path_params["task"]


PAGE = PageModule(
    routes=(
        Route("/tasks", show_board),
        Route("/tasks/list", show_list),
        Route("/tasks/new", new, methods=["GET", "POST"]),
        Route("/tasks/{task:int}", show),
        Route("/tasks/{task:int}", change, methods=["POST"]),
    ),
    nav=(NavEntry("Build", "Tasks", "/tasks", "tasks", key="k", scope="workspace:read"),),
)
