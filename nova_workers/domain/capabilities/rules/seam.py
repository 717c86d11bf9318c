"""The seam of a capability: its declaration, and its MCP server for one run.

Above: the registry, which knows grants and allow-lists. Below: what the capability uses, such as the ledger.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict

from nova_workers.base.clock import Clock
from nova_workers.base.config import Settings
from nova_workers.base.true_numbers import TrueNumbers
from nova_workers.contracts.agents import AgentSpec, Enclosure
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import McpServer
from nova_workers.contracts.installs import InstalledCode
from nova_workers.contracts.orchestration import OrchestrationPlace, ToolEffect
from nova_workers.contracts.ports import Embedder, OrchestrationControl
from nova_workers.contracts.run_options import ClientTool
from nova_workers.contracts.tool_programs import InstalledAgent, ToolSource
from nova_workers.contracts.user_tools import ListedTool
from nova_workers.contracts.waits import WaitRequest
from nova_workers.domain.agents.rules.rights import GrantRules
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.work import Work

ToolReply = str | WaitRequest
"""A tool's answer: text, or a request whose result comes from outside, for which the run waits."""


class NoConfig(TrueNumbers):
    """The empty configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class CapabilityParts:
    """The dependencies of capabilities, one object per process."""

    database: Database
    work: Work
    """Begins the units of work of tools."""
    settings: Settings
    clock: Clock
    grants: GrantRules
    """The registry: checks and compares the grants of agents."""
    embedder: Embedder | None = None
    """Makes the vectors of queries; None in a process without it."""
    orchestrations: OrchestrationControl | None = None
    """Starts orchestrations; None in a process that serves no tools."""


@dataclass(frozen=True, slots=True)
class CapabilityContext:
    """The run that uses a capability."""

    tenant_id: str
    agent_id: str
    thread_id: str
    run_id: str
    queue: str = "interactive"
    source: str = "api"
    depth: int = 0
    """Number of runs above this one: 0 for a run that a person, a trigger or a task started."""
    task_id: int | None = None
    """The task of the thread, if any."""
    has_state: bool = False
    """Whether the thread has a state document."""
    agent: AgentSpec = field(default_factory=lambda: AgentSpec(name="agent"))
    config: BaseModel = field(default_factory=NoConfig)
    """The configuration of the grant, an instance of the capability's class."""
    place: OrchestrationPlace | None = None
    """The agent's position in an orchestration, if the thread belongs to one."""
    enclosure: Enclosure | None = None
    """The bounds of a tenant with ceilings."""
    cwd: str | None = None
    """The agent's working directory; None of an agent without native tools, which works without files."""
    readable: tuple[str, ...] = ()
    """Directories that an agent can only read which writes in its working directory alone; empty of others."""
    kept: str | None = None
    """A folder in its directories in which it does not write: other agents work there."""
    client_tools: tuple[ClientTool, ...] = ()
    """Tools that the caller of the run executes."""
    turn_id: str = ""
    fence: int = 0
    attempt: int = 1
    call_id: str | None = None
    """The id of the current tool call; None if the engine does not pass it."""

    @property
    def background(self) -> bool:
        """Whether no person waits for the answer."""
        return self.queue == "background"


class ToolInput(TrueNumbers):
    """Base of a tool's arguments. An unknown argument is an error."""

    # Built at first use: the API describes tools, and starts a tenth of a second sooner without their validators.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


InputT = TypeVar("InputT", bound=ToolInput)


@dataclass(frozen=True, slots=True)
class ToolDeclaration(Generic[InputT]):
    """A tool: its description for the model, and the function that runs it.

    Attributes:
        name: Unique among all capabilities; prefixed with the capability's name.
        idempotent: Whether it may be run again, whether or not it took effect before.
        atomic: Whether all that it does is to write to the ledger by what its `CapabilityParts` have. Its call is
            then one transaction with its result: without a result it had no effect, and may be run again.
        read_only: Whether it changes nothing.
        writes_files: Whether it writes files in the agent's directories. Agents of an orchestration with such
            tools work in a directory each.
        needs_approval: Whether a person approves each call for which no rule of the agent decides.
        takes_secrets: The fields of its input whose values are secrets from the call on. Only such a tool gets secrets;
            any other gets placeholders instead, since it may store its input. A field `name` of the same input names
            them.
        run: Does the work. Returns the result for the model, or what to wait for; raises `NovaError` with a message for
            the model.
    """

    name: str
    description: str
    input: type[InputT]
    run: Callable[[CapabilityContext, InputT], Awaitable[ToolReply]]
    idempotent: bool = False
    read_only: bool = False
    writes_files: bool = False
    takes_secrets: tuple[str, ...] = ()
    atomic: bool = False
    needs_approval: bool = False

    @property
    def effect(self) -> ToolEffect:
        """What it does, as the bounds of agents of an orchestration need it."""
        return "reads" if self.read_only else "writes-files" if self.writes_files else "changes"

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be run again after a crash, if it has no result in the journal."""
        return self.idempotent or self.atomic


@dataclass(frozen=True, slots=True)
class Revealed:
    """The secrets that a run may handle, by name.

    Attributes:
        values: Values that must not occur in anything that is stored or shown.
        readable: Whether the model may read them by name, so that they may be restored in its own text.
    """

    values: Mapping[str, str]
    readable: bool


@dataclass(frozen=True, slots=True)
class DeclaredServer:
    """Declared tools that work for one run. `serving` makes an MCP server of it in processes that execute turns."""

    name: str
    tools: tuple[ToolDeclaration[Any], ...]
    context: CapabilityContext
    config: BaseModel = field(default_factory=NoConfig)
    """The configuration of the grant, which a call has in its context."""


@dataclass(frozen=True, slots=True)
class ClientServer:
    """The tools that the caller of a run executes, as an MCP server: each call waits for its result."""

    tools: tuple[ClientTool, ...]


@dataclass(frozen=True, slots=True)
class UserServer:
    """Tools of users that work for one run, as an MCP server whose calls go to a process of their source."""

    source: ToolSource
    tools: tuple[ListedTool, ...]
    context: CapabilityContext
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The values that the grant names."""


