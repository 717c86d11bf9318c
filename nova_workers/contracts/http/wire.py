"""The HTTP contract of agents, threads and runs, shared by the API and the typed client.

Other subjects have their own modules in this package; `bodies` has the common parts.
"""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, StringConstraints, model_validator

from nova_workers.base.errors import EngineErrorKind
from nova_workers.base.vocabulary import (
    Limit,
    OnBusy,
    OpenRunStatus,
    Rating,
    RetryRefusal,
    RunQueue,
    RunSource,
    RunStatus,
    StopReason,
)
from nova_workers.contracts.agents import AgentId, AgentSpec
from nova_workers.contracts.authors.rights import ADDRESSEE, BOUND, FREE, MESSAGE, MODEL, PARTS, authored
from nova_workers.contracts.bodies import Body, Moment, Name, OneLine, Page, Problem, View
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.http.agents import MAX_VERSION
from nova_workers.contracts.run_options import RunOptions, ToolChoice
from nova_workers.contracts.waits import HoldView, WaitView

__all__ = [
    "IDEMPOTENCY_KEY_PATTERN",
    "MAX_BATCH",
    "MAX_BULK_CANCEL",
    "MAX_PAST_MESSAGES",
    "MAX_START_DAYS",
    "OPENING_CHARS",
    "AgentCreate",
    "AgentPatch",
    "AgentReplace",
    "AgentView",
    "BulkCancel",
    "BulkCanceled",
    "BulkRetried",
    "BulkRetry",
    "MessageView",
    "Metadata",
    "OnBusy",
    "PastMessage",
    "RestoredContent",
    "RunBatch",
    "RunBatchItem",
    "RunBatchOutcome",
    "RunBatchView",
    "RunCreate",
    "RunEdit",
    "RunError",
    "RunPage",
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
"""Limit of messages in one request."""
MAX_PAST_MESSAGES = 10_000
"""Most messages of one import."""
MAX_BULK_CANCEL = 1_000
"""Most runs that one request cancels."""
OPENING_CHARS = 200
"""Most characters of a thread's `opening`."""
IDEMPOTENCY_KEY_PATTERN = r"^[\x21-\x7e]+$"
IdempotencyKey = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=IDEMPOTENCY_KEY_PATTERN)]
DEFAULT_COLLECT_MS = 2_000
MAX_COLLECT_MS = 60_000


_Text = Annotated[str, StringConstraints(min_length=1)]
Metadata = Annotated[dict[str, Any], Field(max_length=64)]


@authored(
    id=FREE,
)
class AgentCreate(AgentSpec):
    """A new agent."""

    model_config = ConfigDict(defer_build=True)

    id: AgentId
    name: Name
    """What people call it."""


class AgentReplace(AgentSpec):
    """An agent's complete new configuration; becomes its next version."""

    model_config = ConfigDict(defer_build=True)

    name: Name
    """What people call it."""


def _without_defaults(schema: dict[str, Any]) -> None:
    for field in schema.get("properties", {}).values():
        field.pop("default", None)


class AgentPatch(AgentSpec):
    """Fields of an agent to change, each replaced completely; omitted fields stay unchanged."""

    model_config = ConfigDict(json_schema_extra=_without_defaults, defer_build=True)

    name: Name = "unchanged"


class AgentView(View):
    """An agent's current version, or an earlier one."""

    id: str
    version: int
    spec: AgentSpec
    created_by: str
    """The author of this version: `person`, `seed`, or the id of an agent."""
    renamed_from: str | None = None
    """The agent's id before, if this version was made by a rename."""
    created_at: datetime
    updated_at: datetime


ImportEffect = Literal["embeddings"]
"""Work after an import that is done only if it is asked for."""

_OTHER_ROLES = {
    "system": "leave it out: an agent's instructions are in its configuration",
    "developer": "leave it out: an agent's instructions are in its configuration",
    "tool": "send the result as a 'tool_result' block in a message of the role 'user'",
    "function": "send the result as a 'tool_result' block in a message of the role 'user'",
}


def _known_role(role: object) -> object:
    if isinstance(role, str) and role in _OTHER_ROLES:
        raise ValueError(f"{role!r} is no role of a message; {_OTHER_ROLES[role]}")
    return role


@authored(
    role=MESSAGE,
    content=MESSAGE,
    created_at=FREE,
)
class PastMessage(Body):
    """A message of a conversation that took place elsewhere."""

    role: Annotated[Literal["user", "assistant"], BeforeValidator(_known_role)]
    content: (
        Annotated[str, StringConstraints(min_length=1)]
        | Annotated[list[ContentBlock], Field(min_length=1, max_length=200)]
    )
    """Text, or content blocks: of a user `text`, `image`, `document` and `tool_result`, of an assistant `text` and
    `tool_use`."""
    created_at: Moment | None = None
    """When it was written; if omitted, when the message before it was."""


