"""What a run does, and what a thread has, as updates of an editor's session."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from acp.helpers import image_block, text_block, tool_content, tool_diff_content
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ContentToolCallContent,
    FileEditToolCallContent,
    ImageContentBlock,
    PlanEntry,
    PlanEntryStatus,
    TerminalToolCallContent,
    TextContentBlock,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolKind,
    UserMessageChunk,
)

from nova_workers.cli.acp.editor import Update
from nova_workers.client.run_text import RunText
from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.events import (
    Compaction,
    ContentLeftOut,
    Event,
    OptionLeftOut,
    ProviderUnavailable,
    Reasoning,
    Restart,
    Step,
    StreamEnd,
    StreamStart,
    ToolServersAway,
    ToolStatus,
    Waiting,
)
from nova_workers.contracts.http.tasks import TaskView
from nova_workers.contracts.http.wire import MessageView

_KINDS: Final[Mapping[str, ToolKind]] = {
    "Read": "read",
    "Write": "edit",
    "Edit": "edit",
    "Glob": "search",
    "Grep": "search",
    "Bash": "execute",
    "WebFetch": "fetch",
    "WebSearch": "search",
    "editor_read_file": "read",
    "editor_write_file": "edit",
    "editor_edit_file": "edit",
    "editor_run_command": "execute",
}
_ENDED: Final[Mapping[str, ToolCallStatus]] = {
    "completed": "completed",
    "failed": "failed",
    "interrupted": "failed",
}
_RESULT_CHARS: Final = 20_000
_Content = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent


def kind_of(tool_name: str) -> ToolKind:
    """Return the kind of a tool, as far as its name says it; editors choose a picture by it."""
    return _KINDS.get(tool_name, "other")


def said(text: str, message_id: str) -> AgentMessageChunk:
    """Return a piece of a message of the agent."""
    return AgentMessageChunk(session_update="agent_message_chunk", content=text_block(text), message_id=message_id)


def thought(text: str, message_id: str | None = None) -> AgentThoughtChunk:
    """Return a piece of what the agent thinks, or a note about the turn."""
    return AgentThoughtChunk(session_update="agent_thought_chunk", content=text_block(text), message_id=message_id)


class LiveUpdates:
    """The updates of one run from its events, each of which it takes once, in order."""

    def __init__(self, run_id: str, *, shown_steps: int = 0) -> None:
        """Take the run, and how many of its steps the editor has: of these there are no updates."""
        self._run_id = run_id
        self._shown_steps = shown_steps
        self._text = RunText()
        self._shown = ""
        """What the editor has of the open text."""
        self._messages = 0
        """How many messages and thoughts ended: a new one gets another id."""

    def of(self, event: Event) -> Iterator[Update]:
        """Yield the updates that an event is."""
        if self._text.repeats(event):
            return
        self._text.feed(event)
        if not self._is_shown(event):
            yield from self._of(event)

    def _is_shown(self, event: Event) -> bool:
        """Return whether the editor has what an event is."""
        if self._shown_steps == 0:
            return False
        if isinstance(event, Step) and event.index >= self._shown_steps - 1:
            self._shown_steps = 0
        return True

    def _of(self, event: Event) -> Iterator[Update]:
        match event:
            case Reasoning(agent=None, text=text):
                yield thought(text, f"{self._run_id}-t{self._messages}")
            case ToolStatus(agent=None):
                # What follows the call is a message of its own; the text before it stays shown.
                self._messages += 1
                yield from _call(event)
            case Restart(agent=None) | StreamStart():
                # What the editor has of the open text is void, and no update takes it back.
                if self._shown:
                    self._end_message()
                    yield thought("The answer broke off, and begins again.\n", f"{self._run_id}-t{self._messages}")
            case Step():
                self._end_message()
            case StreamEnd(final=True):
                pass
            case _ if note := _note(event):
                yield thought(f"{note}\n", f"{self._run_id}-t{self._messages}")
            case _:
                yield from self._new_text()

    def _new_text(self) -> Iterator[Update]:
        text = self._text.open
        if not text.startswith(self._shown):
            self._end_message()
        if rest := text[len(self._shown) :]:
            self._shown = text
            yield said(rest, f"{self._run_id}-m{self._messages}")

    def _end_message(self) -> None:
        self._shown = ""
        self._messages += 1


def _call(event: ToolStatus) -> Iterator[Update]:
    """Yield the state of a call. Its arguments and its result follow with the step, from the ledger."""
    if event.status == "started":
        yield ToolCallStart(
            session_update="tool_call",
            tool_call_id=event.tool_call_id,
            title=event.summary or event.tool_name,
            kind=kind_of(event.tool_name),
            status="in_progress",
        )
    elif event.status == "running":
        yield ToolCallProgress(
            session_update="tool_call_update",
            tool_call_id=event.tool_call_id,
            content=[tool_content(text_block(event.summary))] if event.summary else None,
        )
    else:
        yield ToolCallProgress(
            session_update="tool_call_update", tool_call_id=event.tool_call_id, status=_ENDED[event.status]
        )


def _note(event: Event) -> str | None:
    """Return a note about an event that is not usual in a turn; None for the others."""
    match event:
        case ProviderUnavailable():
            return f"{event.summary}. {event.advice}"
        case ContentLeftOut() | OptionLeftOut():
            return event.note
        case ToolServersAway():
            return "; ".join(f"The tool server {server.name} is away: {server.reason}" for server in event.servers)
        case Compaction(phase="start"):
            return "The older part of the conversation is summarised."
        case Waiting(kind="agent", agent_id=agent_id):
            return f"Waiting for the agent {agent_id}."
        case _:
            return None


class StoredUpdates:
    """The updates that committed messages are.

    Attributes:
        drawn: Calls whose content is a change of a file, or a terminal: the text of their results does not replace it.
    """

    def __init__(self) -> None:
        self.drawn: set[str] = set()

    def replayed(self, message: MessageView) -> Iterator[Update]:
        """Yield a message as a session shows it that is loaded."""
        for block in message.content:
            match block:
                case {"type": "text" | "image"} if message.role == "user":
                    yield from prompted(message.id, [block])
                case {"type": "text", "text": str(text)} if text:
                    yield said(text, message.id)
                case {"type": "thinking", "thinking": str(text)} if text:
                    yield thought(text, f"{message.id}-t")
                case {"type": "tool_use", "id": call_id, "name": name, "input": params}:
                    yield ToolCallStart(
                        session_update="tool_call",
                        tool_call_id=call_id,
                        title=title_of(name, params),
                        kind=kind_of(name),
                        status="in_progress",
                        raw_input=params,
                        locations=locations_of(params),
                        content=self._drawn(call_id, name, params),
                    )
                case _:
                    yield from self._result(block)

    def details(self, message: MessageView) -> Iterator[Update]:
        """Yield the arguments, places and results that a message has of calls that a follower was shown."""
        for block in message.content:
            match block:
                case {"type": "tool_use", "id": call_id, "name": name, "input": params} if call_id not in self.drawn:
                    yield ToolCallProgress(
                        session_update="tool_call_update",
                        tool_call_id=call_id,
                        raw_input=params,
                        locations=locations_of(params),
                        content=self._drawn(call_id, name, params),
                    )
                case _:
                    yield from self._result(block)

    def _result(self, block: ContentBlock) -> Iterator[Update]:
        match block:
            case {"type": "tool_result", "tool_use_id": call_id}:
                failed = bool(block.get("is_error"))
                is_drawn = call_id in self.drawn and not failed
                texts = [] if is_drawn else _texts(block.get("content"))
                yield ToolCallProgress(
                    session_update="tool_call_update",
                    tool_call_id=call_id,
                    status="failed" if failed else "completed",
                    content=[tool_content(text_block(text[:_RESULT_CHARS])) for text in texts] or None,
                )
            case _:
                pass

    def _drawn(self, call_id: str, tool_name: str, params: JsonObject) -> list[_Content] | None:
        """Return the change of a file that a call makes; None for another call."""
        match tool_name, params:
            case "Edit", {"file_path": str(path), "old_string": str(before), "new_string": str(after)}:
                change = tool_diff_content(path, after, before)
            case "Write", {"file_path": str(path), "content": str(after)}:
                change = tool_diff_content(path, after)
            case _:
                return None
        self.drawn.add(call_id)
        return [change]


def prompted(message_id: str, content: Sequence[ContentBlock]) -> Iterator[Update]:
    """Yield the text and the images of what a person said."""
    for block in content:
        match block:
            case {"type": "text", "text": str(text)} if text:
                part: TextContentBlock | ImageContentBlock = text_block(text)
            case {"type": "image", "source": {"type": "base64"} as source}:
                part = image_block(source["data"], source["media_type"])
            case _:
                continue
        yield UserMessageChunk(session_update="user_message_chunk", content=part, message_id=message_id)


def title_of(tool_name: str, params: JsonObject) -> str:
    """Return a call in one line."""
    subject = next(
        (params[name] for name in ("command", "file_path", "path", "pattern", "url", "query") if params.get(name)), None
    )
    return f"{tool_name} {str(subject).splitlines()[0][:100]}" if subject else tool_name


def locations_of(params: JsonObject) -> list[ToolCallLocation] | None:
    """Return the file that a call is about; None if its arguments name none."""
    path = params.get("file_path", params.get("path"))
    line = params.get("line", params.get("offset"))
    if not isinstance(path, str) or not path:
        return None
    return [ToolCallLocation(path=path, line=line if isinstance(line, int) and line >= 0 else None)]


def plan_of(task: TaskView) -> AgentPlanUpdate:
    """Return the steps of a task as a plan: the first that is not done is in progress."""
    entries: list[PlanEntry] = []
    is_next = task.status == "active"
    for step in task.steps:
        status: PlanEntryStatus = "completed" if step.done else "in_progress" if is_next else "pending"
        is_next = is_next and step.done
        entries.append(PlanEntry(content=step.title, priority="medium", status=status))
    return AgentPlanUpdate(session_update="plan", entries=entries)


def tasks_of(messages: Sequence[MessageView]) -> tuple[int, ...]:
    """Return the tasks that calls in messages are about, in their order, each once."""
    found: dict[int, None] = {}
    for message in messages:
        for block in message.content:
            match block:
                case {"type": "tool_use", "name": str(name), "input": {"task_id": int(task_id)}} if "task_" in name:
                    found[task_id] = None
                case _:
                    pass
    return tuple(found)


def _texts(content: Any) -> list[str]:
    match content:
        case str() if content:
            return [content]
        case list():
            return [
                block["text"] if block.get("type") == "text" else json.dumps({"type": block.get("type")})
                for block in content
            ]
        case _:
            return []
