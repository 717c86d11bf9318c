"""The HTTP contract of agents, threads and runs, shared by the API and the typed client.

What else there is has modules of its own beside this one; `bodies` says what all of them have in common.
"""

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from nova_workers.contracts.agents import AgentId, AgentSpec
from nova_workers.contracts.bodies import Body, Moment, Problem, View
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.engine import Limit
from nova_workers.contracts.waits import WaitView
from nova_workers.vocabulary import OnBusy, OpenRunStatus, RunQueue, RunStatus

__all__ = [
    "IDEMPOTENCY_KEY_PATTERN",
    "MAX_BATCH",
    "MAX_START_DAYS",
    "AgentCreate",
    "AgentPatch",
    "AgentReplace",
    "AgentView",
    "BulkCancel",
    "BulkCancelled",
    "MessageView",
    "Metadata",
    "OnBusy",
    "RunBatch",
    "RunBatchItem",
    "RunBatchOutcome",
    "RunBatchView",
    "RunCreate",
    "RunEdit",
    "RunError",
    "RunQueue",
    "RunStatus",
    "RunView",
    "StatelessRunCreate",
    "ThreadCreate",
    "ThreadFork",
    "ThreadPatch",
    "ThreadView",
    "ToolCallView",
    "TurnView",
    "UsageView",
]

MAX_START_DAYS = 366
"""How far ahead a run may start, in days."""
MAX_BATCH = 100
"""Most messages in one request."""
IDEMPOTENCY_KEY_PATTERN = r"^[\x21-\x7e]+$"
IdempotencyKey = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=IDEMPOTENCY_KEY_PATTERN)]
DEFAULT_COLLECT_MS = 2_000
MAX_COLLECT_MS = 60_000


_Text = Annotated[str, StringConstraints(min_length=1)]
Metadata = Annotated[dict[str, Any], Field(max_length=64)]


class AgentCreate(AgentSpec):
    """A new agent."""

    id: AgentId


class AgentReplace(AgentSpec):
    """The whole new configuration of an agent; becomes its next version."""


def _without_defaults(schema: dict[str, Any]) -> None:
    for field in schema.get("properties", {}).values():
        field.pop("default", None)


class AgentPatch(AgentSpec):
    """Fields of an agent to change, each as a whole; those left out stay."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)

    name: Annotated[str, Field(min_length=1, max_length=200)] = "unchanged"


class AgentView(View):
    """An agent as it stands, or one of its versions."""

    id: str
    version: int
    spec: AgentSpec
    created_by: str
    """Who made this version: `person`, `seed`, or the id of an agent."""
    created_at: datetime
    updated_at: datetime


class ThreadCreate(Body):
    """A new, empty conversation."""

    agent_id: AgentId = "nova"
    title: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    label: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    metadata: Metadata = Field(default_factory=dict[str, Any])


class ThreadPatch(Body):
    """Fields to change; those left out stay."""

    title: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    label: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    metadata: Metadata | None = None


class ThreadFork(Body):
    """A new thread that goes on from a turn of this one. Nothing is copied."""

    turn_id: str | None = None
    """None forks at the head."""
    title: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    label: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None


class ThreadView(View):
    """A conversation."""

    id: str
    agent_id: str
    title: str | None
    label: str | None
    head_turn_id: str | None
    active_run_id: str | None
    waiting_for: str | None
    """What the active run waits for, in words, while it waits."""
    turn_count: int
    forked_from_thread_id: str | None
    forked_from_turn_id: str | None
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


NO_WORKER_ALIVE = "no worker is alive"
"""In `RunView.waiting_for` of a queued run that no worker can take."""


class RunCreate(Body):
    """A message for the agent of a thread."""

    message: _Text | Annotated[list[ContentBlock], Field(min_length=1, max_length=200)]
    """Text, or content blocks (text, image, document)."""
    on_busy: OnBusy = "enqueue"
    model: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    max_turns: Annotated[int, Field(strict=True, ge=1, le=1_000)] | None = None
    queue: RunQueue = "interactive"
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0
    """Where the fleet is busy, runs of the same tenant with a higher one go first. A thread keeps its order."""
    metadata: Metadata = Field(default_factory=dict[str, Any])
    start_at: Moment | None = None
    """Not before this time, at most 366 days ahead: the run takes its place in the thread's line then."""
    collect_ms: Annotated[int, Field(strict=True, ge=1, le=MAX_COLLECT_MS)] = DEFAULT_COLLECT_MS
    """With ``on_busy: collect``: how long the thread's messages are gathered, from the first of them, into one turn."""

    @model_validator(mode="after")
    def _starts_in_one_way(self) -> Self:
        if self.start_at is not None and self.on_busy not in {"enqueue", "steer"}:
            raise ValueError(f"start_at: on_busy {self.on_busy!r} is decided now, not then; use enqueue or steer")
        return self


