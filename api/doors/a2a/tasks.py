"""Runs as tasks of the protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import orjson
from a2a.types import Artifact, Message, Part, Role, Task, TaskStatus
from google.protobuf.json_format import ParseDict
from google.protobuf.timestamp_pb2 import Timestamp

from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.delivery.rules.task_status import task_status

from ..items import FileItem, Item, MessageItem, QuestionItem
from .inputs import MESSAGE_ID, METADATA, data_part

ANSWER: Final = "answer"
"""The id of the artifact that is the agent's answer."""


def task_of(
    task_id: str,
    run: RunView,
    items: Sequence[Item],
    *,
    files_url: str,
    history_length: int | None = None,
    with_artifacts: bool = True,
) -> Task:
    """Return a task.

    Args:
        task_id: Its id: that of the run, or of a message that joined the run's turn.
        run: The run as it is now.
        items: What the ledger has of it.
        files_url: The beginning of the addresses of files.
        history_length: How many of its last messages it is shown with; None for all.
        with_artifacts: Whether it is shown with what it made.
    """
    history = history_of(task_id, run, items)
    if history_length is not None:
        history = history[-history_length:] if history_length > 0 else []
    return Task(
        id=task_id,
        context_id=run.thread_id,
        status=status_of(task_id, run),
        artifacts=artifacts_of(run, items, files_url) if with_artifacts else (),
        history=history,
    )


def status_of(task_id: str, run: RunView) -> TaskStatus:
    """Return the status of a task, which notifications have too."""
    return ParseDict(task_status(task_id, run), TaskStatus())


def timestamp(at: datetime) -> Timestamp:
    """Return a time as the protocol has it, to the millisecond."""
    found = Timestamp()
    found.FromMilliseconds(int(at.timestamp() * 1000))
    return found


def artifacts_of(run: RunView, items: Sequence[Item], files_url: str) -> list[Artifact]:
    """Return the artifacts of a run: the answer, and the files that it sent."""
    answer = answer_in(items)
    found = [] if answer is None and run.output is None else [answer_artifact(run, answer)]
    return found + [file_artifact(item, files_url) for item in items if isinstance(item, FileItem)]


def answer_in(items: Iterable[Item]) -> MessageItem | None:
    """Return the agent's newest message, which is its answer once the run has ended."""
    said = [item for item in items if isinstance(item, MessageItem) and item.role == "assistant"]
    return said[-1] if said else None


def answer_artifact(run: RunView, answer: MessageItem | None) -> Artifact:
    """Return the answer of a run; of an agent with an output schema, as data too."""
    parts = [Part(text="" if answer is None else answer.text)]
    if run.output is not None and run.status in ENDED_RUNS:
        parts.append(data_part(run.output))
    return Artifact(artifact_id=ANSWER, name=ANSWER, parts=parts)


def file_artifact(file: FileItem, files_url: str) -> Artifact:
    """Return a file, which is read with the same key."""
    part = Part(url=f"{files_url}/{file.id}/content", filename=file.name, media_type=file.media_type)
    return Artifact(artifact_id=file.id, name=file.name, description=file.caption or "", parts=[part])


def history_of(task_id: str, run: RunView, items: Iterable[Item]) -> list[Message]:
    """Return the messages of a task, in order."""
    own_id = run.metadata.get(METADATA, {}).get(MESSAGE_ID)
    messages: list[Message] = []
    for item in items:
        match item:
            case MessageItem(role="user"):
                name = own_id if item.step < 0 and isinstance(own_id, str) else item.id
                parts = [part for block in item.content for part in _parts(block)]
                messages.append(_message(name, task_id, run.thread_id, parts, role=Role.ROLE_USER))
            case MessageItem():
                messages.append(_message(item.id, task_id, run.thread_id, [Part(text=item.text)]))
            case QuestionItem(is_open=False):
                text = getattr(item.request, "question", None) or getattr(item.request, "reason", "")
                messages.append(_message(item.id, task_id, run.thread_id, [Part(text=text)]))
            case _:
                pass
    return messages


def _message(
    message_id: str, task_id: str, context_id: str, parts: Sequence[Part], *, role: Role = Role.ROLE_AGENT
) -> Message:
    return Message(message_id=message_id, task_id=task_id, context_id=context_id, role=role, parts=parts)


def _parts(block: ContentBlock) -> list[Part]:
    source: Any = block.get("source")
    match block.get("type"), source:
        case "text", _:
            return [Part(text=str(block.get("text", "")))]
        case "document", {"type": "text", "data": str(text)}:
            return [Part(text=text)]
        case _, {"type": "url", "url": str(url)}:
            return [Part(url=url)]
        case kind, {"type": "base64", "media_type": str(media)}:
            # The bytes are the client's own, and are not sent back.
            return [Part(text=f"[{kind}]", media_type=media)]
        case _:
            return [Part(text=orjson.dumps(block).decode())]
