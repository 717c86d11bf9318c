"""The stream of a task: the task as it is, then its changes, up to its end or to what it asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.json_format import MessageToDict

from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.events import EventCursor
from nova_workers.domain.runs.sql.reads import RunState

from ..feed import Change, Delta, Done, Ended, Paused, Progress, Started
from ..items import FileItem, Item, MessageItem
from ..service import Door
from .tasks import ANSWER, answer_artifact, answer_in, file_artifact, status_of, task_of, timestamp

Frame = Callable[[dict[str, Any]], Any]
"""Puts an element of a stream into the form of its binding, as JSON."""


class TaskWriter:
    """Writes one stream.

    The answer is one artifact: its text grows while it is produced, and the text of a later step, or of a second try of
    one, replaces it.
    """

    def __init__(self, door: Door, task_id: str, files_url: str, frame: Frame) -> None:
        """Take what is followed, and the form of its elements."""
        self.is_over = False
        self._door = door
        self._task_id = task_id
        self._files_url = files_url
        self._frame = frame
        self._context_id = ""
        self._known: frozenset[str] = frozenset()
        """Items that the task has which began the stream."""
        self._writing: str | None = None
        """The item whose text the answer has now."""
        self._text = ""
        self._is_working = False
        self._out: list[StreamResponse] = []

    async def begin(self, run: RunState, before: Sequence[Item]) -> bytes:
        """Return the task as it is."""
        self._context_id = run.thread_id
        view = await self._door.run(self._task_id)
        items = await self._door.items(self._task_id)
        self._known = frozenset(item.id for item in items)
        self._is_working = view.status != "queued"
        answer = answer_in(items)
        if answer is not None:
            self._writing, self._text = answer.id, answer.text
        task = task_of(self._task_id, view, items, files_url=self._files_url)
        return self._frames([StreamResponse(task=task)])

    async def write(self, changes: Sequence[Change], cursor: EventCursor) -> bytes:
        """Return the events of changes."""
        for change in changes:
            await self._write(change)
        out, self._out = self._out, []
        return self._frames(out)

    async def _write(self, change: Change) -> None:
        match change:
            case Started(item_id) | Delta(item_id) | Progress(item_id) if item_id in self._known:
                pass
            case Started():
                self._work()
            case Progress(_, summary):
                self._work(summary)
            case Delta(item_id, "message", text):
                self._grow(item_id, text)
            case Done(item) if item.id not in self._known:
                self._done(item)
            case Paused("waiting"):
                view = await self._door.run(self._task_id)
                status = status_of(self._task_id, view)
                if status.state == TaskState.TASK_STATE_INPUT_REQUIRED:
                    self._finish(status)
            case Ended():
                await self._end()
            case _:
                pass

    def _grow(self, item_id: str, text: str) -> None:
        is_same = item_id == self._writing
        self._text = self._text + text if is_same else text
        self._writing = item_id
        self._artifact(_answer(text), append=is_same)

    def _done(self, item: Item) -> None:
        match item:
            case MessageItem(role="assistant"):
                if item.id != self._writing or item.text != self._text:
                    self._writing, self._text = item.id, item.text
                    self._artifact(_answer(item.text), append=False)
            case FileItem():
                self._artifact(file_artifact(item, self._files_url), append=False, is_last=True)
            case _:
                pass

    async def _end(self) -> None:
        view = await self._door.run(self._task_id)
        if view.status not in ENDED_RUNS:
            return
        answer = answer_in(await self._door.items(self._task_id))
        if view.output is not None or (answer is not None and answer.text != self._text):
            self._artifact(answer_artifact(view, answer), append=False, is_last=True)
        elif self._writing is not None:
            self._artifact(_answer(""), append=True, is_last=True)
        self._finish(status_of(self._task_id, view))

    def _work(self, summary: str | None = None) -> None:
        """Say that the task is worked on: once, and with each report of a tool."""
        if self._is_working and summary is None:
            return
        self._is_working = True
        now = self._door.state.services.clock.now()
        status = TaskStatus(state=TaskState.TASK_STATE_WORKING, timestamp=timestamp(now))
        if summary:
            name = f"{self._task_id}_progress"
            status.message.CopyFrom(Message(message_id=name, role=Role.ROLE_AGENT, parts=[Part(text=summary)]))
        self._status(status)

    def _finish(self, status: TaskStatus) -> None:
        self._status(status)
        self.is_over = True

    def _status(self, status: TaskStatus) -> None:
        event = TaskStatusUpdateEvent(task_id=self._task_id, context_id=self._context_id, status=status)
        self._out.append(StreamResponse(status_update=event))

    def _artifact(self, artifact: Artifact, *, append: bool, is_last: bool = False) -> None:
        event = TaskArtifactUpdateEvent(
            task_id=self._task_id,
            context_id=self._context_id,
            artifact=artifact,
            append=append,
            last_chunk=is_last,
        )
        self._out.append(StreamResponse(artifact_update=event))

    def _frames(self, out: Sequence[StreamResponse]) -> bytes:
        return b"".join(b"data: " + orjson.dumps(self._frame(MessageToDict(each))) + b"\n\n" for each in out)


def _answer(text: str) -> Artifact:
    return Artifact(artifact_id=ANSWER, name=ANSWER, parts=[Part(text=text)])
