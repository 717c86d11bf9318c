"""Tasks of the protocol: each is a run, so any process answers for it, and a restart loses none."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from pydantic import TypeAdapter, ValidationError

from nova_workers.base.errors import Conflict, InvalidInput, NotFound
from nova_workers.base.stopping import stop_tasks
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.streams.rules.wire import LiveEvent

from ..questions import open_questions
from .protocol import (
    MAX_FOLLOWED_TASKS,
    POLL_INTERVAL_MS,
    Context,
    TaskNotification,
    TaskParams,
    TaskUpdateParams,
    check_task_header,
    need_tasks,
    takes_questions,
)
from .questions import answers_to, input_requests
from .results import fault_of, progress_of, result_of
from .runs import Runs, never, runs_of

_CHANGES = frozenset({"stream_start", "waiting", "provider_unavailable", "stream_end"})
"""Events after which a task may look different."""
_DONE: dict[str, Any] = {"resultType": "complete"}

_task_ids: TypeAdapter[list[str]] = TypeAdapter(list[str])


def task_of(run: RunView, *, task_id: str | None = None) -> dict[str, Any]:
    """Return the handle of a run, without what it asks and without its result.

    Args:
        run: As it is now.
        task_id: The run that the client knows, if `run` is another one that it joined.
    """
    return {
        "taskId": task_id or run.id,
        "status": "working",
        "createdAt": _time(run.created_at),
        "lastUpdatedAt": _time(_updated_at(run)),
        # It is there as long as its thread.
        "ttlMs": None,
        "pollIntervalMs": POLL_INTERVAL_MS,
    }


async def detailed_task(runs: Runs, run: RunView, *, task_id: str, with_questions: bool) -> dict[str, Any]:
    """Return a run as a task with all that the client receives.

    Args:
        runs: Reads what belongs to it.
        run: As it is now.
        task_id: The run that the client knows.
        with_questions: Whether the client shows questions. For another one the run works on, and the message says what
            it waits for, which the tool `answer` ends.
    """
    task = task_of(run, task_id=task_id)
    if (fault := fault_of(run)) is not None:
        error = fault.error.model_dump(by_alias=True, mode="json", exclude_none=True)
        return task | {"status": "failed", "statusMessage": fault.error.message, "error": error}
    if run.status == "canceled":
        return task | {"status": "cancelled", "statusMessage": "The run was canceled."}
    if run.status in ENDED_RUNS:
        result = result_of(run, await runs.files(run)).model_dump(by_alias=True, mode="json", exclude_none=True)
        return task | {"status": "completed", "result": result}
    if with_questions and (requests := input_requests(run)):
        return task | {"status": "input_required", "inputRequests": requests, "statusMessage": run.waiting_for or ""}
    return task | {"statusMessage": _message(run)}


async def get_task(context: Context, params: TaskParams) -> dict[str, Any]:
    """Answer ``tasks/get``."""
    runs = _admitted(context, params.task_id)
    run = await runs.get(params.task_id)
    return _DONE | await detailed_task(runs, run, task_id=params.task_id, with_questions=takes_questions(context))


async def update_task(context: Context, params: TaskUpdateParams) -> dict[str, Any]:
    """Answer ``tasks/update``: responses to what the run does not ask, or no longer, change nothing."""
    runs = _admitted(context, params.task_id)
    run = await runs.get(params.task_id)
    try:
        answers = answers_to(run, params.input_responses, by=runs.caller.key_name)
    except ValidationError as error:
        raise InvalidInput("inputResponses must have results of elicitations.", field="inputResponses") from error
    for answer in answers:
        try:
            await runs.door.answer(run.id, answer)
        except Conflict:
            # Another answer came first, or the run has ended.
            continue
    return _DONE


async def cancel_task(context: Context, params: TaskParams) -> dict[str, Any]:
    """Answer ``tasks/cancel``: one that has ended stays as it is."""
    await _admitted(context, params.task_id).cancel(params.task_id)
    return _DONE


async def listen(context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
    """Answer ``subscriptions/listen``: sends each state of the tasks from now on, the present one first, to their end.

    Nothing is lost between two subscriptions: the present state contains whatever a client missed.
    """
    wanted = _wanted(params)
    runs = runs_of(context)
    meta = {SUBSCRIPTION_ID_META_KEY: context.request_id}
    async with AsyncExitStack() as held:
        followed: list[str] = []
        if wanted:
            need_tasks(context)
            await held.enter_async_context(runs.state.permits.hold(runs.caller.key_id))
            followed = [task_id for task_id in wanted if await _exists(runs, task_id)]
        honored = SubscriptionFilter.model_validate({"taskIds": followed} if followed else {})
        await context.session.send_notification(
            SubscriptionsAcknowledgedNotification(
                params=SubscriptionsAcknowledgedNotificationParams(notifications=honored, _meta=meta)
            ),
            related_request_id=context.request_id,
        )
        followers = [TaskFollower(context, runs, task_id, meta) for task_id in followed]
        following = [asyncio.create_task(follower.follow()) for follower in followers]
        try:
            # Unlike a group of tasks, this raises the first error as it is: it has a form of the protocol's.
            await asyncio.gather(*following)
        finally:
            await stop_tasks(following)
    return SubscriptionsListenResult(_meta=meta)


class TaskFollower:
    """Sends the states of one task to a subscription."""

    idle_every_s = 3_600.0

    def __init__(self, context: Context, runs: Runs, task_id: str, meta: dict[str, Any]) -> None:
        self._context = context
        self._runs = runs
        self._task_id = task_id
        self._meta = meta
        self._sent: dict[str, Any] | None = None

    async def follow(self) -> None:
        """Send the present state, and each further one until the task has ended, is deleted, or the process stops."""
        try:
            while (run := await self._send()).status not in ENDED_RUNS:
                # A run that joined another one ends; the other one goes on.
                if await self._runs.door.watch(run.id, self) != "over":
                    return
        except NotFound:
            # Its thread was deleted. The other tasks go on.
            return

    async def on_events(self, events: Sequence[LiveEvent]) -> None:
        """Send the state if one of the events may have changed it."""
        if any(event.event["type"] in _CHANGES for event in events):
            await self._send()

    async def on_idle(self) -> None:
        """Do nothing: the transport sends heartbeats."""

    async def until_gone(self) -> None:
        """Never return: the transport cancels the handler of a client that disconnected."""
        await never()

    async def _send(self) -> RunView:
        run = await self._runs.get(self._task_id)
        asks = takes_questions(self._context)
        task = await detailed_task(self._runs, run, task_id=self._task_id, with_questions=asks)
        if task != self._sent:
            self._sent = task
            await self._context.session.send_notification(
                TaskNotification(params=task | {"_meta": self._meta}),  # pyright: ignore[reportArgumentType] - any is sent
                related_request_id=self._context.request_id,
            )
        return run


def _admitted(context: Context, task_id: str) -> Runs:
    runs = runs_of(context)
    need_tasks(context)
    check_task_header(runs.door.request, task_id)
    return runs


def _wanted(params: SubscriptionsListenRequestParams) -> list[str]:
    try:
        wanted = _task_ids.validate_python((params.notifications.model_extra or {}).get("taskIds") or [], strict=True)
    except ValidationError as error:
        raise MCPError(INVALID_PARAMS, "notifications.taskIds must be a list of strings.") from error
    if len(wanted) > MAX_FOLLOWED_TASKS:
        raise MCPError(INVALID_PARAMS, f"notifications.taskIds may have {MAX_FOLLOWED_TASKS} at most.")
    return list(dict.fromkeys(wanted))


async def _exists(runs: Runs, task_id: str) -> bool:
    try:
        await runs.get(task_id)
    except NotFound:
        return False
    return True


def _message(run: RunView) -> str:
    if questions := open_questions(run):
        return f"It waits for {len(questions)} answers; the tool `answer` gives them, get_run shows them."
    return progress_of(run)


def _updated_at(run: RunView) -> datetime:
    moments = [run.created_at, run.started_at, run.finished_at, run.cancel_requested_at]
    return max(moment for moment in (*moments, *(wait.created_at for wait in run.waits)) if moment is not None)


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