@authored(
    agent_id=ADDRESSEE,
    title=FREE,
    label=FREE,
    metadata=FREE,
    ephemeral=FREE,
    messages=PARTS,
    effects=FREE,
)
class ThreadCreate(Body):
    """A new conversation: empty, or with the messages of one that took place elsewhere."""

    agent_id: AgentId = "nova"
    title: Name | None = None
    label: Name | None = None
    metadata: Metadata = Field(default_factory=dict[str, Any])
    ephemeral: StrictBool = False
    """Whether it is in no list or search, gets no title, and is purged 24 hours after its last use."""
    messages: Annotated[list[PastMessage], Field(max_length=MAX_PAST_MESSAGES)] = Field(
        default_factory=list[PastMessage]
    )
    """Oldest first. Each tool call has its result in the message that follows."""
    effects: Annotated[list[ImportEffect], Field(max_length=1)] = Field(default_factory=list[ImportEffect])
    """What follows the import. `embeddings`: search by meaning finds the messages too. By default nothing follows, and
    search finds them by their words."""

    @model_validator(mode="after")
    def _finds_what_is_kept(self) -> Self:
        if self.ephemeral and self.effects:
            raise ValueError("effects: no search finds an ephemeral thread; leave out effects, or ephemeral")
        return self


@authored(
    title=FREE,
    label=FREE,
    metadata=FREE,
    pinned=FREE,
    archived=FREE,
)
class ThreadPatch(Body):
    """Fields to change; omitted fields stay unchanged."""

    title: Name | None = None
    label: Name | None = None
    metadata: Metadata | None = None
    pinned: StrictBool = False
    """Whether lists for people have it first."""
    archived: StrictBool = False
    """Whether lists for people leave it out. It still takes messages, which leave it archived."""


@authored(
    turn_id=ADDRESSEE,
    title=FREE,
    label=FREE,
)
class ThreadFork(Body):
    """A new thread that continues from a turn of this one, with a copy of the state document. No turn is copied."""

    turn_id: str | None = None
    """None forks at the head."""
    title: Name | None = None
    label: Name | None = None


class ThreadView(View):
    """A conversation."""

    id: str
    agent_id: str
    title: str | None
    label: str | None
    opening: str | None
    """The beginning of its first message, while it has no title. Null with a title."""
    head_turn_id: str | None
    active_run_id: str | None
    waiting_for: str | None
    """A phrase that says what the active run waits for, while it waits."""
    turn_count: int
    forked_from_thread_id: str | None
    forked_from_turn_id: str | None
    orchestration_id: str | None
    """The orchestration that one of its agents has it for."""
    ephemeral: bool = False
    """Whether it is in no list or search, gets no title, and is purged 24 hours after its last use."""
    origin: RunSource = "api"
    """What began it. `channel`: an inbound channel, which its `metadata` names; `api`: another request, also for a
    fork."""
    created_by: str | None = None
    """The API key, or the person after single sign-on, whose request began it. Null if none did, and for threads that
    older releases made."""
    pinned: bool = False
    """Whether lists for people have it first."""
    archived: bool = False
    """Whether lists for people leave it out."""
    imported_at: datetime | None = None
    """When it was imported with its first messages; null for a thread that began here."""
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


NO_WORKER_ALIVE = "no worker is alive"
"""The text of `RunView.waiting_for` of a queued run that no worker can take."""
REDIS_UNAVAILABLE = "Redis does not answer"
"""The text of `RunView.waiting_for` of a queued run whose doorbell reaches no worker."""


