"""The HTTP contract: every request and response body, shared by the API and the typed client.

Inputs forbid unknown fields, so that a typing error is a 422 and not a setting that silently did nothing.
Times are RFC 3339 in UTC. Lists come in pages with an opaque `next_cursor`.
"""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from nova_workers.contracts.agents import AgentId, AgentSpec
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.engine import Limit
from nova_workers.contracts.waits import WaitView

__all__ = [
    "AgentCreate",
    "AgentPatch",
    "AgentReplace",
    "AgentView",
    "BulkCancel",
    "BulkCancelled",
    "FleetPause",
    "FleetView",
    "KeyCreate",
    "KeyCreated",
    "KeyView",
    "MessageView",
    "Metadata",
    "OnBusy",
    "Page",
    "Problem",
    "QueueDepth",
    "RunCreate",
    "RunEdit",
    "RunError",
    "RunQueue",
    "RunStatus",
    "RunView",
    "Scope",
    "StatelessRunCreate",
    "SwitchView",
    "ThreadCreate",
    "ThreadFork",
    "ThreadPatch",
    "ThreadView",
    "ToolCallView",
    "TurnView",
    "UsageView",
    "WorkerView",
]

OnBusy = Literal["enqueue", "reject", "interrupt", "steer"]
RunStatus = Literal["queued", "running", "waiting", "succeeded", "failed", "canceled", "merged"]
RunQueue = Literal["interactive", "background"]

Scope = Literal["runs", "agents", "workspace", "secrets", "keys", "operator"]
"""What a key may do. `runs`: threads, runs, answers to them, usage. `agents`: agents. `workspace`: tasks, notes, files,
memories, skills, triggers, and the whole of it as an export. `secrets`: secrets. `keys`: API keys of its tenant.
`operator`: the whole fleet, across tenants (pause, depth, workers)."""

_Text = Annotated[str, StringConstraints(min_length=1)]
Metadata = Annotated[dict[str, Any], Field(max_length=64)]
T = TypeVar("T")


class _In(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Out(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Problem(_Out):
    """An error, as RFC 9457 has it (``application/problem+json``).

    `code` is stable for programs; `detail` quotes the value and says what to do; `errors` names fields.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    instance: str | None = None
    errors: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    context: dict[str, Any] = Field(default_factory=dict[str, Any])


class Page(_Out, Generic[T]):
    """One page of a list, newest first unless said otherwise. `next_cursor` is null on the last page."""

    items: list[T]
    next_cursor: str | None = None


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


class AgentView(_Out):
    """An agent as it stands, or one of its versions."""

    id: str
    version: int
    spec: AgentSpec
    created_by: str
    """Who made this version: `person`, `seed`, or the id of an agent."""
    created_at: datetime
    updated_at: datetime


class ThreadCreate(_In):
    """A new, empty conversation."""

    agent_id: AgentId = "nova"
    title: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    label: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    metadata: Metadata = Field(default_factory=dict[str, Any])


class ThreadPatch(_In):
    """Fields to change; those left out stay."""

    title: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    label: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    metadata: Metadata | None = None


class ThreadFork(_In):
    """A new thread that goes on from a turn of this one. Nothing is copied."""

    turn_id: str | None = None
    """None forks at the head."""
    title: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    label: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None


class ThreadView(_Out):
    """A conversation."""

    id: str
    agent_id: str
    title: str | None
    label: str | None
    head_turn_id: str | None
    active_run_id: str | None
    turn_count: int
    forked_from_thread_id: str | None
    forked_from_turn_id: str | None
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class RunCreate(_In):
    """A message for the agent of a thread."""

    message: _Text | Annotated[list[ContentBlock], Field(min_length=1, max_length=200)]
    """Text, or content blocks (text, image, document)."""
    on_busy: OnBusy = "enqueue"
    model: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    max_turns: Annotated[int, Field(ge=1, le=1_000)] | None = None
    queue: RunQueue = "interactive"
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    """Where the fleet is busy, runs of the same tenant with a higher one go first. A thread keeps its order."""
    metadata: Metadata = Field(default_factory=dict[str, Any])


class StatelessRunCreate(RunCreate):
    """A message for a thread, or for a new thread of an agent when `thread_id` is left out."""

    thread_id: str | None = None
    agent_id: AgentId | None = None


class RunEdit(_In):
    """A new message for a run that is still queued."""

    message: _Text | Annotated[list[ContentBlock], Field(min_length=1, max_length=200)]


class RunError(_Out):
    """Why a run failed."""

    kind: str
    message: str
    retryable: bool


class UsageView(_Out):
    """Tokens and cost. `cost_usd` is null where the price of the model is not known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None


class RunView(_Out):
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


class BulkCancel(_In):
    """Which runs to cancel: all open ones that match every field given. At least one field is needed."""

    thread_id: str | None = None
    agent_id: str | None = None
    status: Literal["queued", "running", "waiting"] | None = None
    run_ids: Annotated[list[str], Field(max_length=1_000)] | None = None


class BulkCancelled(_Out):
    """What a bulk cancel did."""

    canceled: int
    """Ended at once."""
    requested: int
    """Running; they stop in a moment."""


class ToolCallView(_Out):
    """A tool call of a turn."""

    id: str
    tool_name: str
    params: dict[str, Any]
    status: str
    result: list[ContentBlock] | None
    error: str | None
    step: int
    started_at: datetime | None
    completed_at: datetime | None


class TurnView(_Out):
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
    steps: int
    tool_calls: list[ToolCallView]
    usage: UsageView
    stop_reason: str | None
    error: RunError | None = None
    started_at: datetime
    completed_at: datetime | None


class MessageView(_Out):
    """A message of a conversation, oldest first."""

    id: str
    turn_id: str
    thread_id: str
    kind: str
    role: str
    content: list[ContentBlock]
    created_at: datetime


class KeyCreate(_In):
    """A new API key."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    scopes: Annotated[list[Scope], Field(min_length=1)] = Field(default_factory=lambda: ["runs", "agents", "workspace"])
    expires_at: datetime | None = None


class KeyView(_Out):
    """An API key, without its secret."""

    id: str
    name: str
    prefix: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class KeyCreated(KeyView):
    """A new key with its secret, which is shown this once."""

    key: str


class QueueDepth(_Out):
    """Runs that stand in line on one queue."""

    queue: str
    queued: int
    oldest_queued_age_s: float | None


class WorkerView(_Out):
    """A live worker process."""

    id: str
    host: str
    pid: int
    queues: list[str]
    slots: int
    busy: int
    draining: bool
    seen_at: datetime


class SwitchView(_Out):
    """A pause that stands."""

    scope: Literal["fleet", "tenant", "agent"]
    target: str | None
    reason: str | None
    created_at: datetime


class FleetPause(_In):
    """What to pause or resume. `fleet` needs the `operator` scope; `agent` takes the agent's id."""

    scope: Literal["fleet", "tenant", "agent"] = "tenant"
    agent_id: AgentId | None = None
    reason: Annotated[str, StringConstraints(max_length=500)] | None = None


class FleetView(_Out):
    """The fleet at a glance. Counts are of the key's tenant, or of all with the `operator` scope."""

    runs: dict[str, int]
    """Open runs by status, and those that ended in the last hour."""
    queues: list[QueueDepth]
    workers: list[WorkerView]
    switches: list[SwitchView]
