"""The engine contract: the interface of what executes one turn, and everything that it may know.

Above this seam: runs, threads, agents, capabilities, the ledger. Below it: one AI SDK. An engine takes a message and
fully resolved options and returns a result. It keeps no state between calls and, of our packages, imports only
`nova_workers.contracts` and `nova_workers.base.errors`.

Names and meaning follow the OpenNova engine contract (`run`, trust levels, callbacks, resume fallback); the richer
result follows the agent engine interface (stop reasons, error kinds, token counts, tool calls, compaction). What the
run protocol adds is optional: `history`, `journal`, `token_budget`, `fallback_models`, and the awaited methods of
`TurnListener`.

Steps are defined in `nova_workers.contracts.steps`, and how they are reported in `nova_workers.contracts.listener`;
this module re-exports both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from nova_workers.base.errors import EngineErrorKind, EngineFailure, Outage
from nova_workers.base.vocabulary import BudgetKind, CompactionTrigger, Limit, StopReason, TrustLevel
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.agents import Enclosure
from nova_workers.contracts.content import JsonObject, Message
from nova_workers.contracts.listener import EngineCallbacks, ForwardingListener, TurnListener
from nova_workers.contracts.run_options import ToolChoice
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
from nova_workers.contracts.usage import Allowance, TokenUsage
from nova_workers.contracts.user_agents import AgentProgram

__all__ = [
    "CALL_ID",
    "DEFERRAL",
    "AskedEngines",
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
    "ProbedEngine",
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
"""Key in a result's ``_meta`` with which an in-process tool defers its result. The value describes what the call waits
for; the engine passes it to its caller unread."""


CALL_ID = "nova/call"
"""Key in a request's ``_meta`` that names the tool call to an in-process tool, so that it recognizes a repeat."""


@dataclass(frozen=True, slots=True)
class InProcessMcpServer:
    """An MCP server object of this process (``mcp.server.mcpserver.MCPServer`` or a low-level ``Server``)."""

    server: Any
    """The object, or a function that makes it when a turn first connects."""
    tools: tuple[str, ...] | None = None
    """Allow-list of tool names; None allows every tool that the server declares."""
    listing: Sequence[Any] | None = None
    """All tools that it would list (``mcp.types.Tool``), if known; then nothing connects before the first call."""

    def built(self) -> Any:
        """Return the object."""
        return self.server() if callable(self.server) else self.server


@dataclass(frozen=True, slots=True)
class StdioMcpServer:
    """An MCP server that is a child process with the stdio transport."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    tools: tuple[str, ...] | None = None
    timeout_s: float = 60.0
    """Time limit for each call, and for the start of a slow server, for which no turn waits so long."""
    scope: str = ""
    """Its owner, such as the tenant. Turns share a child process only if scope, command, args, env and cwd are
    equal."""
    reuse: bool = True
    """Whether turns may share one child process. False for a server that keeps state per conversation."""
    qualified: bool = False
    """Whether its tools are always known as ``<server>__<tool>``, so that none takes a name that means another."""
    enclosure: Enclosure | None = None
    """The bounds of a tenant with ceilings, whose agent chose the command."""
    readable: tuple[str, ...] = ()
    """Files and directories that it can read in these bounds, although a directory around them is hidden there."""
    writable: tuple[str, ...] = ()
    """Directories within these bounds that it can write to, beside its working directory."""


@dataclass(frozen=True, slots=True)
class HttpMcpServer:
    """An MCP server behind a streamable-HTTP URL."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    tools: tuple[str, ...] | None = None
    timeout_s: float = 60.0
    """Time limit for each call, and for connecting to a slow server, for which no turn waits so long."""
    scope: str = ""
    """Its owner, such as the tenant. Turns share a session only if scope, url and headers are equal."""
    reuse: bool = True
    """Whether turns may share one session. False for a server that keeps state per conversation."""
    qualified: bool = False
    """Whether its tools are always known as ``<server>__<tool>``, so that none takes a name that means another."""


McpServer = InProcessMcpServer | StdioMcpServer | HttpMcpServer


