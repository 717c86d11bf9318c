"""Values of the run protocol that cross rooms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.engine import EngineError, Limit, StepRecord, StopReason
from nova_workers.contracts.events import DeliveryTarget
from nova_workers.contracts.usage import TokenUsage
from nova_workers.vocabulary import (
    CancelReason,
    EffectCondition,
    EffectKind,
    FinishStatus,
    OnBusy,
    RunQueue,
    RunSource,
    TurnRole,
)

__all__ = [
    "Accepted",
    "CancelReason",
    "CancelRequest",
    "Claim",
    "DailyBudgets",
    "Doorbell",
    "Finish",
    "FinishStatus",
    "Finished",
    "PlannedEffect",
    "Submission",
    "TurnFacts",
    "TurnRole",
]


@dataclass(frozen=True, slots=True)
class Doorbell:
    """Which run to ring for, and on which queue."""

    run_id: str
    thread_id: str
    queue: str


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """The outcome of a cancel request for one run: it `ended` at once, or its holder is asked to stop."""

    doorbell: Doorbell
    ended: bool
    running: bool
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    """A message for a thread, checked for form. With no `thread_id` a thread of `agent_id` is made."""

    tenant_id: str
    content: tuple[ContentBlock, ...]
    thread_id: str | None = None
    agent_id: str | None = None
    on_busy: OnBusy = "enqueue"
    queue: RunQueue = "interactive"
    source: RunSource = "api"
    model: str | None = None
    max_turns: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    parent_run_id: str | None = None
    priority: int = 0
    """Higher goes first among the runs of its tenant, where the fleet is busy."""
    trigger_id: str | None = None
    """The trigger that fired it."""
    idempotency_key: str | None = None
    body_hash: bytes | None = None
    """SHA-256 of the request's body; compared where the idempotency key comes again."""
    traceparent: str | None = None
    start_at: datetime | None = None
    """Not before this time."""
    collect_ms: int | None = None
    """With ``collect``: how long messages of the thread are gathered."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A run that is in the ledger. `replayed`: it was there already, under the same idempotency key."""

    run_id: str
    thread_id: str
    agent_id: str
    seq: int
    queue: str
    created_at: datetime
    interrupted_run_id: str | None = None
    replayed: bool = False
    start_at: datetime | None = None
    """When it takes its place in line, where that is later; None where it has it."""

    @property
    def doorbell(self) -> Doorbell:
        """Return the bell that wakes a worker for it."""
        return Doorbell(self.run_id, self.thread_id, self.queue)


@dataclass(frozen=True, slots=True)
class DailyBudgets:
    """What may be spent in a day of the tenant's time zone, in US dollars; None is without a bound."""

    tenant_usd: float | None = None
    agent_usd: float | None = None
    trigger_usd: float | None = None

    @property
    def any(self) -> bool:
        """Whether there is a bound at all."""
        return not (self.tenant_usd is None and self.agent_usd is None and self.trigger_usd is None)


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that this worker owns until its lease ends. Every write carries `run_id` and `fence`."""

    run_id: str
    tenant_id: str
    thread_id: str
    turn_id: str
    agent_id: str
    agent_version: int
    agent: AgentSpec
    fence: int
    attempt: int
    losses: int
    """Leases of this run that ran out."""
    max_attempts_spent: bool
    cancel_reason: CancelReason | None
    """Set when the run was canceled before this claim: end it without a model call."""
    parent_turn_id: str | None
    context_tokens: int
    """Size of the conversation before this turn, as the last model call in it measured; 0 where unknown."""
    session_id: str | None
    content: tuple[ContentBlock, ...]
    model: str | None
    max_turns: int | None
    queue: str
    source: str
    depth: int
    """How many agents stand before this one."""
    parent_run_id: str | None
    """The run that waits for this one's end."""
    task_id: int | None
    """The task that the thread is dedicated to."""
    traceparent: str | None
    created_at: datetime
    claim_latency_s: float
    """From the latest entry into the line to the claim."""
    elapsed_s: float = 0.0
    """From the run's first start to this claim, without the time in which it waited."""
    thread_title: str | None = None
    channel: str | None = None
    """Where the answer is read, as the run's metadata have it under ``channel``; at most 64 characters."""
    recipient: str | None = None
    """Who reads it in that channel, as the metadata have it under ``to``; at most 256 characters."""
    thread_label: str | None = None
    trigger_id: str | None = None
    """The trigger that fired it."""
    capped: bool = False
    """Its tenant or its agent may have only so many runs at once: its end makes room for another."""
    has_memories: bool = False
    """Its tenant has some, for a prompt to tell of."""
    budgets: DailyBudgets = DailyBudgets()
    left_usd: float | None = None
    """What the day's budgets leave for it; None where there is none, or nobody has looked yet."""

    @property
    def target(self) -> DeliveryTarget | None:
        """Where the answer is read, beside the run's stream."""
        return DeliveryTarget.of(self.channel, self.recipient, self.parent_run_id)


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What a turn was played with, for the ledger. None is what is not known yet, and changes nothing there.

    Attributes:
        toolset_name: The trust, by which native tools are offered.
        tools_available: All tools that the model was offered.
        permissions_granted: What the agent may do, as it stood when the turn was played.
        permissions_used: Verdicts on calls by tool: how many of each kind, and the rules that decided.
        workspace_path: The turn's working directory.
    """

    role: TurnRole
    toolset_name: str
    permissions_granted: Mapping[str, Any]
    permissions_used: Mapping[str, Any] | None = None
    tools_available: tuple[str, ...] | None = None
    workspace_path: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedEffect:
    """An effect that a run may leave behind: the finish inserts its row if the condition holds."""

    kind: EffectKind
    applies: EffectCondition


@dataclass(frozen=True, slots=True)
class Finish:
    """How a run ends. Written in one fenced statement with the turn, the usage and the head pointer."""

    status: FinishStatus
    stop_reason: StopReason
    text: str
    last_step: StepRecord | None = None
    """The final step, committed here."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    """Of this attempt's final step only; committed steps are already counted."""
    error: EngineError | None = None
    session_id: str | None = None
    engine: str | None = None
    model: str | None = None
    provider: str | None = None
    duration_ms: int = 0
    final_event_id: str | None = None
    first_token_at: datetime | None = None
    effects: tuple[PlannedEffect, ...] = ()
    limit: Limit | None = None
    """Which of its own bounds ended the turn, if one did."""
    output: Any = None
    """The answer as a JSON value, where the agent has an output schema. An answer that is ``null`` is as none."""
    facts: TurnFacts | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """What the finish found: who is next in line, and whether effects wait."""

    usage: TokenUsage
    effects: int
    model_calls: int
    next_run: Doorbell | None
