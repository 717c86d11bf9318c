"""Values of the run protocol that homes, engines and clients share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from nova_workers.base.vocabulary import (
    CancelReason,
    EffectCondition,
    FinishStatus,
    OnBusy,
    RunQueue,
    RunSource,
    TurnRole,
)
from nova_workers.contracts.agents import AgentSpec, Ceilings
from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.engine import EngineError, Limit, StepRecord, StopReason, TrustLevel
from nova_workers.contracts.event_context import EventContext
from nova_workers.contracts.events import DeliveryTarget
from nova_workers.contracts.orchestration import OrchestrationPlace
from nova_workers.contracts.run_options import RunOptions, StoredOptions
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import HoldDetail

__all__ = [
    "COMMON_POOL",
    "SHARED_LOSSES",
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
    "RequestKey",
    "Submission",
    "TurnFacts",
    "TurnRole",
    "WorkerPool",
    "pool_queue",
]


@dataclass(frozen=True, slots=True)
class Doorbell:
    """The run to announce to workers, and its queue."""

    run_id: str
    thread_id: str
    queue: str
    """A queue of runs, such as ``interactive``; of a pool ``interactive.<pool>``; of workers with the same code of
    users ``interactive.<pool>+<key>``."""

    @property
    def run_queue(self) -> str:
        """The queue of the run, without the pool."""
        return self.queue.partition(".")[0]

    @property
    def is_routed(self) -> bool:
        """Whether it was rung for workers with certain code of users."""
        return "+" in self.queue

    def in_pool(self, pool: str, key: str = "") -> Doorbell:
        """Return it for the workers of a pool, or for those of them with certain code of users.

        Args:
            pool: Its name; empty for the common workers.
            key: Of the workers' installation; empty for any.
        """
        return replace(self, queue=pool_queue(self.run_queue, pool, key))


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """The pool of a worker, and how pools are found.

    Attributes:
        name: The pool; empty is the common workers.
        by_trust: Pools of tenants by the highest trust of their ceilings, where these name none.
    """

    name: str = ""
    by_trust: Mapping[TrustLevel, str] = field(default_factory=dict[TrustLevel, str])


COMMON_POOL = WorkerPool()

SHARED_LOSSES: Final = 2
"""The losses since its last committed step that make a run suspect: what ended its workers may have been the run. It
executes in a process of its own from then on, so that a further loss is its own and harms no other run."""


def pool_queue(queue: str, pool: str, key: str = "") -> str:
    """Return the queue of a pool, or the common one if the pool is empty; with a key that of an installation in it."""
    if key:
        return f"{queue}.{pool}+{key}"
    return f"{queue}.{pool}" if pool else queue


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """The outcome of a cancel request for one run: it `ended` at once, or its holder has to stop it."""

    doorbell: Doorbell
    ended: bool
    running: bool
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The Idempotency-Key of a request, and a hash of what is requested, which is compared if the key is used again.

    Attributes:
        ttl_s: How long the key is bound.
    """

    key: str
    body_hash: bytes
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Submission:
    """A validated message for a thread. Without `thread_id` a thread of `agent_id` is created."""

    tenant_id: str
    content: tuple[ContentBlock, ...]
    thread_id: str | None = None
    agent_id: str | None = None
    ephemeral: bool = False
    """Whether the new thread is ephemeral."""
    on_busy: OnBusy = "enqueue"
    queue: RunQueue = "interactive"
    source: RunSource = "api"
    model: str | None = None
    max_turns: int | None = None
    options: RunOptions | None = None
    """What this run has beside its agent's configuration."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    created_by: str | None = None
    """The API key of the request, which is the creator of a new thread."""
    parent_run_id: str | None = None
    priority: int = 0
    """If the fleet is busy, the tenant's runs of higher priority start first."""
    trigger_id: str | None = None
    """The trigger that fired it."""
    asked_version: int | None = None
    """The version of the agent that executes it; None is the one that is current when the run begins."""
    request: RequestKey | None = None
    traceparent: str | None = None
    start_at: datetime | None = None
    """Not before this time."""
    collect_ms: int | None = None
    """The time that ``collect`` collects messages of the thread."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A run that is in the ledger. `replayed`: it existed already, under the same idempotency key."""

    run_id: str
    thread_id: str
    agent_id: str
    seq: int
    queue: str
    created_at: datetime
    interrupted_run_id: str | None = None
    replayed: bool = False
    start_at: datetime | None = None
    """When it joins the thread's queue, if that is in the future; None if it is queued already."""

    @property
    def doorbell(self) -> Doorbell:
        """Return the doorbell that announces it to workers."""
        return Doorbell(self.run_id, self.thread_id, self.queue)


