"""The HTTP contract of a run's timeline. Long texts are cut; the turn and its messages have them whole."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from nova_workers.base.vocabulary import (
    AttemptEnd,
    CompactionTrigger,
    DeliveryKind,
    DeliveryStatus,
    EffectStatus,
    FinishStatus,
    Limit,
    RunSource,
    RunStatus,
    StopReason,
    ToolCallStatus,
    WaitKind,
    WaitStatus,
)
from nova_workers.contracts.bodies import View
from nova_workers.contracts.http.wire import RunError, UsageView

CUT_CHARS = 2_000
"""Longest text, arguments or result of a timeline."""
MAX_ENTRIES = 200
"""Most entries of each list beside the steps."""


class CutText(View):
    """The beginning of a text, and the length of the whole."""

    text: str
    chars: int


class AttemptView(View):
    """An attempt to execute the run."""

    attempt: int
    worker_id: str | None
    started_at: datetime | None
    ended_at: datetime | None = None
    ended: AttemptEnd | FinishStatus | None = None
    """How it ended: the run waited, was requeued by its worker, was lost with its worker, met an error of our code,
    or ended. Null: it runs."""


class TimelineCall(View):
    """A tool call."""

    id: str
    tool_name: str
    status: ToolCallStatus
    arguments: CutText
    """JSON."""
    result: CutText | None
    """The texts of its result."""
    other_blocks: int = 0
    """Number of the result's blocks that are not text."""
    error: str | None
    spawned_run_id: str | None
    started_at: datetime | None
    completed_at: datetime | None


class SteeringMessage(View):
    """A message of another run that joined the turn after a step."""

    run_id: str
    text: CutText
    at: datetime


class TimelineStep(View):
    """A model call and the tools that it called."""

    index: int
    attempt: int | None
    """The attempt in which the model responded."""
    started_at: datetime | None
    """When the model was asked. Where that is not recorded it is an estimate: when the previous step, or the claim of
    the attempt, left off."""
    first_token_ms: int | None = None
    """Milliseconds from the request until the response began; null where it is not recorded."""
    responded_at: datetime
    """When the model's response was committed."""
    completed_at: datetime | None
    """When the step with its tools was committed. Null: tools run, or the run waits for one."""
    text: CutText
    calls: list[TimelineCall]
    usage: UsageView | None
    """The usage of this step. Null while it is open."""
    steered: list[SteeringMessage] = Field(default_factory=list[SteeringMessage])


class TimelineWait(View):
    """What the run waits or waited for."""

    id: str
    kind: WaitKind
    status: WaitStatus
    tool_call_id: str
    asked: CutText | None
    """The question, the message to an agent, or why approval is needed."""
    asked_agent_id: str | None
    tool_name: str | None
    """The tool that needs approval."""
    answer: dict[str, Any] | None
    """A person's answer: `text`, `approve` and `by`."""
    child_run_id: str | None
    created_at: datetime
    due_at: datetime | None
    resolved_at: datetime | None


class TimelineEffect(View):
    """Work that follows the run."""

    kind: str
    """`delivery`, `embeddings`, `title`, or the name of a package's effect, such as `crm:log_run`."""
    status: EffectStatus
    attempts: int
    error: str | None
    created_at: datetime
    done_at: datetime | None


class ChildRun(View):
    """A run that this run started."""

    id: str
    thread_id: str
    agent_id: str
    status: RunStatus
    created_at: datetime
    finished_at: datetime | None


class TimelineDelivery(View):
    """What the run's agent handed over, asked, or sent to a webhook or channel."""

    id: str
    kind: DeliveryKind
    target: str
    status: DeliveryStatus
    attempts: int
    response_status: int | None
    error: str | None
    created_at: datetime
    delivered_at: datetime | None


class TimelineCompaction(View):
    """A compaction of the conversation, or of the first steps of the turn, that the run made."""

    turn_id: str
    trigger: CompactionTrigger
    model: str
    tokens_before: int
    tokens_after: int
    started_at: datetime
    completed_at: datetime


class RunTimeline(View):
    """What happened in a run, from the ledger. Steps come in pages, oldest first."""

    run_id: str
    thread_id: str
    agent_id: str
    agent_version: int | None
    turn_id: str | None
    parent_turn_id: str | None = None
    """The turn before it in the conversation."""
    parent_run_id: str | None
    trigger_id: str | None
    merged_into: str | None
    status: RunStatus
    source: RunSource
    engine: str | None
    model: str | None
    provider: str | None
    stop_reason: StopReason | None
    limit_reached: Limit | None
    error: RunError | None
    usage: UsageView | None
    """The usage of all steps so far."""
    content_left_out: list[str] = Field(default_factory=list[str])
    """The notes that the model gets in place of content that its provider refused."""
    tools_left_out: list[str] = Field(default_factory=list[str])
    """Notes about tools that the model does not get, with the reasons."""
    step_count: int
    call_count: int
    losses: int
    """Number of attempts that were lost with their worker."""
    created_at: datetime
    start_at: datetime | None
    started_at: datetime | None
    first_token_at: datetime | None
    cancel_requested_at: datetime | None
    finished_at: datetime | None
    steps: list[TimelineStep]
    next_cursor: str | None = None
    """The cursor of the steps; null on their last page."""
    attempts: list[AttemptView]
    waits: list[TimelineWait]
    compactions: list[TimelineCompaction]
    effects: list[TimelineEffect]
    deliveries: list[TimelineDelivery]
    children: list[ChildRun]
    cut: list[Literal["attempts", "waits", "compactions", "effects", "deliveries", "children"]]
    """The lists that have more entries than the 200 newest, which are shown."""
