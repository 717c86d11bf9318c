"""Lists of tasks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Final

from a2a.types import ListTasksRequest, ListTasksResponse, Task, TaskState

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.http.wire import RunStatus, RunView
from nova_workers.domain.runs.sql.changes import ChangedRuns

from ...pagination import PageRequest
from ..items import input_item
from ..service import Door
from .tasks import status_of, task_of

_DEFAULT_SIZE: Final = 50
_MOST: Final = 100
_MOST_COUNTED: Final = 10_000

_STATUSES: Final[Mapping[TaskState, frozenset[RunStatus]]] = {
    TaskState.TASK_STATE_SUBMITTED: frozenset({"queued"}),
    TaskState.TASK_STATE_WORKING: frozenset({"running", "waiting"}),
    TaskState.TASK_STATE_INPUT_REQUIRED: frozenset({"waiting"}),
    TaskState.TASK_STATE_COMPLETED: frozenset({"succeeded"}),
    TaskState.TASK_STATE_FAILED: frozenset({"failed"}),
    TaskState.TASK_STATE_CANCELED: frozenset({"canceled"}),
}
"""The statuses of the runs that may be in a state. No task of a fleet is in any other."""


async def list_tasks(door: Door, agent_id: str, params: ListTasksRequest, files_url: str) -> ListTasksResponse:
    """Return a page of an agent's tasks, those that changed last first.

    Raises:
        InvalidInput: The page is too large, or a length is negative; names the field.
        InvalidCursor: The token is none of this list.
        NotFound: There is no such agent.
    """
    await door.agent(agent_id)
    size = params.page_size if params.HasField("page_size") else _DEFAULT_SIZE
    if not 1 <= size <= _MOST:
        raise InvalidInput(f"pageSize: it is from 1 to {_MOST}.", field="pageSize")
    if params.history_length < 0:
        raise InvalidInput("historyLength: it is 0 or more.", field="historyLength")
    if params.status and params.status not in _STATUSES:
        return ListTasksResponse(page_size=size)
    which = _filter_of(agent_id, params)
    page = await door.changed_runs(which, PageRequest(params.page_token or None, size))
    tasks = [await _task_of(door, run, params, files_url) for run in page.items if _is_in(run, params)]
    return ListTasksResponse(
        tasks=tasks,
        next_page_token=page.next_cursor or "",
        page_size=size,
        total_size=await door.count_changed_runs(which, at_most=_MOST_COUNTED),
    )


def _filter_of(agent_id: str, params: ListTasksRequest) -> ChangedRuns:
    since = params.status_timestamp_after
    return ChangedRuns(
        agent_id=agent_id,
        thread_id=params.context_id or None,
        statuses=_STATUSES.get(params.status, frozenset()),
        since=since.ToDatetime(UTC) if params.HasField("status_timestamp_after") else None,
    )


def _is_in(run: RunView, params: ListTasksRequest) -> bool:
    """Return whether a run is in the state: of runs that wait, some require input."""
    return not params.status or status_of(run.id, run).state == params.status


async def _task_of(door: Door, run: RunView, params: ListTasksRequest, files_url: str) -> Task:
    needs_items = params.include_artifacts or params.history_length > 1
    items = await door.items(run.id) if needs_items else (input_item(run.id, run.message),)
    return task_of(
        run.id,
        run,
        items,
        files_url=files_url,
        history_length=params.history_length,
        with_artifacts=params.include_artifacts,
    )
