"""Live events of a run: the only definition, shared by workers, the API and clients.

Each event has an id, ``<attempt>-<seq>``: attempts count claims of the run, seq counts events within the attempt from
1, without gaps. An event that is replayed from the ledger and has no such id of its own is numbered after the event
that the client received before it: ``<attempt>-<seq>-<number>``. So the ids that one client receives always grow, and
it can resume at any of them. The open waits of a run come after all other events of its attempt; from the ledger they
have the seq `AFTER_LIVE`.

The rules for clients are in docs/http-api.md; `nova_workers.client.run_text.RunText` implements those on text.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from nova_workers.base.vocabulary import Limit, OutageReason
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import (
    AskAgent,
    AskApproval,
    AskUser,
    CallClientTool,
    HoldDetail,
    Pause,
    WaitRequest,
)

EVENTS_VERSION = 1

AFTER_LIVE = 2**53 - 1
"""A seq that is above those of all live events."""


class _Event(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore")

    at: datetime | None = None
    """When it happened, by the worker's clock. None in a replay of an event whose time is not in the ledger."""


class DeliveryTarget(BaseModel):
    """Where a run's answer goes, besides its stream."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore")

    channel: str | None = None
    """The ``channel`` of the run's metadata."""
    to: str | None = None
    """The recipient in that channel: the ``to`` of the run's metadata."""
    run_id: str | None = None
    """The run that waits for this one's answer, if an agent asked for it."""

    @classmethod
    def of(cls, channel: str | None, to: str | None, run_id: str | None) -> "DeliveryTarget | None":
        """Return the target with these parts; None if there are none."""
        return cls(channel=channel, to=to, run_id=run_id) if channel or to or run_id else None


class StreamStart(_Event):
    """A worker began an attempt: text and reasoning since the last `step` are void.

    If the response of the open step is committed and no `step` closed it, its text follows as an `assistant_message`.
    """

    type: Literal["stream_start"] = "stream_start"
    version: int = EVENTS_VERSION
    run_id: str
    thread_id: str
    attempt: int
    agent_id: str
    model: str | None = None
    label: str | None = None
    """The thread's label."""
    target: DeliveryTarget | None = None
    """None if the answer is read only from the stream or from the run."""


class Token(_Event):
    """A piece of the answer."""

    type: Literal["token"] = "token"
    text: str
    agent: str | None = None
    """The subagent that it comes from; None is the agent itself."""


class Reasoning(_Event):
    """A piece of extended thinking."""

    type: Literal["reasoning"] = "reasoning"
    text: str
    agent: str | None = None
    """The subagent that it comes from; None is the agent itself."""


class Restart(_Event):
    """The streaming response broke off and is requested again: text and reasoning since the last `step` are void."""

    type: Literal["restart"] = "restart"
    agent: str | None = None
    """The subagent that responds; None is the agent itself."""


class Thinking(_Event):
    """The turn waits for the model."""

    type: Literal["thinking"] = "thinking"


class AssistantMessage(_Event):
    """The complete text of the open step, which replaces what was streamed of it.

    Sent with the text that accompanies tool use, in a replay from the ledger, and at the start of an attempt that
    continues a committed response.
    """

    type: Literal["assistant_message"] = "assistant_message"
    text: str
    step: int | None = None
    """The step, if its response was committed before: a client that has closed this step has this text already."""
    agent: str | None = None
    """The subagent that it comes from; None is the agent itself."""


class ToolStatus(_Event):
    """A tool call began, progressed, or ended. ``running`` reports the progress of a long call in `summary`."""

    type: Literal["tool_status"] = "tool_status"
    tool_call_id: str
    tool_name: str
    status: Literal["started", "running", "completed", "failed", "interrupted"]
    summary: str | None = None
    agent: str | None = None
    """The subagent that it comes from; None is the agent itself."""


