"""The HTTP contract of orchestrations: trees of agents, and the messages between them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from nova_workers.base.vocabulary import (
    AgentRole,
    AgentState,
    HistoryEntryType,
    PermissionMode,
    RoutedMessageType,
    RunQueue,
)
from nova_workers.contracts.agents import AgentId
from nova_workers.contracts.authors.rights import ADDRESSEE, BOUND, FREE, MESSAGE, MODEL, WITHIN, authored
from nova_workers.contracts.bodies import Body, Name, OneLine, View
from nova_workers.contracts.http.wire import Metadata, UsageView
from nova_workers.contracts.orchestration import MAX_PROMPT_CHARS, MAX_SUMMARY_CHARS, OrchestrationLimits
from nova_workers.contracts.waits import HoldView, WaitView

_Text = Annotated[str, StringConstraints(min_length=1, max_length=MAX_PROMPT_CHARS, pattern=r"\S")]


@authored(
    task=MESSAGE,
    agent_id=ADDRESSEE,
    model=MODEL,
    cwd=WITHIN,
    token_budget=BOUND,
    cost_budget_usd=BOUND,
    time_budget_s=BOUND,
    max_agent_depth=BOUND,
    max_concurrent_agents=BOUND,
    agent_timeout_seconds=BOUND,
    tool_call_timeout_seconds=BOUND,
    master_idle_seconds=BOUND,
    master=WITHIN,
    queue=FREE,
    metadata=FREE,
)
class OrchestrationCreate(Body):
    """A task for a tree of agents.

    The bounds of depth, agents and time default to those of the tenant's configuration, and may only be lower.
    """

    task: _Text
    agent_id: AgentId = "nova"
    """The agent whose trust, directories, capabilities and daily budget bound every agent of the tree."""
    model: Name | None = None
    """The master's model, as an alias or an id."""
    cwd: Annotated[str, StringConstraints(min_length=1, max_length=4_096)] | None = None
    """Working directory: an absolute path within the agent's directories."""
    token_budget: Annotated[int, Field(strict=True, ge=1, le=10**12)] | None = None
    """Tokens of all agents together."""
    cost_budget_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Cost of all agents together."""
    time_budget_s: Annotated[float, Field(gt=0, le=31_536_000)] | None = None
    """Wall-clock time until the master's end."""
    max_agent_depth: Annotated[int, Field(strict=True, ge=0, le=50)] | None = None
    max_concurrent_agents: Annotated[int, Field(strict=True, ge=1, le=1_000)] | None = None
    agent_timeout_seconds: Annotated[float, Field(gt=0, le=31_536_000)] | None = None
    tool_call_timeout_seconds: Annotated[float, Field(gt=0, le=31_536_000)] | None = None
    master_idle_seconds: Annotated[float, Field(gt=0, le=31_536_000)] | None = None
    master: Literal["agent", "external"] = "agent"
    """An agent of the fleet, or a program outside that acts with `POST /v1/orchestrations/{id}/master/calls`."""
    queue: RunQueue = "interactive"
    metadata: Metadata = Field(default_factory=dict[str, Any])


@authored(
    tool=WITHIN,
    arguments=WITHIN,
)
class MasterCall(Body):
    """A call of a tool by an external master."""

    tool: Annotated[OneLine, StringConstraints(min_length=1, max_length=64)]
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])


class MasterComplete(Body):
    """The result of an orchestration with an external master."""

    summary: Annotated[str, StringConstraints(min_length=1, max_length=MAX_SUMMARY_CHARS, pattern=r"\S")]
    artifacts: dict[str, Any] = Field(default_factory=dict[str, Any])


@authored(
    task=MESSAGE,
)
class OrchestrationContinue(Body):
    """A follow-up task for the ended master of an orchestration."""

    task: _Text


@authored(
    text=MESSAGE,
)
class AgentPrompt(Body):
    """A person's message to an agent of an orchestration."""

    text: _Text


class AgentKill(Body):
    """What to kill: an agent and everything below it, or the whole tree."""

    agent_id: Annotated[OneLine, StringConstraints(min_length=1, max_length=80)] | None = None
    """An agent's id, or a part of it that no other agent's id has. None is the master, and so the whole tree."""
    reason: Annotated[str, StringConstraints(min_length=1, max_length=2_000)] = "a person asked for it"


