"""The engine contract: what executes one turn, and all that it may know.

Above this seam: runs, threads, agents, capabilities, the ledger. Below it: one AI SDK. An engine gets a
message and fully resolved options, and gives a result. It keeps no state between calls and imports
nothing of ours but `nova_workers.contracts` and `nova_workers.errors`.

The contract follows the OpenNova engine contract in names and meaning (`run`, trust levels, callbacks,
resume fallback), and the agent engine interface in its richer result (stop reasons, error kinds, token
counts, tool calls, compaction). What the run protocol adds is optional: `history`, `journal`,
`token_budget`, `fallback_models`, and the awaited methods of `TurnListener`.

This module is the contract's face: what steps consist of and how they are reported is defined in
`nova_workers.contracts.steps` and `nova_workers.contracts.listener`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, Message
from nova_workers.contracts.listener import EngineCallbacks, ForwardingListener, TurnListener
from nova_workers.contracts.sessions import SessionStore
from nova_workers.contracts.skills import SkillDirectory
from nova_workers.contracts.steps import (
    EngineEvent,
    StepRecord,
    StepVerdict,
    ToolAuthorization,
    ToolCall,
    ToolCallStatus,
)
from nova_workers.contracts.usage import TokenUsage
from nova_workers.errors import EngineErrorKind
from nova_workers.vocabulary import CompactionTrigger, Limit, StopReason, TrustLevel

__all__ = [
    "DEFERRAL",
    "CompactionRecord",
    "CompactionTrigger",
    "DeferredCall",
    "Engine",
    "EngineCallbacks",
    "EngineError",
    "EngineEvent",
    "EngineOptions",
    "EngineResult",
    "EngineUsage",
    "ForwardingListener",
    "HttpMcpServer",
    "InProcessMcpServer",
    "Limit",
    "McpServer",
    "StdioMcpServer",
    "StepRecord",
    "StepVerdict",
    "StopReason",
    "SubagentConfig",
    "ToolAuthorization",
    "ToolCall",
    "ToolCallStatus",
    "TrustLevel",
    "TurnListener",
]


DEFERRAL = "nova/deferral"
"""The key in a result's ``_meta`` by which a tool of this process says that its result comes later, from outside; the
value says what it waits for, and concerns whoever runs the turn."""


@dataclass(frozen=True, slots=True)
class InProcessMcpServer:
    """An MCP server object of this process (``mcp.server.mcpserver.MCPServer`` or a low-level ``Server``)."""

    server: Any
    tools: tuple[str, ...] | None = None
    """Allow-list of tool names; None allows every tool that the server declares."""
    listing: Sequence[Any] | None = None
    """All that it would list (``mcp.types.Tool``), where that is known: then nothing connects before the first call."""


@dataclass(frozen=True, slots=True)
class StdioMcpServer:
    """An MCP server that is a child process speaking on stdin and stdout."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    tools: tuple[str, ...] | None = None
    timeout_s: float = 60.0
    """Most time for the server to start, and for each call."""
    scope: str = ""
    """Whose it is, such as the tenant: turns share a child process only where scope and all of the above agree."""
    reuse: bool = True
    """Whether turns may share one child process. False for a server that keeps the state of a conversation."""
    qualified: bool = False
    """Whether its tools are always known as ``<server>__<tool>``, so that none takes a name that means another."""


