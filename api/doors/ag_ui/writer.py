"""The events of a part of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ag_ui.core import (
    PROTOCOL_VERSION,
    BaseEvent,
    CustomEvent,
    Interrupt,
    Message,
    MessagesSnapshotEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from ag_ui.encoder import EventEncoder

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.http.wire import RunView, UsageView
from nova_workers.contracts.thread_state import is_same
from nova_workers.contracts.waits import AskApproval
from nova_workers.domain.runs.sql.reads import RunState

from ..feed import Change, Delta, Done, Ended, Paused, Progress, Started, StateChanged, Voided
from ..items import FileItem, Item, MessageItem, QuestionItem, ReasoningItem, ToolCallItem, ToolResultItem
from ..service import Door
from .conversations import content_of, function_of, messages_of, missed_messages, parent_of
from .parts import goes_on, interrupt_id, tool_call_id
from .patches import json_patch
from .stamps import NAMESPACE, stamp_of, stamped, version_of

_encode = EventEncoder().encode


@dataclass(frozen=True, slots=True)
class Request:
    """What a stream answers.

    Attributes:
        thread_id: The thread's id, as the client gave it.
        run_id: The id that the client gave the part.
        held: The messages that it has.
        state: The state that it has.
        left_out: Places of parts of its messages that no agent can use.
    """

    thread_id: str
    run_id: str
    parent_run_id: str | None
    held: Sequence[Message]
    state: Any
    left_out: Sequence[str] = ()


@dataclass(slots=True)
class _State:
    """The state document as the client has it. None is one that it does not have."""

    version: int | None = None
    document: JsonObject = field(default_factory=dict[str, Any])


class PartWriter:
    """Writes the events of one part of one run."""

    def __init__(self, door: Door, request: Request, *, first_step: int = 0, is_new_thread: bool = False) -> None:
        """Take the request, and the step with which the part begins."""
        self.is_over = False
        self._door = door
        self._request = request
        self._first_step = first_step
        self._is_new_thread = is_new_thread
        self._thread_id = ""
        self._run_id = ""
        self._state = _State()
        self._named_version = version_of(request.held)
        """The version of the state document that the client's messages name."""
        self._events: list[BaseEvent] = []
        self._step: int | None = None
        """The step that is open."""
        self._names: dict[str, str] = {}
        """The open messages: the id by which the client knows an item."""
        self._restarts: dict[str, int] = {}
        self._base: Sequence[Message] = request.held
        """What the client has from before the part."""
        self._sent: list[Item] = []
        self._has_void = False
        self._asked_step: int | None = None
        """The step whose calls and questions end the part."""
        self._pending: dict[str, bool] = {}
        """Calls without a result, in order; whether the client executes it."""
        self._questions: dict[str, QuestionItem] = {}
        self._asked_before: set[str] = set()
        """Calls of the step before the part that a person was asked about."""

    async def begin(self, run: RunState, before: Sequence[Item]) -> bytes:
        """Return the first events: what the client needs to know of the thread."""
        self._thread_id, self._run_id = run.thread_id, run.run_id
        request = self._request
        self._add(started(request.thread_id, request.run_id, request.parent_run_id, request.left_out))
        await self._synchronize(is_first=True)
        if not self._is_new_thread:
            missed = await missed_messages(self._door, run.thread_id, run.run_id, self._first_step, request.held)
            if missed is not None:
                self._base = missed
                self._restate()
        return self._frames()

    async def write(self, changes: Sequence[Change], cursor: EventCursor) -> bytes:
        """Return the events of changes."""
        for at, change in enumerate(changes):
            if self._has_void and not isinstance(change, Voided):
                # The client deletes what is void.
                self._restate()
            if self._is_behind(change):
                self._take_rest_of_step(changes[at:])
                await self._finish_asking()
                break
            await self._write(change)
            if self.is_over:
                break
        if self._has_void and not self.is_over:
            self._restate()
        return self._frames()

    async def _write(self, change: Change) -> None:
        match change:
            case Started(step=step) if step >= self._first_step and change.kind != "tool_call":
                self._start(change)
            case Delta(item_id, kind, text) if item_id in self._names:
                event = TextMessageContentEvent if kind == "message" else ReasoningMessageContentEvent
                self._add(event(message_id=self._names[item_id], delta=text))
            case Voided(item_id) if item_id in self._names:
                self._close(item_id)
                self._restarts[item_id] = self._restarts.get(item_id, 0) + 1
                self._has_void = True
            case Done(item):
                self._done(item)
            case Progress(item_id, summary) if item_id in self._pending:
                value = {"toolCallId": item_id, "summary": summary}
                self._add(CustomEvent(name=f"{NAMESPACE}.progress", value=value))
            case StateChanged():
                await self._change_state(change)
            case Paused("waiting") if self._asked_step is not None:
                await self._finish_asking()
            case Ended():
                await self._finish()
            case _:
                pass

    def _is_behind(self, change: Change) -> bool:
        """Return whether a change is of the next part."""
        if self._asked_step is None:
            return False
        match change:
            case Started(step=step):
                return step > self._asked_step
            case Done(ToolResultItem() as result) if result.step == self._asked_step:
                return result.for_caller or result.call_id in self._questioned()
            case Done(item):
                return item.step > self._asked_step
            case _:
                return False

    def _take_rest_of_step(self, changes: Sequence[Change]) -> None:
        """Take what else the step has that ends the part: in a replay, answers are between questions."""
        for change in changes:
            if isinstance(change, Done) and change.item.step == self._asked_step and not self._is_behind(change):
                self._done(change.item)

    def _start(self, change: Started) -> None:
        self._open_step(change.step)
        restarts = self._restarts.get(change.item_id, 0)
        name = self._names[change.item_id] = f"{change.item_id}.{restarts}" if restarts else change.item_id
        if change.kind == "message":
            self._add(TextMessageStartEvent(message_id=name, role="assistant"))
        else:
            self._add(ReasoningStartEvent(message_id=name), ReasoningMessageStartEvent(message_id=name))

    def _close(self, item_id: str) -> None:
        name = self._names.pop(item_id)
        if item_id.startswith("rs_"):
            self._add(ReasoningMessageEndEvent(message_id=name), ReasoningEndEvent(message_id=name))
        else:
            self._add(TextMessageEndEvent(message_id=name, metadata=self._stamp()))

    def _done(self, item: Item) -> None:
        """Write an item that is done, unless it is of an earlier part."""
        if item.step < self._first_step:
            if isinstance(item, QuestionItem) and item.step == self._first_step - 1:
                self._asked_before.add(item.call_id)
            if not goes_on(item, self._first_step, self._asked_before):
                return
        self._open_step(item.step)
        self._sent.append(item)
        match item:
            case MessageItem(role="user"):
                self._add(
                    TextMessageStartEvent(message_id=item.id, role="user"),
                    TextMessageContentEvent(message_id=item.id, delta=item.text),
                    TextMessageEndEvent(message_id=item.id),
                )
            case MessageItem() | ReasoningItem() if item.id in self._names:
                self._close(item.id)
            case ToolCallItem():
                self._call(item)
            case ToolResultItem(for_caller=False):
                self._pending.pop(f"call_{item.id.removeprefix('res_')}", None)
                self._add(_result_event(item, self._stamp()))
            case QuestionItem():
                self._asked_step = item.step
                self._questions.setdefault(item.id, item)
            case FileItem():
                value = {
                    "id": item.id,
                    "name": item.name,
                    "mediaType": item.media_type,
                    "sizeBytes": item.size_bytes,
                    "caption": item.caption,
                }
                self._add(CustomEvent(name=f"{NAMESPACE}.file", value=value))
            case _:
                pass

    def _call(self, item: ToolCallItem) -> None:
        self._pending[item.id] = item.for_caller
        function = function_of(item)
        self._add(
            ToolCallStartEvent(tool_call_id=item.id, tool_call_name=function.name, parent_message_id=parent_of(item)),
            ToolCallArgsEvent(tool_call_id=item.id, delta=function.arguments),
            ToolCallEndEvent(tool_call_id=item.id, metadata=self._stamp()),
        )
        if item.for_caller:
            self._asked_step = item.step

    async def _change_state(self, change: StateChanged) -> None:
        version = self._state.version
        if version is not None and change.version <= version:
            return
        if version is None or change.version > version + 1:
            await self._synchronize()
            return
        document = change.after(self._state.document)
        patch = json_patch(self._state.document, document)
        self._state = _State(change.version, document)
        self._add(StateDeltaEvent.model_validate({"delta": patch}))

    async def _synchronize(self, *, is_first: bool = False) -> None:
        """Send the state document, unless the client has it."""
        if is_first and self._is_new_thread and self._request.state in (None, {}):
            self._state = _State(0)
            return
        found = await self._door.thread_state(self._thread_id)
        held = self._request.state if is_first else self._state.document
        if found.version and (not is_same(found.state, held) or (not is_first and self._state.version is None)):
            self._add(StateSnapshotEvent(snapshot=found.state))
        is_known = found.version or held in (None, {})
        self._state = _State(found.version if is_known else None, found.state)

    def _restate(self) -> None:
        """Send the conversation with what this stream has sent."""
        self._has_void = False
        later = [_renamed(message, self._restarts) for message in messages_of(self._sent)]
        self._stamp()
        self._add(MessagesSnapshotEvent(messages=stamped([*self._base, *later], self._state.version)))

    async def _finish_asking(self) -> None:
        """End the part: its client or a person has something to answer."""
        await self._close_all()
        calls = list(self._pending)
        if self._questions:
            interrupts = [_interrupt(question) for question in self._questions.values()]
            outcome: Any = RunFinishedInterruptOutcome(interrupts=interrupts)
        else:
            named = calls if all(self._pending.values()) else None
            outcome = RunFinishedSuccessOutcome(pending_tool_call_ids=named)
        self._add(self._finished(outcome))

    async def _finish(self) -> None:
        """End the part with the run."""
        await self._close_all()
        run = await self._door.run(self._run_id)
        usage = None
        if self._first_step == 0 and run.usage is not None:
            usage = [_usage(run.usage)]
        if run.status == "failed":
            message = "The run failed." if run.error is None else run.error.message
            code = "failed" if run.error is None else run.error.kind
            self._add(RunErrorEvent(message=message, code=code, usage=usage))
            self.is_over = True
            return
        outcome = RunFinishedCancelledOutcome() if _is_stopped(run) else RunFinishedSuccessOutcome()
        self._add(self._finished(outcome, usage=usage, result=run.output))

    async def _close_all(self) -> None:
        for item_id in list(self._names):
            self._close(item_id)
        self._open_step(None)
        if any(isinstance(item, ToolCallItem) for item in self._sent):
            # A change by a subagent is only live, and may have been missed.
            await self._synchronize()
        version = self._state.version
        if version and version != self._named_version and (self._base or self._sent):
            # No message followed the change.
            self._restate()

    def _finished(self, outcome: Any, **fields: Any) -> RunFinishedEvent:
        self.is_over = True
        request = self._request
        return RunFinishedEvent(thread_id=request.thread_id, run_id=request.run_id, outcome=outcome, **fields)

    def _open_step(self, step: int | None) -> None:
        if step == self._step:
            return
        if self._step is not None:
            self._add(StepFinishedEvent(step_name=_step_name(self._step)))
        if step is not None:
            self._add(StepStartedEvent(step_name=_step_name(step)))
        self._step = step

    def _questioned(self) -> set[str]:
        return {question.call_id for question in self._questions.values()}

    def _stamp(self) -> JsonObject | None:
        """Return the metadata of what is sent now: the client's newest message names the version that it has."""
        self._named_version = self._state.version or self._named_version
        return stamp_of(self._state.version)

    def _add(self, *events: BaseEvent) -> None:
        self._events.extend(events)

    def _frames(self) -> bytes:
        frames = frames_of(self._events, self._door.state.services.clock.now().timestamp())
        self._events.clear()
        return frames


