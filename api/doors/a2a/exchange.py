"""What requests of the protocol ask of the service: one place for both bindings, and for answers and streams."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from a2a.types import ListTasksRequest, ListTasksResponse, SendMessageRequest, Task, TaskPushNotificationConfig
from a2a.utils.errors import TaskNotCancelableError, UnsupportedOperationError
from pydantic import BaseModel

from nova_workers.base.errors import IllegalTransition, InvalidInput, existing, missing
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate
from nova_workers.contracts.pushes import PushConfigCreate, PushConfigView
from nova_workers.contracts.runs import RequestKey

from ..questions import open_questions
from ..service import Begun, Door
from ..streams import DoorStream
from .cards import PREFIX, base_url
from .inputs import answer_of, run_of
from .listing import list_tasks
from .pushes import config_of, push_of
from .tasks import task_of
from .writer import Frame, TaskWriter

_CANCELED_WITHIN_S: Final = 5.0


class _Meant(BaseModel):
    """What makes a message another one: with the same id, such a one is another request."""

    message: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request to one agent."""

    door: Door
    agent_id: str

    @property
    def files_url(self) -> str:
        """The beginning of the addresses of files."""
        return f"{base_url(self.door.request)}/v1/files"

    async def send(self, params: SendMessageRequest) -> Task:
        """Accept a message, or the answer to what a task asks, and return the task.

        It is returned when it has ended or asks something; at once to a client that wants no wait.

        Raises:
            NovaError: The message is refused.
            A2AError: The task takes no message, or a part is of a type that no agent reads.
        """
        run_id = await self._accept(params)
        configuration = params.configuration
        if not configuration.return_immediately:
            await self.door.wait(run_id)
        length = configuration.history_length if configuration.HasField("history_length") else None
        return await self.task(run_id, history_length=length)

    async def stream(self, params: SendMessageRequest, frame: Frame) -> DoorStream:
        """Accept a message as `send` does, and respond with what the task does.

        Raises:
            NovaError: The message is refused.
            A2AError: The task takes no message, or a part is of a type that no agent reads.
        """
        if params.message.task_id:
            run_id = await self._accept(params)
            return await self.door.follow(run_id, TaskWriter(self.door, run_id, self.files_url, frame))
        async with self.door.stream_permit() as permit:
            begun = await self._begin(params, self._push_of(params))
            writer = TaskWriter(self.door, begun.run_id, self.files_url, frame)
            return await self.door.follow(begun.run_id, writer, found=begun.state, permit=permit)

    async def subscribe(self, task_id: str, frame: Frame) -> DoorStream:
        """Respond with what a task does from now on.

        Raises:
            NotFound: There is no such task of this agent.
            UnsupportedOperationError: It has ended.
        """
        run = await self.run(task_id)
        if run.status in ENDED_RUNS:
            raise UnsupportedOperationError(f"The task {task_id!r} has ended: get it.")
        return await self.door.follow(run.id, TaskWriter(self.door, task_id, self.files_url, frame))

    async def task(self, task_id: str, *, history_length: int | None = None) -> Task:
        """Return a task as it is now.

        Raises:
            NotFound: There is no such task of this agent.
        """
        if history_length is not None and history_length < 0:
            raise InvalidInput("historyLength: it is 0 or more.", field="historyLength")
        run = await self.run(task_id)
        items = await self.door.items(task_id)
        return task_of(task_id, run, items, files_url=self.files_url, history_length=history_length)

    async def list(self, params: ListTasksRequest) -> ListTasksResponse:
        """Return a page of the agent's tasks.

        Raises:
            NovaError: It is refused.
        """
        return await list_tasks(self.door, self.agent_id, params, self.files_url)

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task, and return it.

        Raises:
            NotFound: There is no such task of this agent.
            TaskNotCancelableError: It has ended.
        """
        run = await self.run(task_id)
        if run.status in ENDED_RUNS:
            raise TaskNotCancelableError(f"The task {task_id!r} has ended: it is {run.status}.")
        try:
            await self.door.cancel(run.id)
        except IllegalTransition as error:
            raise TaskNotCancelableError(error.message) from error
        # A running one stops in a moment.
        await self.door.wait(run.id, timeout_s=_CANCELED_WITHIN_S)
        return await self.task(task_id)

    async def run(self, task_id: str) -> RunView:
        """Return the run of a task.

        Raises:
            NotFound: There is no such task of this agent.
        """
        run = await self.door.run(task_id)
        if run.agent_id != self.agent_id:
            raise missing("run", task_id)
        return run

    async def _accept(self, params: SendMessageRequest) -> str:
        """Submit a message, or answer the question of the task that it names, and return the run."""
        push = self._push_of(params)
        if params.message.task_id:
            return await self._answer(params, push)
        return (await self._begin(params, push)).run_id

    async def _begin(self, params: SendMessageRequest, push: PushConfigCreate | None) -> Begun:
        begun = await self.door.submit(
            await self._run_of(params),
            key=self._key_of(params),
            with_run=None if push is None else self.door.with_push(push),
        )
        if push is not None and begun.is_replay:
            # It is no part of what makes a message another one, so the first request may have had none.
            await self._put_push(begun.run_id, push)
        return begun

    async def _run_of(self, params: SendMessageRequest) -> StatelessRunCreate:
        body = run_of(params.message, self.agent_id)
        if body.thread_id is not None and (await self.door.thread(body.thread_id)).agent_id != self.agent_id:
            raise missing("thread", body.thread_id)
        return body

    async def _answer(self, params: SendMessageRequest, push: PushConfigCreate | None) -> str:
        message = params.message
        run = await self.run(message.task_id)
        if message.context_id and message.context_id != run.thread_id:
            raise InvalidInput("message.contextId: it is not the context of the task.", field="message.contextId")
        # Which question it answered is kept first, so that a repetition answers no later one.
        digest = hashlib.sha256(f"{run.id}\0{self._name_of(params)}".encode("utf-8", "surrogatepass")).hexdigest()
        known = await self.door.find_place(digest)
        if known is None and not open_questions(run):
            state = "has ended" if run.status in ENDED_RUNS else "asks nothing now"
            raise UnsupportedOperationError(
                f"The task {message.task_id!r} {state}. Send the message with its contextId and without taskId: it "
                "becomes the next task of the conversation."
            )
        answer = answer_of(message, run, known, by=self.door.caller.key_name)
        if known is None and answer.wait_id is not None:
            await self.door.note_place(digest, answer.wait_id)
        if push is not None:
            await self._put_push(run.id, push)
        try:
            await self.door.answer(run.id, answer)
        except IllegalTransition as error:
            if known is None:
                raise UnsupportedOperationError(error.message) from error
            # It was answered before, and the run has moved on.
        return message.task_id

    async def put_push(self, config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
        """Let an address get the changes of a task, and return its configuration. One with a known id is replaced.

        Raises:
            NotFound: There is no such task of this agent.
            NovaError: The address or a secret is refused, or the task has as many as it may.
            UnsupportedOperationError: The task has no changes of its own.
        """
        run = await self.run(config.task_id)
        return config_of(await self._put_push(run.id, push_of(config)))

    async def push(self, task_id: str, name: str) -> TaskPushNotificationConfig:
        """Return a configuration of a task.

        Raises:
            NotFound: There is no such task of this agent, or it has no such configuration.
        """
        pushes = await self.door.pushes((await self.run(task_id)).id)
        found = next((push for push in pushes if push.name == name), None)
        return config_of(existing(found, "push_config", name))

    async def pushes(self, task_id: str) -> list[TaskPushNotificationConfig]:
        """Return the configurations of a task.

        Raises:
            NotFound: There is no such task of this agent.
        """
        return [config_of(push) for push in await self.door.pushes((await self.run(task_id)).id)]

    async def delete_push(self, task_id: str, name: str) -> None:
        """Delete a configuration of a task; one that is not there is deleted already.

        Raises:
            NotFound: There is no such task of this agent.
        """
        await self.door.delete_push((await self.run(task_id)).id, name)

    async def _put_push(self, run_id: str, push: PushConfigCreate) -> PushConfigView:
        try:
            return await self.door.put_push(run_id, push)
        except IllegalTransition as error:
            raise UnsupportedOperationError(error.message) from error

    def _push_of(self, params: SendMessageRequest) -> PushConfigCreate | None:
        if not params.configuration.HasField("task_push_notification_config"):
            return None
        config = params.configuration.task_push_notification_config
        return push_of(config, of_message=self._name_of(params), within="configuration.taskPushNotificationConfig.")

    def _name_of(self, params: SendMessageRequest) -> str:
        # Ids of clients need not be unique beyond the client.
        return f"{self.door.caller.key_id} {params.message.message_id}"

    def _key_of(self, params: SendMessageRequest) -> RequestKey | None:
        """Return the key of a message, which is the same by each binding and with or without a stream."""
        meant = _Meant(message=params.message.SerializeToString(deterministic=True).hex())
        return self.door.key(self._name_of(params), meant, path=f"{PREFIX}/{self.agent_id}")