@dataclass(frozen=True, slots=True)
class SubagentConfig:
    """A subagent that the main turn may call as a nested loop.

    Attributes:
        description: When to call it; the model reads this.
        prompt: Its system prompt.
        tools: Names of the turn's tools that it may use; None allows all. It has no subagents of its own.
        model: An alias or a full id; None uses the turn's.
        max_turns: Limit of model calls per call to it.
    """

    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    model: str | None = None
    max_turns: int = 20


@dataclass(frozen=True, slots=True)
class AskedEngines:
    """The engines whose models a function may ask.

    Attributes:
        default: The name of the one that is asked if none is named.
        by_name: Those that the fleet has, and the ceilings of the tenant permit.
    """

    default: str
    by_name: Mapping[str, Engine]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Everything an engine needs for one turn, resolved. It has no permission fields of any SDK: trust covers them."""

    cwd: str | None = None
    directories: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    """Directories whose files can be read and not written. With any, `cwd` lies in one of them, and no tool leaves
    them, whatever links there are; commands run in the sandbox, since nothing else would keep them from writing there.
    """
    kept: str | None = None
    """A folder in these directories in which tools on files do not write: other agents work there."""
    enclosure: Enclosure | None = None
    """The bounds of a tenant with ceilings; None is the operator's own, without any."""
    system_prompt: str | None = None
    stable_prompt_chars: int | None = None
    """Length of the prompt's prefix that is the same in every turn of the agent, for the provider's prompt cache. None:
    the whole prompt."""
    model: str | None = None
    """An alias (haiku, sonnet, opus) or a full model id."""
    max_turns: int | None = None
    """Limit of model calls in the turn."""
    native_tools: tuple[str, ...] | None = None
    """Allow-list of native tools within the trust; None allows all of them."""
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict[str, McpServer])
    agents: Mapping[str, SubagentConfig] = field(default_factory=dict[str, SubagentConfig])
    max_tokens: int | None = None
    temperature: float | None = None
    """A number from 0 to 1. With an engine or a model that does not support it, the turn fails before its first
    call."""
    thinking_budget_tokens: int | None = None
    timeout_s: float | None = None
    """Limit of the turn's wall time, tools included; the turn then stops with ``timeout`` and the limit ``time``."""
    history: tuple[Message, ...] = ()
    """The conversation before this message, oldest first; every tool_use in it has its result."""
    event_context: str | None = None
    """When the turn started and what caused it. The engine puts it in front of the message's content, as a text
    block of its own: the message then reads as it will in the history of later turns."""
    journal: tuple[StepRecord, ...] = ()
    """Steps of this turn that are already committed. The engine continues after the last."""
    token_budget: int | None = None
    """Limit of tokens, read and produced, for the turn with its subagents and earlier attempts. Checked before each
    model call; the turn then ends normally, with ``max_tokens``."""
    cost_budget_usd: float | None = None
    """Limit of the turn's cost, likewise. With a model of unknown price the turn fails before its first call."""
    allowance: Allowance | None = None
    """Budgets that the turn shares with others: each model call is reserved before it is made. None: there are none."""
    spent: TokenUsage = field(default_factory=TokenUsage)
    """Usage of earlier attempts of this turn. It counts against the budgets and is not in the result's usage."""
    max_tool_output_chars: int = 100_000
    """Limit of a tool result's text for the model, which gets the beginning and the end of a longer text."""
    reasoning_timeout_s: float = 7_200.0
    """Limit of the time that the turn waits for the model, summed over its calls; tools do not count."""
    tool_timeout_s: float = 7_200.0
    """Time limit for each tool call."""
    output_schema: Mapping[str, Any] | None = None
    """JSON schema for the final answer. An answer that does not match is sent back once."""
    tool_choice: ToolChoice | None = None
    """Which tools the model may call; ``required`` and a name are for the turn's first model call."""
    fallback_models: tuple[str, ...] = ()
    skills: tuple[SkillDirectory, ...] = ()
    """Skills that the engine writes where its SDK looks for them. Empty for engines that get skills through a tool."""
    sessions: SessionStore | None = None
    """Store for the transcripts that an engine's SDK keeps. None: nothing is resumed by session id."""
    program: AgentProgram | None = None
    """The agent in Python that the engine `code` executes; None for all other engines."""
    asked_engines: AskedEngines | None = None
    """What the program may ask; None for all engines but `code`."""
    engine_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options specific to one engine (the script of `scripted`)."""
    conversation: str | None = None
    """An opaque id of the turn's conversation. Failures of a model are counted by it: one conversation that always
    fails is no evidence against the model. None: the turn is a conversation of its own."""
    run_id: str | None = None
    """The run's id, for traces and provider metadata only."""