def frames_of(events: Sequence[BaseEvent], at_s: float) -> bytes:
    """Return events as they are sent."""
    timestamp = int(at_s * 1000)
    return b"".join(_encode(event.model_copy(update={"timestamp": timestamp})).encode() for event in events)


def started(thread_id: str, run_id: str, parent_run_id: str | None, left_out: Sequence[str] = ()) -> RunStartedEvent:
    """Return the first event of a part."""
    return RunStartedEvent(
        thread_id=thread_id,
        run_id=run_id,
        parent_run_id=parent_run_id,
        protocol_version=PROTOCOL_VERSION,
        metadata={NAMESPACE: {"leftOut": list(left_out)}} if left_out else None,
    )


def _result_event(item: ToolResultItem, metadata: JsonObject | None) -> ToolCallResultEvent:
    if item.status != "completed":
        metadata = {NAMESPACE: {**(metadata or {}).get(NAMESPACE, {}), "status": item.status}}
    return ToolCallResultEvent(
        message_id=item.id,
        tool_call_id=f"call_{item.id.removeprefix('res_')}",
        content=content_of(item.content) or item.error or "",
        role="tool",
        metadata=metadata,
    )


def _renamed(message: Message, restarts: dict[str, int]) -> Message:
    """Return a message with the id by which the stream sent it."""
    again = restarts.get(message.id)
    return message if again is None else message.model_copy(update={"id": f"{message.id}.{again}"})


def _interrupt(question: QuestionItem) -> Interrupt:
    request = question.request
    schema: JsonObject
    if isinstance(request, AskApproval):
        schema = {
            "type": "object",
            "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
            "required": ["approved"],
        }
        message = request.reason or f"May {request.tool_name} be called?"
    else:
        answer: JsonObject = {"type": "string"}
        if request.options:
            answer["enum" if request.only_options else "examples"] = list(request.options)
        schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
        message = request.question
    return Interrupt(
        id=interrupt_id(question),
        reason="tool_call" if isinstance(request, AskApproval) else "input_required",
        message=message,
        tool_call_id=tool_call_id(question),
        response_schema=schema,
    )


def _is_stopped(run: RunView) -> bool:
    """Return whether a run was stopped before it was complete: by its caller, or by a limit."""
    return run.status == "canceled" or run.limit_reached is not None


def _usage(usage: UsageView) -> TokenUsage:
    read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return TokenUsage(
        input_tokens=read,
        output_tokens=usage.output_tokens,
        total_tokens=read + usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cached_input_tokens=usage.cache_read_tokens,
        cache_write_input_tokens=usage.cache_write_tokens,
    )


def _step_name(step: int) -> str:
    return f"step {step + 1}"