class MasterTool(View):
    """A tool of external masters."""

    name: str
    description: str
    input_schema: dict[str, Any]


class MasterReply(View):
    """The result of a call. With `pending` there is none yet: send the call again with the same Idempotency-Key."""

    text: str = ""
    failed: bool = False
    pending: bool = False


class OrchestrationError(View):
    """Why an agent failed or was killed."""

    code: str
    message: str


class AgentProgress(View):
    """The latest report of an agent on its progress."""

    status: str
    percent: float | None = None
    at: datetime | None = None


class TreeAgentBrief(View):
    """An agent that waits, and for which agents. An empty list: for any message, or for a person."""

    agent_id: str
    name: str
    state: AgentState
    waits_for: list[str]


class OrchestrationView(View):
    """An orchestration as it stands. Its state, summary and error are those of its master."""

    id: str
    agent_id: str
    master_id: str
    thread_id: str
    """The master's conversation."""
    run_id: str
    """The run of the master's latest activation."""
    task: str
    state: AgentState
    summary: str | None
    error: OrchestrationError | None
    model: str | None
    queue: RunQueue
    source: str
    is_external: bool
    """Whether its master is a program outside of the fleet; `run_id` is then no run."""
    config_version: int | None
    limits: OrchestrationLimits
    usage: UsageView
    """What all agents have used so far. `cost_usd` is null if no price is known."""
    agents: dict[AgentState, int]
    """How many agents are in each state; states without agents are left out."""
    waiting: list[TreeAgentBrief]
    """Agents that wait now, and for whom."""
    metadata: dict[str, Any]
    created_at: datetime
    deadline_at: datetime | None
    finished_at: datetime | None
    """When the master ended; null while it works, and again after a continuation."""


class TreeAgent(View):
    """An agent of a tree."""

    id: str
    parent_id: str | None
    depth: int
    role: AgentRole
    name: str
    state: AgentState
    prompt: str
    model: str | None
    cwd: str | None
    tools: list[str] | None
    plugins: list[str]
    permission_mode: PermissionMode
    expert_id: str | None
    thread_id: str
    run_id: str
    """The run of its latest activation. Its waits for people are answered there."""
    activations: int
    summary: str | None
    artifacts: dict[str, Any]
    error: OrchestrationError | None
    progress: AgentProgress | None
    waits_for: list[str]
    """Agents whose messages it waits for."""
    waits: list[WaitView]
    """Open questions and approvals of this agent, which a person answers."""
    hold: HoldView | None = None
    """Why its run waits for its model provider."""
    usage: UsageView
    state_at: datetime
    created_at: datetime
    ended_at: datetime | None


class OrchestrationTree(View):
    """All agents of an orchestration, in the order in which they were spawned: parents before their children."""

    id: str
    master_id: str
    agents: list[TreeAgent]


class AgentHistoryEntry(View):
    """A part of what an agent said, thought, did or was given."""

    type: HistoryEntryType
    run_id: str | None
    """The activation that it belongs to."""
    at: datetime
    text: str = ""
    call_id: str | None = None
    tool_name: str | None = None
    params: dict[str, Any] | None = None
    """Of a tool call, with all details."""
    failed: bool = False
    """Whether a tool's result is an error."""


class AgentHistory(View):
    """The conversation of an agent, oldest entry first: its newest 1,000 messages."""

    agent_id: str
    entries: list[AgentHistoryEntry]


class FileChange(View):
    """A file that an agent changed, and why."""

    id: str
    path: str
    """The file, as the call names it."""
    agent_id: str
    """The agent of the orchestration."""
    run_id: str
    tool_call_id: str
    tool_name: str
    at: datetime
    """The end of the call."""
    rationale: str | None
    """Of what the agent wrote or thought in the ten entries before the call, the text that gives most of a reason."""
    score: int
    """How much the rationale gives a reason; 0 without one."""


class OrchestrationMessageView(View):
    """A message between agents. `source_id` is null if a person or the fleet sent it."""

    id: str
    type: RoutedMessageType
    source_id: str | None
    target_id: str
    correlation_id: str | None
    payload: dict[str, Any]
    created_at: datetime
    delivered_at: datetime | None
