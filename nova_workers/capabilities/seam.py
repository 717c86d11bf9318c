"""The seam of a capability: what it declares, and how it becomes an MCP server for one run.

Above: the registry, which knows grants and allow-lists. Below: whatever the capability reaches, such as the ledger.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel, ConfigDict

from nova_workers.clock import Clock
from nova_workers.config import Settings
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.engine import McpServer
from nova_workers.contracts.orchestration import OrchestrationPlace
from nova_workers.contracts.ports import Dispatcher, Embedder
from nova_workers.contracts.waits import WaitRequest
from nova_workers.ledger.database import Connection, Database

__all__ = [
    "Capability",
    "CapabilityContext",
    "CapabilityParts",
    "ChecksGrants",
    "DeclaredServer",
    "NoConfig",
    "Revealed",
    "RevealsSecrets",
    "Servers",
    "ToolCapability",
    "ToolDeclaration",
    "ToolInput",
    "ToolReply",
    "input_schema",
]

ToolReply = str | WaitRequest
"""A tool's answer: text, or a request whose result comes from outside, for which the run waits."""


class NoConfig(BaseModel):
    """The configuration of a capability that has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class CapabilityParts:
    """What capabilities are built from, once a process."""

    database: Database
    settings: Settings
    clock: Clock
    validate_agent: Callable[[AgentSpec], None]
    """Raises `InvalidInput` where an agent's grants are not ones that the registry knows."""
    embedder: Embedder | None = None
    """Makes the vectors of queries; None where this process has none."""
    dispatcher: Dispatcher | None = None
    """Rings for runs that tools queue; None leaves that to the reconciler."""

    def ring_deliveries(self) -> None:
        """Ring for deliveries that a tool added. Without a dispatcher, the next tick finds them."""
        if self.dispatcher is not None:
            self.dispatcher.ring_deliveries()


@dataclass(frozen=True, slots=True)
class CapabilityContext:
    """For whom a capability works: the run that uses it."""

    tenant_id: str
    agent_id: str
    thread_id: str
    run_id: str
    queue: str = "interactive"
    source: str = "api"
    depth: int = 0
    """How many agents stand before this one: 0 for a run that a person, a trigger or a task asked for."""
    task_id: int | None = None
    """The task that the thread is bound to."""
    agent: AgentSpec = field(default_factory=lambda: AgentSpec(name="agent"))
    config: BaseModel = field(default_factory=NoConfig)
    """The configuration of the grant, as the capability's own class."""
    place: OrchestrationPlace | None = None
    """The agent's place in an orchestration, if the thread belongs to one."""
    turn_id: str = ""
    fence: int = 0
    call_id: str | None = None
    """The tool call that is being made; None if the engine does not name it."""

    @property
    def background(self) -> bool:
        """Whether no person waits for the answer."""
        return self.queue == "background"


class ToolInput(BaseModel):
    """Base of a tool's arguments. An unknown argument is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


InputT = TypeVar("InputT", bound=ToolInput)


@dataclass(frozen=True, slots=True)
class ToolDeclaration(Generic[InputT]):
    """A tool: its description for the model, and the function that runs it.

    Attributes:
        name: Unique among all capabilities; prefixed with the capability's name.
        idempotent: Whether it may be run again after a crash that left its outcome unknown.
        read_only: Whether it changes nothing.
        takes_secrets: The fields of its input whose values are secrets from the call on. It keeps them where they
            belong: any other tool is given placeholders in the place of secrets, since it may store what it is given.
            A field `name` of the same input names them.
        run: Does the work. Returns what the model gets, or what to wait for; raises `NovaError` with a message for the
            model.
    """

    name: str
    description: str
    input: type[InputT]
    run: Callable[[CapabilityContext, InputT], Awaitable[ToolReply]]
    idempotent: bool = False
    read_only: bool = False
    takes_secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Revealed:
    """Secrets that a run may meet, by name.

    Attributes:
        values: What must not stand in anything that is kept or shown.
        readable: Whether the model may read them by name, so that they may be put back into its own words.
    """

    values: Mapping[str, str]
    readable: bool


@dataclass(frozen=True, slots=True)
class DeclaredServer:
    """Declared tools that work for one run. `serving` makes an MCP server of it in processes that execute turns."""

    name: str
    tools: tuple[ToolDeclaration[Any], ...]
    context: CapabilityContext


Servers = McpServer | DeclaredServer | Mapping[str, McpServer]
"""What a grant becomes: one server under the capability's name, or several under names of their own."""


@runtime_checkable
class RevealsSecrets(Protocol):
    """A capability whose tools can bring secrets into a run."""

    async def revealed(
        self, connection: Connection, tenant_id: str, config: BaseModel, tools: Sequence[str] | None
    ) -> Revealed:
        """Return the secrets that a run with this grant may meet. Those that are missing are left out.

        Args:
            connection: Where secrets are.
            tenant_id: Whose.
            config: An instance of the class in `config`.
            tools: The grant's allow-list; None is all tools.
        """
        ...


@runtime_checkable
class ChecksGrants(Protocol):
    """A capability that checks configurations beyond their form, such as the operator's permission."""

    def check_grant(self, config: BaseModel, field: str) -> None:
        """Check a configuration, when it is written and when it is used.

        Args:
            config: An instance of the class in `config`.
            field: Where it stands, for the error.

        Raises:
            InvalidInput: It is refused.
        """
        ...


class Capability(Protocol):
    """A named set of tools that an agent can be granted.

    Attributes:
        name: The key under which agents are granted it.
        description: One sentence, for those who choose.
        tools: All its tools, known without starting anything. None: they are its servers' own, unknown before one
            answers.
        config: The form of a grant's configuration.
        injected: None: agents are granted it. Otherwise it is never granted: each run for which this is true gets it.
    """

    name: str
    description: str
    config: type[BaseModel]

    @property
    def tools(self) -> tuple[ToolDeclaration[Any], ...] | None: ...  # noqa: D102 - said above

    @property
    def injected(self) -> Callable[[CapabilityContext], bool] | None: ...  # noqa: D102 - said above

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> Servers:
        """Return the server, or the servers, for one run. Cheap: called at the start of every run.

        Args:
            config: An instance of the class in `config`.
            context: The run.

        Raises:
            InvalidInput: What the configuration names is not there (any more).
        """
        ...


class ToolCapability:
    """A capability whose tools are served by this process: all that most capabilities are."""

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
            description: One sentence, for those who choose.
            tools: All its tools.
            config: The form of a grant's configuration. The tools find it in their context.
            injected: For a capability that is never granted: which runs get it.
        """
        self.name = name
        self.description = description
        self.config = config
        self.tools = tuple(tools)
        self.injected = injected

    async def resolve(self, config: BaseModel, context: CapabilityContext) -> Servers:
        """Return the server for one run."""
        return DeclaredServer(self.name, self.tools, replace(context, config=config))


@cache
def input_schema(given: type[BaseModel]) -> JsonObject:
    """Return the JSON schema of a tool's input, as models and people see it."""
    schema: JsonObject = given.model_json_schema()
    # Titles repeat the names, and the docstring of the class is not for the model: tokens for nothing.
    for part in (schema, *schema.get("properties", {}).values()):
        part.pop("title", None)
    schema.pop("description", None)
    return schema