@dataclass(frozen=True, slots=True)
class DailyBudgets:
    """Spending limits of a day, in US dollars; None is unlimited. The ceiling's day is the last 24 hours."""

    tenant_usd: float | None = None
    agent_usd: float | None = None
    trigger_usd: float | None = None
    ceiling_usd: float | None = None
    """Of the tenant, set by an operator."""

    @property
    def any(self) -> bool:
        """Whether there is any limit."""
        given = self.tenant_usd, self.agent_usd, self.trigger_usd, self.ceiling_usd
        return any(limit is not None for limit in given)


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
    """Workers that were lost with this run since its last committed step."""
    max_attempts_spent: bool
    cancel_reason: CancelReason | None
    """Set if the run was canceled before this claim: end it without a model call."""
    parent_turn_id: str | None
    context_tokens: int
    """Size of the conversation before this turn, as its last model call measured it; 0 if unknown."""
    session_id: str | None
    content: tuple[ContentBlock, ...]
    model: str | None
    max_turns: int | None
    options: StoredOptions
    """What it has beside its agent's configuration; what replaces a part of that is in `agent`."""
    queue: str
    source: str
    depth: int
    """How many agents precede this one in the chain of delegation."""
    parent_run_id: str | None
    """The run that waits for this one's end."""
    task_id: int | None
    """The task that the thread is dedicated to."""
    traceparent: str | None
    created_at: datetime
    claim_latency_s: float
    """The time from when the run was queued last to the claim."""
    elapsed_s: float = 0.0
    """From the run's first start to this claim, without its waits and holds."""
    held: HoldDetail | None = None
    """What it was held for, if it was."""
    held_since: datetime | None = None
    """When that began; None if an attempt ended otherwise since then."""
    failed_for: str | None = None
    """Why a person let it end as failed; None if it is canceled otherwise, or not at all."""
    event: EventContext | None = None
    """The event that was stored at the first claim; None of a turn that an earlier release began."""
    channel: str | None = None
    """Where the answer goes: ``channel`` of the run's metadata; at most 64 characters."""
    recipient: str | None = None
    """The recipient in that channel: ``to`` of the metadata; at most 256 characters."""
    directory: str | None = None
    """Name of the agent's directory, if that is not its id: the agent was renamed."""
    thread_label: str | None = None
    trigger_id: str | None = None
    """The trigger that fired it."""
    capped: bool = False
    """Whether its tenant or agent has a limit of concurrent runs: when it ends, another run may start."""
    has_memories: bool = False
    """Whether its tenant has memories, which the prompt then mentions."""
    has_state: bool = False
    """Whether the thread has a state document."""
    budgets: DailyBudgets = DailyBudgets()
    ceilings: Ceilings | None = None
    """What agents of its tenant may be given at most; None permits everything."""
    place: OrchestrationPlace | None = None
    """Its agent's place in an orchestration, if its thread belongs to one."""

    @property
    def target(self) -> DeliveryTarget | None:
        """Where the answer goes, besides the run's stream."""
        return DeliveryTarget.of(self.channel, self.recipient, self.parent_run_id)


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """The conditions of a turn, for the ledger. None means not known yet, and leaves the ledger's value unchanged.

    Attributes:
        toolset_name: The trust level, which selects the native tools.
        tools_available: All tools that the model was offered.
        permissions_granted: The agent's permissions when the turn was executed.
        permissions_used: Verdicts on calls by tool: the count of each kind, and the rules that decided.
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
    """An effect that a run may leave behind: the finish inserts its row if the condition holds.

    Attributes:
        kind: As stored in the ledger.
        applies: Which ended runs get one.
        tenants: Those whose runs it follows; None is all.
        agents: Those whose runs it follows, by id; None is all.
        is_last: Whether it comes after the effects that are not, and beside the others that are.
    """

    kind: str
    applies: EffectCondition
    tenants: frozenset[str] | None = None
    agents: frozenset[str] | None = None
    is_last: bool = False

    def follows(self, tenant_id: str, agent_id: str) -> bool:
        """Return whether it follows runs of an agent."""
        return (self.tenants is None or tenant_id in self.tenants) and (self.agents is None or agent_id in self.agents)


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a run. Written in one fenced statement with the turn, the usage and the head pointer."""

    status: FinishStatus
    stop_reason: StopReason
    text: str
    last_step: StepRecord | None = None
    """The final step, committed here."""
    usage: TokenUsage = field(default_factory=TokenUsage)
    """Usage of this attempt's final step only; committed steps are already counted."""
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
    """Which of its own limits ended the turn, if one did."""
    output: Any = None
    """The answer as a JSON value, if the agent has an output schema. A ``null`` answer is the same as none."""
    facts: TurnFacts | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a finish: the next queued run, the number of pending effects, and times of the run."""

    usage: TokenUsage
    effects: int
    model_calls: int
    next_run: Doorbell | None
    started_at: datetime
    finished_at: datetime
    cancel_requested_at: datetime | None
