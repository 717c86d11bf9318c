"""The HTTP contract of what is asked of an agent beside its configuration: another id, its prompt, its servers."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from nova_workers.contracts.agents import AgentId, AgentSpec
from nova_workers.contracts.authors.rights import DOCUMENT, authored
from nova_workers.contracts.bodies import Body, Name, View

MAX_VERSION = 2**31 - 1
"""Largest number of a version."""


@authored(
    to=DOCUMENT,
)
class AgentRename(Body):
    """Another id for an agent."""

    to: AgentId


@authored(
    version=DOCUMENT,
)
class AgentRollback(Body):
    """The version to restore."""

    version: int = Field(ge=1, le=MAX_VERSION)


class AgentRenameView(View):
    """The state of a rename."""

    id: str
    """The agent's id now."""
    former_id: str
    state: Literal["moving", "done"]
    """While it is `moving`, the agent starts no runs; messages are accepted and queued."""
    threads_left: int
    """Threads that are not at the new id yet."""
    settings: list[str]
    """Settings of the fleet that name the former id, which an operator must change."""


class AgentPromptRequest(Body):
    """Which prompt to show."""

    spec: AgentSpec | None = Field(
        default=None, description="A configuration that need not be saved; null is the agent's newest version."
    )
    channel: Name | None = None
    """Where the answer is read, which may decide its format."""


class AgentPromptTool(View):
    """A tool that the model gets with the prompt."""

    capability: str
    name: str
    tokens: int
    """Estimate for its name, description and schema."""


class AgentWarning(View):
    """What of a configuration is permitted, and unlikely to work with what the fleet has now."""

    field: str
    """Its path, such as ``model``."""
    message: str


class AgentPromptView(View):
    """A system prompt as a run in the foreground gets it, on a thread without a task.

    Tokens are estimated, as four characters each: only the provider of the model can count them.
    """

    text: str
    stable_chars: int
    """The length of its beginning that all turns of the agent share, which a provider's prompt cache holds."""
    tokens: int
    tools: list[AgentPromptTool]
    """Without native tools, which the engine declares, and those of MCP servers, known once the servers answer."""
    tools_tokens: int
    complete: bool
    """False: memories and descriptions of skills are left out, since the key lacks the scope `workspace`."""
    warnings: list[AgentWarning] = Field(default_factory=list[AgentWarning])
    """A model that no list has or whose provider cannot be used, a temperature that it does not take, and, for keys
    with the scope `secrets`, a secret that is missing."""


class ToolServerAwayView(View):
    """An MCP server of an agent that did not answer."""

    name: str
    """With which the names of its tools begin, such as ``mcp__github``."""
    reason: str
    output: list[str]
    """The last lines that its process wrote to stderr, without secrets. Empty for a server behind a URL."""
    at: datetime
    """The start of the turn that went without its tools."""


class AgentToolServersView(View):
    """The MCP servers that were away in the newest turn of an agent; after an hour without a turn it is not known."""

    away: list[ToolServerAwayView]