@dataclass(frozen=True, slots=True)
class HttpMcpServer:
    """An MCP server behind a streamable-HTTP URL."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    tools: tuple[str, ...] | None = None
    timeout_s: float = 60.0
    """Most time to connect, and for each call."""
    scope: str = ""
    """Whose it is, such as the tenant: turns share a session only where scope, url and headers agree."""
    reuse: bool = True
    """Whether turns may share one session. False for a server that keeps the state of a conversation."""
    qualified: bool = False
    """Whether its tools are always known as ``<server>__<tool>``, so that none takes a name that means another."""


McpServer = InProcessMcpServer | StdioMcpServer | HttpMcpServer


@dataclass(frozen=True, slots=True)
class SubagentConfig:
    """A helper that the main turn may call as a nested loop.

    Attributes:
        description: When to call it, for the model.
        prompt: Its system prompt.
        tools: Names of the turn's tools that it may use; None is all of them. It has no helpers itself.
        model: An alias or a full id; None is the turn's.
        max_turns: Most model calls of one call to it.
    """

    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    model: str | None = None
    max_turns: int = 20


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Everything an engine needs for one turn, resolved. No SDK's permission fields: trust says it all."""

    cwd: str | None = None
    directories: tuple[str, ...] = ()
    system_prompt: str | None = None
    stable_prompt_chars: int | None = None
    """How many of the prompt's first characters are the same in every turn of the agent, for the provider's prompt
    cache. None: all of them."""
    model: str | None = None
    """An alias (haiku, sonnet, opus) or a full model id."""
    max_turns: int | None = None
    """Most model calls that the turn may make."""
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict[str, McpServer])
    agents: Mapping[str, SubagentConfig] = field(default_factory=dict[str, SubagentConfig])
    max_tokens: int | None = None
    temperature: float | None = None
    """From 0 to 1. An engine or a model that takes none fails the turn before its first call."""
    thinking_budget_tokens: int | None = None
    timeout_s: float | None = None
    """Most wall time that the turn may take, tools and all; it then stops with ``timeout`` and the limit ``time``."""
    history: tuple[Message, ...] = ()
    """The conversation before this message, oldest first; every tool_use in it has its result."""
    journal: tuple[StepRecord, ...] = ()
    """Steps of this same turn that are already committed. The engine goes on after the last."""
    token_budget: int | None = None
    """Most tokens, read and produced, that the turn may use, with its subagents and earlier attempts. Looked at before
    each model call: the turn then ends cleanly, as ``max_tokens``."""
    cost_budget_usd: float | None = None
    """Most that the turn may cost, likewise. A model whose price is not known fails the turn before its first call."""
    spent: TokenUsage = field(default_factory=TokenUsage)
    """What earlier attempts of this turn used. Counts against the budgets, and is not part of the result's usage."""
    max_tool_output_chars: int = 100_000
    """Longest text of a tool's result that the model is given; of a longer one it gets the beginning and the end."""
    reasoning_timeout_s: float = 7_200.0
    """Most time that the turn may wait for the model, all calls together; tools are not counted."""
    tool_timeout_s: float = 7_200.0
    """Most time that any one tool call may take."""
    output_schema: Mapping[str, Any] | None = None
    """JSON schema that the final answer must fulfil. An answer that does not is sent back once."""
    fallback_models: tuple[str, ...] = ()
    skills: tuple[SkillDirectory, ...] = ()
    """Skills that the engine puts where its SDK looks for them. Others get them through a tool, and none here."""
    sessions: SessionStore | None = None
    """Where engines whose SDK keeps transcripts of its own leave them. None: nothing is resumed by session id."""
    engine_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options that only one engine understands (the script of `scripted`)."""
    run_id: str | None = None
    """For traces and provider metadata only."""


@dataclass(frozen=True, slots=True)
class DeferredCall:
    """A call whose result comes from outside, and what it waits for."""

    call: ToolCall
    request: JsonObject


@dataclass(frozen=True, slots=True)
class EngineUsage:
    """What one `Engine.run` call used: tokens and cost, wall time, model calls."""

    tokens: TokenUsage = field(default_factory=TokenUsage)
    duration_ms: int = 0
    turns: int = 0
    """Model calls made."""


@dataclass(frozen=True, slots=True)
class EngineError:
    """Why a turn failed, in the vocabulary of the agent engine interface."""

    kind: EngineErrorKind
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class CompactionRecord:
    """What a compaction replaced and what it cost; every field of the agent engine interface."""

    summary: str
    summarized_through_turn_id: str
    first_kept_turn_id: str | None
    """None where nothing was kept beside the summary."""
    turns_summarized: int
    model: str
    provider: str
    tokens_before: int
    tokens_after: int
    summary_tokens: int
    summarization_input_tokens: int
    summarization_output_tokens: int
    duration_ms: int
    trigger: CompactionTrigger
    through_step: int | None = None
    """With a compaction in the middle of a turn: the last of its own steps that the summary stands for."""


@dataclass(frozen=True, slots=True)
class EngineResult:
    """What came of a turn. Failure is a value here, so that partial work is never lost with a traceback.

    Attributes:
        text: The final assistant text; with ``aborted`` and ``error``, what there was of it.
        messages: All messages that this call produced, in order; every tool_use has its result.
        limit: Which of its bounds ended the turn, if one did.
        deferred: With ``tool_use``: the calls that the turn stopped for. Their step is not handed over: its response
            and the results of its other calls are in the journal, and the turn goes on from there.
        deferred_usage: What the tools of that step have used of models.
        tools_available: Names of the tools that the model was offered; None where it was not asked.
        output: With `EngineOptions.output_schema` and ``end_turn``: the answer as a value that fulfils it.
    """

    text: str
    stop_reason: StopReason
    usage: EngineUsage = field(default_factory=EngineUsage)
    session_id: str | None = None
    messages: tuple[Message, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    model: str | None = None
    provider: str | None = None
    error: EngineError | None = None
    compaction: CompactionRecord | None = None
    limit: Limit | None = None
    output: Any = None
    deferred: tuple[DeferredCall, ...] = ()
    deferred_usage: TokenUsage = field(default_factory=TokenUsage)
    tools_available: tuple[str, ...] | None = None


class Engine(Protocol):
    """Executes one turn. Stateless: one object serves all runs of a process at the same time."""

    name: str

    async def run(  # noqa: PLR0917 - the specified signature
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        """Execute one turn.

        Args:
            message: The user's message, as text or as content blocks.
            options: All that the turn needs.
            trust: Which native tools to offer.
            session_id: A transcript of the SDK to resume; if that fails, a new conversation is begun.
            callbacks: Follows the turn: `EngineCallbacks`, or any other `TurnListener`.
            abort: Stops the turn at once; the result then has stop reason ``aborted`` and what there was.

        Returns:
            The result; a failure is in `EngineResult.error`.

        Raises:
            RunLost: A callback said that the run is no longer ours.
        """
        ...

    async def close(self) -> None:
        """Release connections. The engine is not used afterwards."""
        ...