@dataclass(frozen=True, slots=True)
class DeferredCall:
    """A call whose result comes from outside the turn, and the description of what it waits for."""

    call: ToolCall
    request: JsonObject


@dataclass(frozen=True, slots=True)
class EngineUsage:
    """What one `Engine.run` call used: tokens and cost, wall time, model calls."""

    tokens: TokenUsage = field(default_factory=TokenUsage)
    duration_ms: int = 0
    turns: int = 0
    """Model calls made."""
    reasoning_ms: int = 0
    """Time spent waiting for the model; 0 if the engine does not measure it."""


@dataclass(frozen=True, slots=True)
class EngineError:
    """Why a turn failed, in the vocabulary of the agent engine interface."""

    kind: EngineErrorKind
    message: str
    retryable: bool
    outage: Outage | None = None
    """Set if the model provider cannot be used: the caller may run the same turn again later."""
    budget: BudgetKind | None = None
    """Which budget refused a call, with ``budget_exceeded``; None for one of the turn's own."""

    @classmethod
    def of(cls, failure: EngineFailure) -> EngineError:
        """Return a failure as a value."""
        return cls(failure.kind, failure.message, failure.retryable, failure.outage, failure.budget)


@dataclass(frozen=True, slots=True)
class CompactionRecord:
    """What a compaction replaced and what it cost, with every field of the agent engine interface."""

    summary: str
    summarized_through_turn_id: str
    first_kept_turn_id: str | None
    """None if only the summary was kept."""
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
    """After a compaction during a turn, the last of the turn's own steps that the summary replaces."""


@dataclass(frozen=True, slots=True)
class EngineResult:
    """The outcome of a turn. Failure is a value, so that partial work is not lost with an exception.

    Attributes:
        text: The final assistant text; with ``aborted`` and ``error``, the partial text.
        messages: All messages that this call produced, in order; every tool_use has its result.
        limit: The limit that ended the turn, if one did.
        deferred: With ``tool_use``: the calls that the turn stopped for. Their step is not in `messages`: its response
            and the results of its other calls are in the journal, from which the turn continues.
        deferred_usage: Model usage by the tools of that step.
        tools_available: Names of the tools that the model was offered; None if no model was called.
        output: With `EngineOptions.output_schema` and ``end_turn``: the answer as a value that matches the schema. With
            any other stop reason there is no such answer, and the run fails.
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
    """Executes one turn. Stateless: one object serves all concurrent runs of a process."""

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
            options: Everything that the turn needs.
            trust: Which native tools to offer.
            session_id: The SDK's transcript to resume; if that fails, the engine starts a new one.
            callbacks: Receives the turn's progress: `EngineCallbacks`, or any other `TurnListener`.
            abort: Stops the turn at once; the result then has stop reason ``aborted`` and the partial work.

        Returns:
            The result; a failure is in `EngineResult.error`.

        Raises:
            RunLost: A callback reported that another worker owns the run.
        """
        ...

    async def close(self) -> None:
        """Release connections. The engine is not used afterwards."""
        ...


@runtime_checkable
class ProbedEngine(Protocol):
    """An engine that can try the providers behind it, beside its turns. Optional: `Engine` does not require it."""

    async def probe(self, *, timeout_s: float) -> Mapping[str, str | None]:
        """Try each provider without asking a model, with the keys, addresses and proxies that turns use.

        A provider that answers can be had, also if it has no list of models or is over a rate limit.

        Args:
            timeout_s: Longest wait for one answer.

        Returns:
            By the provider's name (``""`` in an engine of one provider): None if it can be had, else why not, in words
            that contain no key and no text of the server.
        """
        ...
