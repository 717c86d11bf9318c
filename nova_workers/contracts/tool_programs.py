"""The port to the processes in which code of users runs.

Above it: capabilities, which know grants, secrets and runs. Below it: child processes of the worker, one for each
tenant and source, that speak MCP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from nova_workers.contracts.agents import Enclosure
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.user_agents import AgentProgram, OnNewVersion
from nova_workers.contracts.user_tools import CallContext, ListedTool


class ReportProgress(Protocol):
    """Receives the progress of a call."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Must return at once."""
        ...


@dataclass(frozen=True, slots=True)
class ToolSource:
    """Where tools of users come from: the directory of a project, or an installed module.

    Attributes:
        name: The capability's.
        target: The directory, with a slash at its end, or the module's name.
        tenant_id: The tenant of a project; None of a module, which any tenant may be granted.
        is_shared: Whether one process serves all tenants, as for effects, which the operator chooses.
    """

    name: str
    target: str
    tenant_id: str | None = None
    is_shared: bool = False

    @property
    def folder(self) -> str | None:
        """The directory of a project; None of a module."""
        return self.target if self.target.endswith("/") else None


@dataclass(frozen=True, slots=True)
class InstalledAgent:
    """An agent in Python.

    Attributes:
        source: Where it comes from.
        function: Its name there.
        version: Of its code; empty if it is not known.
        on_new_version: What becomes of a run that another version of the code began.
    """

    source: ToolSource
    function: str
    version: str
    on_new_version: OnNewVersion = "continue"

    @property
    def name(self) -> str:
        """The name by which the configuration of agents names it."""
        return f"{self.source.name.removeprefix('project:')}:{self.function}"


class ToolPrograms(Protocol):
    """Calls tools and agents in processes that it starts when they are needed, and ends when they are not."""

    async def call(
        self,
        source: ToolSource,
        tool: ListedTool,
        arguments: JsonObject,
        context: CallContext,
        *,
        enclosure: Enclosure | None,
        report: ReportProgress | None,
    ) -> Any:
        """Return the result of a call, a ``CallToolResult`` of the MCP library.

        Args:
            source: Which process.
            tool: As it is listed.
            arguments: Its input.
            context: All that it may know of the run.
            enclosure: The bounds of a tenant with ceilings.
            report: Receives progress.

        Raises:
            ToolFailure: There is no result. The message says whether the call was made.
        """
        ...

    def agent(self, agent: InstalledAgent, context: CallContext, *, enclosure: Enclosure | None) -> AgentProgram:
        """Return the function of an agent for one attempt at a turn. Starts nothing; must be closed.

        Args:
            agent: Which function, of which code.
            context: All that it may know of the run.
            enclosure: The bounds of a tenant with ceilings.
        """
        ...

    async def close(self) -> None:
        """End all processes."""
        ...