class StateChange(_Event):
    """The agent changed the thread's state document: by `patch`, a JSON Merge Patch, or to `state` as a whole.

    Sent after the `tool_status` with which its call ends. Changes by programs and people are none of the run's.
    """

    type: Literal["state"] = "state"
    version: int
    """The document's version with this change."""
    patch: JsonObject | None = None
    state: JsonObject | None = None
    tool_call_id: str
    agent: str | None = None
    """The subagent that it comes from; None is the agent itself."""


class ToolUseSummary(_Event):
    """The result of a tool call in one line."""

    type: Literal["tool_use_summary"] = "tool_use_summary"
    summary: str


class Step(_Event):
    """A step is committed: no later attempt repeats it.

    Sent twice for a step that waited: when its response is committed, and when its calls have their results.
    """

    type: Literal["step"] = "step"
    index: int


class Usage(_Event):
    """Tokens and cost of the turn so far. Sent before each `step` but the last, whose usage is in `stream_end`."""

    type: Literal["usage"] = "usage"
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None

    @classmethod
    def of(cls, used: TokenUsage) -> "Usage":
        """Return the event with these counts."""
        return cls(
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cache_read_tokens=used.cache_read_tokens,
            cache_write_tokens=used.cache_write_tokens,
            reasoning_tokens=used.reasoning_tokens,
            cost_usd=used.cost_usd,
        )


class Waiting(_Event):
    """The run gave up its slot and waits for something."""

    type: Literal["waiting"] = "waiting"
    kind: str
    """``user``, ``approval``, ``client_tool``, ``agent``, ``timer``, ``message`` or ``orchestration``."""
    tool_call_id: str | None = None
    question: str | None = None
    """The question to a person, if there is one."""
    options: tuple[str, ...] = ()
    only_options: bool = False
    """Whether an answer must be one of `options`."""
    agent_id: str | None = None
    """The agent that is asked, if there is one."""
    until: str | None = None
    tool_name: str | None = None
    """The tool that the run's caller is to execute, with the kind ``client_tool``."""
    params: dict[str, Any] | None = None
    """The arguments of that call."""

    @classmethod
    def of(cls, tool_call_id: str, request: WaitRequest) -> "Waiting":
        """Return the event that tells followers what a run waits for."""
        question = None
        if isinstance(request, AskUser):
            question = request.question
        elif isinstance(request, AskApproval):
            question = request.reason or f"May {request.tool_name} be called?"
        return cls(
            kind=request.kind,
            tool_call_id=tool_call_id,
            question=question,
            options=request.options if isinstance(request, AskUser) else (),
            only_options=isinstance(request, AskUser) and request.only_options,
            agent_id=request.agent_id if isinstance(request, AskAgent) else None,
            until=request.until.isoformat() if isinstance(request, Pause) else None,
            tool_name=request.tool_name if isinstance(request, CallClientTool) else None,
            params=request.params if isinstance(request, CallClientTool) else None,
        )


class ProviderUnavailable(_Event):
    """The model provider cannot be used, so the turn does not go on. It is asked again.

    Sent when the turn first pauses for a second or more, and when the run gives up its slot until `next_try_at`
    (`held`).
    """

    type: Literal["provider_unavailable"] = "provider_unavailable"
    provider: str
    reason: OutageReason
    profile: str | None = None
    """The credential profile of the workers, if it is about one."""
    model: str | None = None
    """The model, if only this one is affected."""
    summary: str
    """What is wrong with which provider, key or model, in a few words."""
    message: str
    """What the provider answered."""
    advice: str
    """What an operator can do."""
    held: bool = False
    """Whether the run is queued again. Later messages of its thread wait behind it."""
    next_try_at: datetime | None = None
    """None: as soon as a worker with a key is free."""

    @classmethod
    def of(cls, detail: HoldDetail, next_try_at: datetime | None, *, held: bool) -> "ProviderUnavailable":
        """Return the event about an outage."""
        return cls(
            provider=detail.provider,
            reason=detail.outage,
            profile=detail.profile,
            model=detail.model,
            summary=detail.summary,
            message=detail.message,
            advice=detail.advice,
            held=held,
            next_try_at=next_try_at,
        )


