"""Calls the tools of capabilities over MCP as a run does, and returns what the model would get."""

from collections.abc import Mapping
from typing import Any

from mcp import Client
from mcp.types import RequestParamsMeta, TextContent

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.engine import CALL_ID, InProcessMcpServer
from nova_workers.contracts.native import native_tools
from nova_workers.domain.capabilities.rules import CapabilityContext, default_registry
from nova_workers.ledger.database import Database
from tests.support.harness.tool_server import tool_server


async def add_tenants(database: Database) -> None:
    """Add two tenants, each with the agents `a` and `b`."""
    await database.execute("INSERT INTO tenants (id, name) VALUES ('ten_1', 'One'), ('ten_2', 'Two')")
    for tenant_id in ("ten_1", "ten_2"):
        await add_agents(database, tenant_id, "a", "b")


async def add_agents(database: Database, tenant_id: str, *agent_ids: str) -> None:
    """Add agents without any configuration."""
    for agent_id in agent_ids:
        for table in ("agents (tenant_id, id, version, spec)", "agent_versions (tenant_id, agent_id, version, spec)"):
            await database.execute(
                f"INSERT INTO {table} VALUES (:tenant_id, :agent_id, 1, :spec)",
                tenant_id=tenant_id,
                agent_id=agent_id,
                spec={"name": agent_id},
            )


class ToolCaller:
    """A run of an agent that is granted `notes` and `file-send`, unless `spec` says otherwise.

    `context` has what its context has beside the agent.
    """

    def __init__(
        self,
        database: Database,
        tenant_id: str = "ten_1",
        agent_id: str = "a",
        *,
        settings: Settings | None = None,
        run_id: str = "run_1",
        queue: str = "interactive",
        context: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        granted = {"capabilities": {"notes": {}, "file-send": {}}, **spec}
        self._spec = AgentSpec.model_validate({"name": agent_id, **granted})
        settings = settings or Settings()
        cwd = str(settings.agent_directory(tenant_id, agent_id)) if native_tools(self._spec.trust) else None
        given: dict[str, Any] = {"cwd": cwd, **(context or {})}
        self._context = CapabilityContext(tenant_id, agent_id, "thr_1", run_id, queue=queue, agent=self._spec, **given)
        self._registry = default_registry(database, settings, SystemClock(), serve=tool_server())

    async def servers(self) -> dict[str, Any]:
        """Return the servers of the run by name."""
        return dict(await self._registry.resolve(self._spec, self._context))

    async def call(self, tool: str, **given: Any) -> str:
        """Return a tool's result; an error after an exclamation mark."""
        call_id = self._context.call_id
        meta: RequestParamsMeta | None = None if call_id is None else {CALL_ID: call_id}
        for server in (await self.servers()).values():
            assert isinstance(server, InProcessMcpServer)
            async with Client(server.built()) as client:
                if tool not in {listed.name for listed in (await client.list_tools()).tools}:
                    continue
                result = await client.call_tool(tool, given, meta=meta)
                (content,) = result.content
                assert isinstance(content, TextContent)
                return f"!{content.text}" if result.is_error else content.text
        raise AssertionError(f"The run has no tool {tool!r}")
