"""Agents of an orchestration, and what passes between them.

Names and vocabularies follow the orchestration engine's specification: `AgentDescriptor`, `SpawnRequest`,
`AgentResult`, `ExpertProfile`, `RoutedMessage`, and the states, roles and permission modes of
`nova_workers.base.vocabulary`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from nova_workers.base.vocabulary import AgentRole, AgentState, Complexity, PermissionMode, RoutedMessageType
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.orchestration.limits import OrchestrationLimits

MAX_PROMPT_CHARS = 200_000
MAX_SUMMARY_CHARS = 100_000
READ_TOOLS = ("Read", "Glob", "Grep")
"""The native tools of a master: it reads and reasons, and delegates work that changes files."""
TASK_COMPLETE = "task_complete"
"""The tool whose successful call ends the turn."""

RUN_BASH = "run_bash"
"""The orchestration tool that runs shell commands. Every rule for the native Bash applies to it."""
ORCHESTRATION_TOOLS = frozenset(
    {
        "ask_parent",
        "check_child_status",
        "consult_expert",
        "consult_peer",
        "get_child_history",
        "get_children_status",
        "recommend_model",
        "report_progress",
        "respond_to_child",
        "restart_child",
        "send_child_prompt",
        "spawn_child",
        "spawn_children_parallel",
        TASK_COMPLETE,
        "wait_for_message",
    }
)
"""Tools that every permission mode allows. `ask_user` is one of the capability `user`; `RUN_BASH` is none of them."""


class _Value(BaseModel):
    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")


def is_peer(role: AgentRole, expert_id: str | None) -> bool:
    """Return whether an agent gives a second opinion: an expert without a profile, on another model, without tools."""
    return role == "EXPERT" and expert_id is None


class OrchestrationPlace(_Value):
    """The place of a run's agent in its orchestration, as the claim reads it."""

    orchestration_id: str
    agent_id: str
    """The agent within the orchestration (``oag_…``)."""
    parent_id: str | None = None
    role: AgentRole
    depth: int
    permission_mode: PermissionMode
    limits: OrchestrationLimits
    is_external: bool = False
    """Whether it is a master outside of the fleet, which has no run."""
    expert_id: str | None = None
    """The profile of an expert; None with the role EXPERT is a peer, which gives a second opinion."""
    cwd: str | None = None
    """Working directory, instead of that of the agent whose configuration bounds the tree."""
    deadline_at: datetime | None = None
    whitelist: tuple[str, ...] = ()
    """Shell commands that need no permission, by the configuration of the orchestration."""
    blacklist: tuple[str, ...] = ()
    """Shell commands that a person must permit, likewise."""
    reasoning_ms: int = 0
    """Reasoning time of earlier attempts of this activation."""


ToolEffect = Literal["reads", "changes", "writes-files"]
"""What a tool of a capability does, as it declares. One that writes files writes below the agent's directories."""
CapabilityTools = Mapping[str, Mapping[str, ToolEffect] | None]
"""The tools of each capability by name, with what each does; None if they are unknown until servers answer."""


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A request of an agent for a child.

    Attributes:
        tools: Native tools, tools of capabilities, and whole capabilities, of those that the parent holds; None is
            what the role gets.
        mcp_servers: Names of plugins that it gets beside all others; None chooses plugins by role and prompt.
        complexity: Chooses a model that fits, unless `model` is given; then it checks that model.
        output_schema: JSON schema that its result fulfils; None leaves the form to the child.
        reuse: The child that takes the prompt, by its id or a unique part of it; None spawns a fresh one.
    """

    prompt: str
    role: AgentRole = "WORKER"
    name: str | None = None
    tools: tuple[str, ...] | None = None
    model: str | None = None
    cwd: str | None = None
    mcp_servers: tuple[str, ...] | None = None
    exclude_plugins: tuple[str, ...] = ()
    permission_mode: PermissionMode = "DEFAULT"
    complexity: Complexity | None = None
    expert_id: str | None = None
    output_schema: JsonObject | None = None
    reuse: str | None = None


@dataclass(frozen=True, slots=True)
class AgentDescriptor:
    """The current state of an agent of an orchestration."""

    id: str
    tenant_id: str
    orchestration_id: str
    parent_id: str | None
    thread_id: str
    run_id: str
    role: AgentRole
    state: AgentState
    depth: int
    name: str
    prompt: str
    tools: tuple[str, ...] | None
    model: str | None
    cwd: str | None
    plugins: tuple[str, ...]
    permission_mode: PermissionMode
    expert_id: str | None
    category: str | None
    activations: int
    summary: str | None
    artifacts: Mapping[str, Any]
    error_code: str | None
    error_message: str | None
    progress: Mapping[str, Any] | None
    state_at: datetime
    created_at: datetime
    ended_at: datetime | None
    capabilities: Mapping[str, Collection[str] | None] = field(default_factory=dict[str, Collection[str] | None])
    """The tools of capabilities that it holds; None: all of the capability."""


@dataclass(frozen=True, slots=True)
class AgentResult:
    """The end of an activation."""

    agent_id: str
    success: bool
    summary: str
    artifacts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error_code: str | None = None
    error: str | None = None
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RoutedMessage:
    """A message between agents. `source_id` is None if a person sent it."""

    id: str
    orchestration_id: str
    type: RoutedMessageType
    source_id: str | None
    target_id: str
    payload: Mapping[str, Any]
    correlation_id: str | None = None