class Steered(_Event):
    """Messages of other runs joined this turn."""

    type: Literal["steered"] = "steered"
    run_ids: tuple[str, ...]


class Compaction(_Event):
    """The older part of the conversation is summarised."""

    type: Literal["compaction"] = "compaction"
    phase: Literal["start", "end"]
    tokens_before: int | None = None
    tokens_after: int | None = None


class ContentLeftOut(_Event):
    """Something is not sent to the model, since the provider refused it or would; `note` says what and why.

    It is a block of the conversation, in whose place this turn and later ones have `note`; or tools.
    """

    type: Literal["content_left_out"] = "content_left_out"
    kind: str
    """``image``, ``document``, ``search_result`` or ``tool``."""
    note: str


class OptionLeftOut(_Event):
    """The model or the engine takes no such option of the agent's (``temperature``): the turn goes on without."""

    type: Literal["option_left_out"] = "option_left_out"
    option: str
    note: str


class AwayServer(BaseModel):
    """A tool server that does not answer."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="ignore")

    name: str
    reason: str
    output: tuple[str, ...] = ()
    """The last lines that its process wrote to stderr."""


class ToolServersAway(_Event):
    """Tool servers of the agent do not answer: the turn goes on without their tools."""

    type: Literal["tool_servers_away"] = "tool_servers_away"
    servers: tuple[AwayServer, ...]


class StreamEnd(_Event):
    """The last event of an ended run, or of an attempt that another worker will continue.

    `final` is True if the run is in a terminal state; the event then carries the outcome, so that a client needs no
    further request.
    """

    type: Literal["stream_end"] = "stream_end"
    run_id: str
    final: bool
    status: str
    stop_reason: str | None = None
    limit: Limit | None = None
    text: str | None = None
    merged_into: str | None = None
    usage: Usage | None = None


class StreamError(_Event):
    """The turn failed. `partial`: some text was sent before. A `stream_end` follows."""

    type: Literal["stream_error"] = "stream_error"
    error: str
    kind: str
    retryable: bool
    partial: bool


Event = Annotated[
    StreamStart
    | Token
    | Reasoning
    | Restart
    | Thinking
    | AssistantMessage
    | ToolStatus
    | StateChange
    | ToolUseSummary
    | Step
    | Usage
    | Waiting
    | ProviderUnavailable
    | Steered
    | Compaction
    | ContentLeftOut
    | OptionLeftOut
    | ToolServersAway
    | StreamEnd
    | StreamError,
    Field(discriminator="type"),
]

event_adapter: TypeAdapter[Event] = TypeAdapter(Event, config={"defer_build": True})
"""Parses an event from JSON; an unknown type is an error, an unknown field is not."""


class EventCursor(BaseModel):
    """The id of an event: a client's position in a run's stream. ``0-0`` is before the first."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    attempt: int = Field(default=0, ge=0, le=2**31)
    seq: int = Field(default=0, ge=0, le=2**53)
    number: int = Field(default=0, ge=0, le=2**31)
    """A number above 0 for an event that was replayed from the ledger after the event ``<attempt>-<seq>``."""

    @classmethod
    def parse(cls, text: str) -> "EventCursor":
        """Read ``<attempt>-<seq>`` or ``<attempt>-<seq>-<number>``.

        Raises:
            ValueError: The text does not have this form.
        """
        parts = text.split("-")
        if not 2 <= len(parts) <= 3 or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"{text!r} is not an event id; expected <attempt>-<seq>, such as 1-42")
        return cls(**dict(zip(("attempt", "seq", "number"), map(int, parts), strict=False)))

    def __str__(self) -> str:
        return f"{self.attempt}-{self.seq}-{self.number}" if self.number else f"{self.attempt}-{self.seq}"

    def key(self) -> tuple[int, int, int]:
        """Return a value that orders cursors of one run."""
        return (self.attempt, self.seq, self.number)

    def following(self) -> "EventCursor":
        """Return the id of an event that is replayed from the ledger after this one."""
        return EventCursor.model_construct(attempt=self.attempt, seq=self.seq, number=self.number + 1)