@dataclass(frozen=True, slots=True)
class UserAgentRun:
    """An agent in Python that works for one run. `serving` makes a program of it in processes that execute turns."""

    agent: InstalledAgent
    context: CapabilityContext
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The values that the agent's grant of the same code names."""


Servable = DeclaredServer | ClientServer | UserServer
"""What this process serves, once the MCP library is loaded."""

Servers = McpServer | Servable | Mapping[str, McpServer]
"""The servers of a grant: one under the capability's name, or several under names of their own."""


@runtime_checkable
class RevealsSecrets(Protocol):
    """A capability whose tools can bring secrets into a run."""

    async def revealed(
        self, connection: Connection, tenant_id: str, config: BaseModel, tools: Sequence[str] | None
    ) -> Revealed:
        """Return the secrets that a run with this grant may handle. Missing ones are left out.

        Args:
            connection: A connection of the ledger.
            config: An instance of the class in `config`.
            tools: The grant's allow-list; None is all tools.
        """
        ...


@runtime_checkable
class ChecksGrants(Protocol):
    """A capability that checks configurations beyond their form, such as the operator's permission."""

    def check_grant(self, config: BaseModel, field: str) -> None:
        """Check a configuration, both when it is written and when it is used.

        Args:
            config: An instance of the class in `config`.
            field: Its path in the agent's configuration, for the error.

        Raises:
            InvalidInput: It is refused.
        """
        ...


@runtime_checkable
class BelongsToTenant(Protocol):
    """A capability of one tenant. For others there is none with its name."""

    @property
    def tenant_id(self) -> str | None:
        """The tenant; None is all."""
        ...


@runtime_checkable
class HasAgents(Protocol):
    """A capability whose code has agents too, which the configuration of an agent may name, and evaluators."""

    @property
    def installed(self) -> InstalledCode:
        """What is installed here."""
        ...

    def agent(self, function: str, field: str) -> InstalledAgent:
        """Return an agent.

        Args:
            function: Its name in the code.
            field: What names it in the agent's configuration, for the error.

        Raises:
            InvalidInput: There is none, or the code cannot be used.
        """
        ...

    def evaluator(self, function: str) -> tuple[ToolSource, ListedTool] | None:
        """Return an evaluator with its process; None if the code has none of this name, or cannot be used."""
        ...

    async def agent_secrets(self, config: BaseModel, tenant_id: str) -> Mapping[str, str]:
        """Return the secrets of a grant. Raises `InvalidInput` if one is missing."""
        ...


@runtime_checkable
class OffersItself(Protocol):
    """A capability that some runs have although their agents are not granted it. A grant decides where there is one."""

    def is_offered(self, context: CapabilityContext) -> bool:
        """Return whether a run has it without a grant, with an empty configuration."""
        ...


@runtime_checkable
class ComparesConfigs(Protocol):
    """A configuration that says how much a grant permits. Others permit as much as an equal one, and no other."""

    def includes(self, other: Any) -> bool:
        """Return whether it permits all that another one of the same class permits."""
        ...


class Capability(Protocol):
    """A named set of tools that an agent can be granted.

    Attributes:
        name: The key under which agents are granted it.
        description: One sentence, for people and agents who grant it.
        tools: All its tools, known without starting anything. None: they are its servers' own, unknown until one
            answers.
        config: The form of a grant's configuration.
        injected: None: agents can be granted it. Otherwise it is never granted: each run for which this is true has it.
    """

    name: str
    description: str
    config: type[BaseModel]

    @property
    def tools(self) -> tuple[ToolDeclaration[Any], ...] | None: ...  # noqa: D102 - described in the class's docstring

    @property
    def injected(self) -> Callable[[CapabilityContext], bool] | None: ...  # noqa: D102 - described in the class's docstring

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> Servers:
        """Return the server, or the servers, for one run. Cheap: called at the start of every run.

        Args:
            config: An instance of the class in `config`.
            context: The run.

        Raises:
            InvalidInput: The configuration names something that does not exist, or no longer.
        """
        ...


class ToolCapability:
    """A capability whose tools this process serves, like most capabilities."""

    def __init__(
        self,
        name: str,
        description: str,
        tools: Sequence[ToolDeclaration[Any]],
        *,
        config: type[BaseModel] = NoConfig,
        injected: Callable[[CapabilityContext], bool] | None = None,
    ) -> None:
        """Describe the tools once; runs are then served without further work.

        Args:
            name: The key under which agents are granted it.
            description: One sentence, for people and agents who grant it.
            tools: All its tools.
            config: The form of a grant's configuration, which the tools get in their context.
            injected: For a capability that is never granted: the condition for runs that have it.
        """
        self.name = name
        self.description = description
        self.config = config
        self.tools = tuple(tools)
        self.injected = injected

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> Servers:
        """Return the server for one run."""
        return DeclaredServer(self.name, self.tools, context, config)


@cache
def input_schema(given: type[BaseModel]) -> JsonObject:
    """Return the JSON schema of a tool's input, for models and people."""
    schema: JsonObject = given.model_json_schema()
    # Titles repeat the names, and the class's docstring is not for the model: both would waste tokens.
    for part in (schema, *schema.get("properties", {}).values()):
        part.pop("title", None)
    schema.pop("description", None)
    return schema