class StatelessRunCreate(RunCreate):
    """A message for a thread, or for a new thread of an agent when `thread_id` is left out."""

    thread_id: str | None = None
    agent_id: AgentId | None = None


class RunBatchItem(StatelessRunCreate):
    """One message of a batch."""

    idempotency_key: IdempotencyKey | None = None
    """As the header ``Idempotency-Key`` of a single message, and bound to the same runs."""


class RunBatch(Body):
    """Messages to submit in one request."""

    items: Annotated[list[RunBatchItem], Field(min_length=1, max_length=MAX_BATCH)]


class RunEdit(Body):
    """A new message for a run that is still queued."""

    message: _Text | Annotated[list[ContentBlock], Field(min_length=1, max_length=200)]


class RunError(View):
    """Why a run failed."""

    kind: str
    message: str
    retryable: bool


class UsageView(View):
    """Tokens and cost. `cost_usd` is null where the price of the model is not known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None


class RunView(View):
    """A run as it stands."""

    id: str
    thread_id: str
    agent_id: str
    agent_version: int | None = None
    status: RunStatus
    queue: RunQueue
    on_busy: OnBusy
    source: str
    message: list[ContentBlock]
    model: str | None = None
    max_turns: int | None = None
    priority: int = 0
    trigger_id: str | None = None
    """The trigger that fired it."""
    metadata: dict[str, Any]
    start_at: datetime | None = None
    """Not before this time."""
    attempt: int
    position: int | None = None
    """Queued only: 0 is next in its thread's line."""
    waiting_for: str | None = None
    """Queued or waiting only: why it does not run yet, in words."""
    waits: list[WaitView] = Field(default_factory=list[WaitView])
    """Waiting only: what it waits for. Those of the kinds `user` and `approval` take an answer."""
    cancel_requested_at: datetime | None = None
    turn_id: str | None = None
    merged_into: str | None = None
    stop_reason: str | None = None
    limit_reached: Limit | None = None
    """Which of its own bounds ended the turn: model calls (`turns`), `tokens` or `cost`."""
    text: str | None = None
    output: Any = None
    """Of an agent with an output schema: the answer as a JSON value that fulfils it."""
    error: RunError | None = None
    usage: UsageView | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None


class RunBatchOutcome(View):
    """What became of one message of a batch: a run, or why there is none."""

    status: int
    """The status that the message would have had by itself: 202, or that of the problem."""
    run: RunView | None = None
    problem: Problem | None = None


class RunBatchView(View):
    """What became of the messages of a batch, in their order."""

    items: list[RunBatchOutcome]


class BulkCancel(Body):
    """Which runs to cancel: all open ones that match every field given. At least one field is needed."""

    thread_id: str | None = None
    agent_id: str | None = None
    status: OpenRunStatus | None = None
    run_ids: Annotated[list[str], Field(max_length=1_000)] | None = None


class BulkCancelled(View):
    """What a bulk cancel did."""

    canceled: int
    """Ended at once."""
    requested: int
    """Running; they stop in a moment."""


class ToolCallView(View):
    """A tool call of a turn."""

    id: str
    tool_name: str
    params: dict[str, Any]
    status: str
    result: list[ContentBlock] | None
    error: str | None
    step: int
    spawned_run_id: str | None = None
    """The run that it started, where it asked an agent."""
    started_at: datetime | None
    completed_at: datetime | None


class TurnView(View):
    """An executed turn."""

    id: str
    thread_id: str
    run_id: str | None
    parent_turn_id: str | None
    depth: int
    type: str
    status: str
    agent_id: str
    agent_version: int | None
    engine: str | None
    model: str | None
    provider: str | None = None
    role: str | None = None
    toolset_name: str | None = None
    tools_available: list[str] | None = None
    permissions_granted: dict[str, Any] | None = None
    permissions_used: dict[str, Any] | None = None
    source_event_id: str | None = None
    workspace_path: str | None = None
    steps: int
    tool_calls: list[ToolCallView]
    usage: UsageView
    stop_reason: str | None
    error: RunError | None = None
    started_at: datetime
    completed_at: datetime | None


class MessageView(View):
    """A message of a conversation, oldest first."""

    id: str
    turn_id: str
    thread_id: str
    kind: str
    role: str
    content: list[ContentBlock]
    created_at: datetime
