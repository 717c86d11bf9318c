"""The seam of a capability: what it declares, and how it becomes an MCP server for one run.

Above: the registry, which knows grants and allow-lists. Below: whatever the capability reaches, such as the ledger.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from nova_workers.contracts.engine import McpServer

__all__ = ["Capability", "CapabilityContext", "NoConfig", "ToolDeclaration", "ToolInput"]


@dataclass(frozen=True, slots=True)
class CapabilityContext:
    """For whom a capability works: the run that uses it."""

    tenant_id: str
    agent_id: str
    thread_id: str
    run_id: str


class ToolInput(BaseModel):
    """Base of a tool's arguments. An argument that the tool does not know is an error, not a wish unheard."""

    model_config = ConfigDict(frozen=True, extra="forbid")


InputT = TypeVar("InputT", bound=ToolInput)


@dataclass(frozen=True, slots=True)
class ToolDeclaration(Generic[InputT]):
    """A tool, as the model is told of it, and what runs it.

    Attributes:
        name: Unique among all capabilities; prefixed with the capability's name.
        idempotent: Whether it may be run again after a crash that left its outcome unknown.
        read_only: Whether it changes nothing.
        run: Does the work. Returns text for the model; raises `NovaError` with a message for the model.
    """

    name: str
    description: str
    input: type[InputT]
    run: Callable[[CapabilityContext, InputT], Awaitable[str]]
    idempotent: bool = False
    read_only: bool = False


class NoConfig(BaseModel):
    """The configuration of a capability that has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Capability(Protocol):
    """A named set of tools that an agent can be granted.

    Attributes:
        name: The key under which agents are granted it.
        description: One sentence, for those who choose.
        tools: All its tools. Known without starting anything.
        config: The form of a grant's configuration.
    """

    name: str
    description: str
    tools: tuple[ToolDeclaration[Any], ...]
    config: type[BaseModel]

    def resolve(self, config: BaseModel, context: CapabilityContext) -> McpServer:
        """Return the server for one run. Cheap: called at the start of every run.

        Args:
            config: An instance of the class in `config`.
            context: The run.
        """
        ...