@authored(
    message=MESSAGE,
    on_busy=FREE,
    model=MODEL,
    max_turns=BOUND,
    queue=FREE,
    priority=FREE,
    metadata=FREE,
    start_at=BOUND,
    collect_ms=BOUND,
)
class RunCreate(RunOptions):
    """A message for the agent of a thread."""

    message: _Text | Annotated[list[ContentBlock], Field(min_length=1, max_length=200)]
    """Text, or content blocks (text, image, document)."""
    on_busy: OnBusy = "enqueue"
    model: Name | None = None
    max_turns: Annotated[int, Field(strict=True, ge=1, le=1_000)] | None = None
    queue: RunQueue = "interactive"
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0
    """If the fleet is busy, the tenant's runs of higher priority start first. A thread keeps its order."""
    metadata: Metadata = Field(default_factory=dict[str, Any])
    start_at: Moment | None = None
    """Earliest start, at most 366 days ahead: the run joins the thread's queue then."""
    collect_ms: Annotated[int, Field(strict=True, ge=1, le=MAX_COLLECT_MS)] = DEFAULT_COLLECT_MS
    """The time that ``on_busy: collect`` collects the thread's messages into one turn, from the first one."""

    @model_validator(mode="after")
    def _starts_in_one_way(self) -> Self:
        if self.start_at is not None and self.on_busy not in {"enqueue", "steer"}:
            raise ValueError(f"start_at: on_busy {self.on_busy!r} is decided now, not then; use enqueue or steer")
        return self

    @model_validator(mode="after")
    def _has_options_in_a_turn_of_its_own(self) -> Self:
        if self.on_busy in {"steer", "collect"} and (options := self.options()) is not None:
            names = ", ".join(sorted(options.model_fields_set))
            raise ValueError(f"{names}: with on_busy {self.on_busy!r} a message may join another's turn; use enqueue")
        return self


@authored(
    thread_id=ADDRESSEE,
    agent_id=ADDRESSEE,
    ephemeral=FREE,
)
class StatelessRunCreate(RunCreate):
    """A message for a thread, or for a new thread of an agent if `thread_id` is omitted."""

    thread_id: str | None = None
    agent_id: AgentId | None = None
    ephemeral: StrictBool = False
    """Whether the new thread is in no list or search, gets no title, and is purged 24 hours after its last use."""


@authored(
    idempotency_key=FREE,
)
class RunBatchItem(StatelessRunCreate):
    """One message of a batch."""

    idempotency_key: IdempotencyKey | None = None
    """Same as the header ``Idempotency-Key`` of a single message; both share one key space."""


@authored(
    items=PARTS,
)
class RunBatch(Body):
    """Messages to submit in one request."""

    items: Annotated[list[RunBatchItem], Field(min_length=1, max_length=MAX_BATCH)]


@authored(
    message=MESSAGE,
)
class RunEdit(Body):
    """A new message for a run that is still queued."""

    message: _Text | Annotated[list[ContentBlock], Field(min_length=1, max_length=200)]


class RunError(View):
    """Why a run failed."""

    kind: str
    message: str
    retryable: bool


class UsageView(View):
    """Tokens and cost. `cost_usd` is null if the model's price is unknown."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None


class RunView(View):
    """A run."""

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
    client_tools: list[str] = Field(default_factory=list[str])
    """Names of the tools that its caller executes."""
    instructions: str | None = None
    """What its caller added to the agent's instructions."""
    temperature: float | None = None
    max_output_tokens: int | None = None
    output_schema: dict[str, Any] | None = None
    tool_choice: ToolChoice | None = None
    native_tools: list[str] | None = None
    """The native tools that its caller left to it, of those that the agent has. Null: all of these."""
    priority: int = 0
    trigger_id: str | None = None
    """The trigger that fired it."""
    metadata: dict[str, Any]
    start_at: datetime | None = None
    """Not before this time."""
    attempt: int
    losses: int = 0
    """Workers that it lost since its last committed step. The step that the lost worker was in does not count."""
    suspect: bool = False
    """Open runs only: it lost so many workers that it executes in a process of its own until it commits a step."""
    position: int | None = None
    """Queued only: its position in the thread's queue; 0 is next, and 1,000 means that or more."""
    waiting_for: str | None = None
    """Queued or waiting only: a phrase that says why it does not run yet."""
    hold: HoldView | None = None
    """Queued only: the model provider that cannot be used, if it waits for one."""
    waits: list[WaitView] = Field(default_factory=list[WaitView])
    """Waiting only: what it waits for. Waits of the kinds `user` and `approval` accept an answer, those of
    the kind `client_tool` a result."""
    cancel_requested_at: datetime | None = None
    turn_id: str | None = None
    merged_into: str | None = None
    stop_reason: StopReason | None = None
    limit_reached: Limit | None = None
    """Which of its own limits ended the turn: model calls (`turns`), `tokens` or `cost`."""
    text: str | None = None
    output: Any = None
    """The answer of an agent with an output schema, as a JSON value that matches it."""
    error: RunError | None = None
    usage: UsageView | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None


class RunBatchOutcome(View):
    """The outcome of one message of a batch: a run, or the problem."""

    status: int
    """The HTTP status that a request with this message alone would have had: 202, or the problem's."""
    run: RunView | None = None
    problem: Problem | None = None


class RunBatchView(View):
    """The outcomes of a batch's messages, in order."""

    items: list[RunBatchOutcome]


_RunRelation = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")] | None


class RunPage(Page[RunView]):
    """A page of the list of runs."""

    sorted_within: int | None = None
    """Set if the list is not sorted by time, and so many runs match or more: it has the newest so many of them."""
    searched_within: int | None = None
    """Set if a filter without an index looked at so many runs and not at all: at the newest of those that the other
    filters select. Sorted by time, the list goes on behind them with `next_cursor`, also where a page has few runs or
    none."""


MAX_METADATA_FILTERS = 10
"""Most entries of metadata of a filter."""


class _RunMatch(Body):
    """Conditions that lists of runs and requests about many of them share, beside those that an index serves."""

    agent_version: Annotated[int, Field(ge=1, le=MAX_VERSION)] | None = None
    """Only those that this version of their agent executed."""
    source: RunSource | None = None
    """Only those that were submitted by this."""
    channel: OneLine | None = None
    """Only those with this `channel` in their metadata."""
    tag: OneLine | None = None
    """Only those with this word among the `tags` of their metadata."""
    metadata: Annotated[dict[OneLine, OneLine], Field(max_length=MAX_METADATA_FILTERS)] | None = None
    """Only those with each of these in their metadata."""
    min_cost_usd: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Only those that cost so much or more."""
    rated: Rating | None = None
    """Only those with feedback whose score is above 0 (`up`), or below (`down`)."""
    text: Annotated[OneLine, StringConstraints(min_length=1, max_length=200)] | None = None
    """Only those with this text in their message, answer or error, in any case."""


class BulkCancel(_RunMatch):
    """Which runs to cancel: all open ones that match every given field. At least one field is required."""

    thread_id: OneLine | None = None
    agent_id: OneLine | None = None
    status: OpenRunStatus | Annotated[list[OpenRunStatus], Field(min_length=1, max_length=4)] | None = None
    """One, or any of several."""
    queue: RunQueue | None = None
    trigger_id: _RunRelation = None
    """Only those that this trigger fired."""
    parent_run_id: _RunRelation = None
    """Only those that this run started."""
    since: Moment | None = None
    """Only those submitted at this time or later."""
    until: Moment | None = None
    """Only those submitted before this time."""
    run_ids: Annotated[list[str], Field(max_length=MAX_BULK_CANCEL)] | None = None
    dry_run: StrictBool = False
    """Count only: nothing is canceled, and the numbers are those of runs that would be."""


class BulkCanceled(View):
    """The result of a bulk cancellation."""

    canceled: int
    """Number of runs that ended at once."""
    requested: int
    """Number of runs that had begun, which will stop shortly."""


class BulkRetry(_RunMatch):
    """Which failed runs to try again: all that match every given field. At least one field is required."""

    thread_id: OneLine | None = None
    agent_id: OneLine | None = None
    error_kind: EngineErrorKind | None = None
    """Only those that failed of this kind."""
    queue: RunQueue | None = None
    trigger_id: _RunRelation = None
    """Only those that this trigger fired."""
    since: Moment | None = None
    """Only those submitted at this time or later."""
    until: Moment | None = None
    """Only those submitted before this time."""
    run_ids: Annotated[list[str], Field(max_length=MAX_BULK_CANCEL)] | None = None
    after: str | None = None
    """Only those after this run: `next_after` of the answer before."""
    dry_run: StrictBool = False
    """Count only: nothing is tried again, and the numbers are those of runs that would be."""


class BulkRetried(View):
    """The result of a bulk retry."""

    retried: int
    """Number of runs that are queued again."""
    skipped: dict[RetryRefusal, int]
    """Number of failed runs that cannot be tried again, by reason."""
    next_after: str | None = None
    """Set if more may match: the `after` of the next request."""


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
    """The run that it started, if it asked an agent."""
    spawned_usage: UsageView | None = None
    """What that run has used so far. It is not in the usage of this turn."""
    started_at: datetime | None
    completed_at: datetime | None


class RestoredContent(View):
    """What the model gets again from the thread's next turn on."""

    restored: list[str]
    """The notes that were in its place."""


class TurnView(View):
    """An executed turn."""

    id: str
    thread_id: str
    run_id: str | None
    parent_turn_id: str | None
    depth: int
    type: str
    imported: bool = False
    """It took place elsewhere: no run executed it, and its usage is unknown."""
    status: str
    agent_id: str
    agent_version: int | None
    rollout_id: str | None = None
    """The rollout in which it took part, with either version; null without one."""
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
    content_left_out: list[str] = Field(default_factory=list[str])
    tools_left_out: list[str] = Field(default_factory=list[str])
    """Notes that the model got in place of blocks that its provider refused."""
    steps: int
    tool_calls: list[ToolCallView]
    usage: UsageView
    stop_reason: StopReason | None
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
